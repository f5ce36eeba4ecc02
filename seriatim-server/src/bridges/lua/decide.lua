-- A person has decided on a batch. KEYS: in flight. ARGV: batch, 'again' or 'drop', when it counts as taken, in ms. What
-- is pushed again may have been taken by other routes: those of the node that pushes it count now.
if redis.call('HGET', KEYS[1], 'batch') ~= ARGV[1] then return 0 end
if ARGV[2] == 'drop' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'at', ARGV[3], 'routes', '')
end
return 1
