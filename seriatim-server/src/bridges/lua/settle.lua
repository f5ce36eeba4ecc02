-- The jobs of a batch are in the store: forgets it, and keeps what was refused beside the source.
-- KEYS: in flight, rejected. ARGV: batch, 'queue', 'set' or 'morgue', refused elements; of a set, each behind its score.
if redis.call('HGET', KEYS[1], 'batch') ~= ARGV[1] then return 0 end
if ARGV[2] ~= 'set' then
  for i = 3, #ARGV do redis.call('LPUSH', KEYS[2], ARGV[i]) end
else
  for i = 3, #ARGV, 2 do redis.call('ZADD', KEYS[2], ARGV[i], ARGV[i + 1]) end
end
redis.call('DEL', KEYS[1])
return 1
