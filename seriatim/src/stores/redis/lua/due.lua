-- When lanes of shards are due first, without the common part: an idle engine asks for all its queues. KEYS[1]: the prefix
-- of a shard; ARGV: whether the caller waits for work, and the prefixes of other shards on the same server. Answers for each
-- shard a time, or '' if nothing waits or its queue is paused. Where nothing is due now, it enters a caller that waits in
-- sleepers, as a claim that finds too little does: it claims nothing there, and would not hear of the next push.
--
-- Reads of each shard meta, and what first_due.lua names; writes sleepers.
local listener = ARGV[1] == '1' and string.match(KEYS[#KEYS], '}:to:(%x+)$')
local SLEEPERS_MAX = 1000 -- as in lane.lua
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function sleep(prefix)
  -- A server whose memory is full refuses to write; the answer is true without it.
  if not listener or redis.pcall('ZADD', prefix .. 'sleepers', 'NX', string.format('%.0f', now), listener) ~= 1 then return end
  if call('ZCARD', prefix .. 'sleepers') > SLEEPERS_MAX then call('ZPOPMIN', prefix .. 'sleepers') end
end

local function due_of(prefix)
  local best = first_due(prefix)
  if not best or best > now then sleep(prefix) end
  if not best or call('HGET', prefix .. 'meta', 'paused') == '1' then return '' end
  return string.format('%.0f', best)
end

local answer = { due_of(KEYS[1]) }
for i = 2, #ARGV do answer[i] = due_of(ARGV[i]) end
return answer
