-- A process that was woken cannot claim: wakes the next ones if lanes wait.
--
-- Reads the first entries of arrivals, ready and wake; takes entries out of sleepers.
if not S or S.paused then return false end
even_when_full()
if first_due(P) then bell.ring('some') end
return true
