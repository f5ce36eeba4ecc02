-- Puts refused payloads back to their ids, as Lowkiq pushes: an equal payload that is there keeps its score.
-- KEYS: rejected. ARGV: prefix of Lowkiq's keys, most payloads.
local prefix = ARGV[1]
local some = redis.call('LRANGE', KEYS[1], 0, ARGV[2] - 1)
for i = 1, #some do
  local shard, due, retries, score, length, from = some[i]:match('^(%d+) (%S+) (%S+) (%S+) (%d+) ()')
  local id, payload = some[i]:sub(from, from + length - 1), some[i]:sub(from + length)
  redis.call('ZADD', prefix .. 'all_ids_lex', 0, id)
  redis.call('ZADD', prefix .. 'all_ids_scored_by_perfrom_in', 'NX', due, id)
  redis.call('ZADD', prefix .. 'all_ids_scored_by_retry_count', 'NX', retries, id)
  redis.call('ZADD', prefix .. 'ids_scored_by_perform_in:' .. shard, 'NX', due, id)
  redis.call('ZADD', prefix .. 'payloads:' .. id, 'NX', score, payload)
end
if #some > 0 then redis.call('LTRIM', KEYS[1], #some, -1) end
return #some
