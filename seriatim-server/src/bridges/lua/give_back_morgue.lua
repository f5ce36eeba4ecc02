-- Puts refused payloads back into the morgue of their queue, as Lowkiq does it. KEYS: dead ids, rejected. ARGV: prefix of the
-- morgue's keys, most payloads.
local prefix = ARGV[1]
local some = redis.call('LRANGE', KEYS[2], 0, ARGV[2] - 1)
for i = 1, #some do
  local died_at, score, of_id, of_error, from = some[i]:match('^%d+ (%S+) %S+ (%S+) (%d+):(%d+) ()')
  local id, rest = some[i]:sub(from, from + of_id - 1), from + of_id
  redis.call('ZADD', prefix .. 'all_ids_lex', 0, id)
  redis.call('ZADD', KEYS[1], died_at, id)
  redis.call('ZADD', prefix .. 'payloads:' .. id, 'NX', score, some[i]:sub(rest + of_error))
  if tonumber(of_error) > 0 then redis.call('HSET', prefix .. 'errors', id, some[i]:sub(rest, rest + of_error - 1)) end
end
if #some > 0 then redis.call('LTRIM', KEYS[2], #some, -1) end
return #some
