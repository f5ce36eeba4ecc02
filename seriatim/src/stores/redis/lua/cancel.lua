-- Cancels jobs. ARGV: now, then (seq, creation millisecond) of each. Answers for each: 0 unknown, 1 ended, 2 flagged,
-- 3 cancelled, 4 moved to another shard.
--
-- Reads the jobs and their lanes; writes both, and flags for those that run.
NOW = clock(ARGV[1])
even_when_full()

local flags = {} -- by lane: the seqs

local function flag(l, j)
  if j.flagged then return end
  if not flags[l.id] then
    local known = call('HGET', K.flags, l.id)
    flags[l.id] = known and cmsgpack.unpack(known) or {}
  end
  table.insert(flags[l.id], j.seq)
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
for id, seqs in pairs(flags) do call('HSET', K.flags, id, cmsgpack.pack(seqs)) end
if S then commit() end
return answer
