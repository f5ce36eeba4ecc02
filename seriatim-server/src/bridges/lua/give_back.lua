-- Puts refused elements back into their source, in their order: they come next. KEYS: source, rejected. ARGV: 'queue' or
-- 'set', most elements.
if ARGV[1] == 'queue' then
  local some = redis.call('LRANGE', KEYS[2], 0, ARGV[2] - 1)
  for i = 1, #some do redis.call('RPUSH', KEYS[1], some[i]) end
  if #some > 0 then redis.call('LTRIM', KEYS[2], #some, -1) end
  return #some
end
local some = redis.call('ZRANGE', KEYS[2], 0, ARGV[2] - 1, 'WITHSCORES')
for i = 1, #some, 2 do redis.call('ZADD', KEYS[1], some[i + 1], some[i]) end
for i = 1, #some, 2 do redis.call('ZREM', KEYS[2], some[i]) end
return #some / 2
