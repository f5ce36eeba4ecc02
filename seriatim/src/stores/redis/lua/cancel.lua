-- Cancels jobs. ARGV: now, then (seq, creation millisecond) of each. Answers for each: 0 unknown, 1 ended, 2 flagged,
-- 3 cancelled, 4 moved to another shard.
--
-- Reads the jobs and their lanes; writes both, and flags for those that run.
NOW = clock(ARGV[1])
even_when_full()

local function flag(l, j)
  if j.flagged then return end
  local flags = call('HGET', K.flags, l.id)
  flags = flags and cmsgpack.unpack(flags) or {}
  flags[#flags + 1] = j.seq
  call('HSET', K.flags, l.id, cmsgpack.pack(flags))
  j.flagged, l.flagged = true, true
  L.change(l, j)
  touch(l)
end

local function cancel(seq, millis)
  local j = S and J.resolve(seq, millis)
  if not j then return 0 end
  if j.state == 'moved' then return 4 end
  if j.state ~= 'live' then return 1 end
  local l = L.lane_of(j.lane)
  if L.take(l, j) then
    J.finish(j, l.key, 'canceled', 'canceled')
    touch(l)
    return 3
  end
  flag(l, j)
  return 2
end

local answer = {}
for i = 2, #ARGV, 2 do
  answer[#answer + 1] = cancel(tonumber(ARGV[i]), tonumber(ARGV[i + 1]))
end
if S then commit() end
return answer
