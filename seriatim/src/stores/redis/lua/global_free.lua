-- Makes the number of a deleted queue free for another one. ARGV: the number.
--
-- Writes free.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
return call('SADD', P .. 'free', ARGV[1])
