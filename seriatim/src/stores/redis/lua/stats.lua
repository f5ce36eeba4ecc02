-- Statistics of the shard. Answers {lanes, jobs, running, retries, dead, processed, failed, first due}; nil if
-- the shard has no queue.
--
-- Reads meta and the first entries of arrivals, ready and wake; writes nothing.
if not S then return false end
local n = call('HMGET', K.meta, 'lanes', 'jobs', 'running', 'processed', 'failed')
for i = 1, 5 do n[i] = tonumber(n[i] or '0') end
return { n[1], n[2], n[3], call('ZCARD', K.trouble), call('ZCARD', K.dead), n[4], n[5], first_due(P) }
