-- Idempotency keys of the whole store: idem and idemold, as in a shard, with the queue and the shard of the job. A script
-- of a shard reaches them, and the other shards, on one server only: in a cluster, no push has such a key.
--
-- Reads jobs, aliases and lanes of other shards; writes nothing.
local W = { root = string.match(P, '^[^{]*') }
W.idem, W.idemold = W.root .. '{g}:idem', W.root .. '{g}:idemold'

function W.place(queue, shard) return W.root .. '{q' .. queue .. ':' .. shard .. '}:' end

-- Whether a job is stored in its shard. What this script has not written yet does not count.
function W.knows(place, seq)
  local id = struct.pack('>I7', seq)
  if call('HEXISTS', place .. 'jobs', id) == 1 then return true end
  if call('HEXISTS', place .. 'aliases', string.format('%.0f', seq)) == 1 then return true end
  local record = call('HGET', place .. 'lanes', id)
  return record and string.lower(string.sub(record, 1, 1)) == 's'
end
