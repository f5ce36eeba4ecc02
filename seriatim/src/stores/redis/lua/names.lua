-- Idempotency keys. Those of the whole store are in idem and idemold as those of a shard are, with the queue and the shard of the
-- job. A script of a shard reaches them, and the other shards, on one server only: in a cluster, no push has such a key.
--
-- Reads jobs, aliases and lanes of the shards of the jobs. `sweep` reads the keys that are old, removes them, or writes later times.
local W = { root = string.match(P, '^[^{]*') }
W.idem, W.idemold = W.root .. '{g}:idem', W.root .. '{g}:idemold'

-- Whether a job is stored, in this shard if none is named. What this script has not written yet does not count.
function W.knows(seq, queue, shard)
  local place, id = queue and W.root .. '{q' .. queue .. ':' .. shard .. '}:' or P, struct.pack('>I7', seq)
  if call('HEXISTS', place .. 'jobs', id) == 1 then return true end
  if call('HEXISTS', place .. 'aliases', string.format('%.0f', seq)) == 1 then return true end
  local record = call('HGET', place .. 'lanes', id)
  return record and string.lower(string.sub(record, 1, 1)) == 's'
end

-- Removes old keys, at most `most`. One whose job is still stored is looked at again after as long as it has outlived its time, up to
-- a day, but at least `pause`. Answers how many it looked at, and whether there are more.
function W.sweep(keys, order, now, most, pause)
  local names = call('ZRANGEBYSCORE', order, '-inf', string.format('%.0f', now), 'LIMIT', 0, most + 1)
  for i = 1, math.min(#names, most) do
    local seq, _, until_, queue, shard = cmsgpack.unpack(call('HGET', keys, names[i]))
    if W.knows(seq, queue, shard) then
      local wait = math.max(math.min(now - until_, 86400000000), pause)
      call('ZADD', order, string.format('%.0f', now + wait), names[i])
    else
      call('ZREM', order, names[i])
      call('HDEL', keys, names[i])
    end
  end
  return math.min(#names, most), #names > most
end

