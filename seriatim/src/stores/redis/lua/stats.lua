-- Statistics of shards, without the common part: a node asks for those of all its queues. KEYS[1]: the prefix of a shard; ARGV: those of
-- others on the same server. Answers for each {lanes, jobs, running, retries, dead, processed, failed, first due}, false if it
-- has no queue; for fewer shards than are asked for, but at least one, if `arrivals` has many entries that mean nothing.
--
-- Reads of each shard meta, and what first_due.lua names; writes nothing.
local function of_shard(prefix)
  local n = call('HMGET', prefix .. 'meta', 'version', 'lanes', 'jobs', 'running', 'processed', 'failed')
  if not n[1] then return false end
  for i = 2, 6 do n[i] = tonumber(n[i] or '0') end
  local _, due = first_due(prefix)
  return { n[2], n[3], n[4], call('ZCARD', prefix .. 'trouble'), call('ZCARD', prefix .. 'dead'), n[5], n[6], due or false }
end

local answer = { of_shard(KEYS[1]) }
for i = 1, #ARGV do
  if arrivals_read > #answer + STALE_MAX then break end
  answer[i + 1] = of_shard(ARGV[i])
end
return answer
