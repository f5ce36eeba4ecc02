-- Puts refused payloads back to their ids, as Lowkiq pushes: an equal payload that is there keeps its score. Those of earlier
-- versions have no error.
-- KEYS: rejected. ARGV: prefix of Lowkiq's keys, most payloads.
local prefix = ARGV[1]
local some = redis.call('LRANGE', KEYS[1], 0, ARGV[2] - 1)
for i = 1, #some do
  local shard, due, retries, score, of_id, of_error, from = some[i]:match('^(%d+) (%S+) (%S+) (%S+) (%d+):?(%d*) ()')
  local id, rest = some[i]:sub(from, from + of_id - 1), from + of_id
  if of_error == '' then of_error = 0 end
  local payload = some[i]:sub(rest + of_error)
  if tonumber(of_error) > 0 then redis.call('HSET', prefix .. 'errors', id, some[i]:sub(rest, rest + of_error - 1)) end
  redis.call('ZADD', prefix .. 'all_ids_lex', 0, id)
  redis.call('ZADD', prefix .. 'all_ids_scored_by_perfrom_in', 'NX', due, id)
  redis.call('ZADD', prefix .. 'all_ids_scored_by_retry_count', 'NX', retries, id)
  redis.call('ZADD', prefix .. 'ids_scored_by_perform_in:' .. shard, 'NX', due, id)
  redis.call('ZADD', prefix .. 'payloads:' .. id, 'NX', score, payload)
end
if #some > 0 then redis.call('LTRIM', KEYS[1], #some, -1) end
return #some
