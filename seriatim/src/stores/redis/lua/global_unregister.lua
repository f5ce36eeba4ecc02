-- Removes the name of a deleted queue from the register. ARGV: name, number. Answers whether it had that number.
--
-- Reads queues; removes from it.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
if call('HGET', P .. 'queues', ARGV[1]) ~= ARGV[2] then return 0 end
return call('HDEL', P .. 'queues', ARGV[1])
