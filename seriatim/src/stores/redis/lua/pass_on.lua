-- A process that was woken cannot claim: wakes the next ones if lanes wait. Reads and writes `sleepers` alone, and reads the
-- first entries of arrivals, ready and wake.
if not S or S.paused then return false end
even_when_full()
READ_ONLY = true
if first_due() then bell.ring('some') end
return true
