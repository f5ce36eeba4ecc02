-- Puts back what woke the bridge. KEYS: queue, woken.
local woken = redis.call('LRANGE', KEYS[2], 0, -1)
for i = 1, #woken do redis.call('RPUSH', KEYS[1], woken[i]) end
redis.call('DEL', KEYS[2])
return #woken
