-- A person has decided that a batch is pushed again. KEYS: in flight. ARGV: batch, when it counts as taken, in ms. It may
-- have been taken by other routes: those of the node that pushes it count now.
if redis.call('HGET', KEYS[1], 'batch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'at', ARGV[2], 'routes', '')
return 1
