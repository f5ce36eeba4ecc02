-- When lanes of shards are due first, without the common part: an idle engine asks for all its queues. KEYS[1]: the prefix
-- of a shard; ARGV: those of others on the same server. Answers for each shard a time, or '' if nothing waits or its queue
-- is paused. Where nothing is due now, it enters the caller in sleepers, as a claim that finds too little does: the caller
-- claims nothing there, and would not hear of the next push.
--
-- Reads of each shard meta and, as `first_due` in any_lane.lua does, the first entries of arrivals, ready and wake; writes
-- sleepers.
local call = redis.call
local listener = string.match(KEYS[#KEYS], '}:to:(%x+)$')
local SLEEPERS_MAX = 1000 -- as in lane.lua
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function sleep(prefix)
  -- A server whose memory is full refuses to write; the answer is true without it.
  if not listener or redis.pcall('ZADD', prefix .. 'sleepers', 'NX', string.format('%.0f', now), listener) ~= 1 then return end
  if call('ZCARD', prefix .. 'sleepers') > SLEEPERS_MAX then call('ZPOPMIN', prefix .. 'sleepers') end
end

-- The due time of the first entry of `arrivals` that still means something. A claim removes the others.
local STALE_MAX = 1000
local function first_arrival(prefix)
  for at = 0, STALE_MAX do
    local entry = call('LINDEX', prefix .. 'arrivals', at)
    if not entry then return false end
    local record = call('HGET', prefix .. 'lanes', string.sub(entry, 8))
    if at == STALE_MAX or record and string.byte(record, 1) > 96 then return (struct.unpack('>I7', entry)) end
  end
end

local CLASSES_MAX = 1000 -- as in any_lane.lua
local function first_due(prefix)
  local best, from = first_arrival(prefix), '-'
  for _ = 1, CLASSES_MAX do
    local member = call('ZRANGEBYLEX', prefix .. 'ready', from, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local due = struct.unpack('>I7', member, #member - 13)
    if not best or due < best then best = due end
    from = '(' .. string.sub(member, 1, #member - 14) .. '\255'
  end
  local wake = call('ZRANGE', prefix .. 'wake', 0, 0, 'WITHSCORES')[2]
  if wake and (not best or tonumber(wake) < best) then best = tonumber(wake) end
  if not best or best > now then sleep(prefix) end
  if not best or call('HGET', prefix .. 'meta', 'paused') == '1' then return '' end
  return string.format('%.0f', best)
end

local answer = { first_due(KEYS[1]) }
for i = 1, #ARGV do answer[i + 1] = first_due(ARGV[i]) end
return answer
