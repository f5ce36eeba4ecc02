-- Gives a queue its number. ARGV: name, most queues. Answers the number; 0 when there are too many.
local call, P = redis.call, KEYS[1]
local known = call('HGET', P .. 'queues', ARGV[1])
if known then return tonumber(known) end
if call('HLEN', P .. 'queues') >= tonumber(ARGV[2]) then return 0 end
local number = call('HINCRBY', P .. 'meta', 'queues', 1)
call('HSET', P .. 'queues', ARGV[1], number)
return number
