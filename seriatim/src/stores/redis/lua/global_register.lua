-- Gives a queue its number. ARGV: name, most queues. Answers the number; 0 if there are too many.
--
-- Reads queues; for a new name writes it there, and takes a number from meta or free.
local call, P = redis.call, KEYS[1]
local known = call('HGET', P .. 'queues', ARGV[1])
if known then return tonumber(known) end
if call('HLEN', P .. 'queues') >= tonumber(ARGV[2]) then return 0 end
-- Numbers of deleted queues are reused last.
local number = tonumber(call('HGET', P .. 'meta', 'queues') or '0')
if number < tonumber(ARGV[2]) then number = call('HINCRBY', P .. 'meta', 'queues', 1)
else number = tonumber(call('SPOP', P .. 'free') or '0') end
if number == 0 then return 0 end
call('HSET', P .. 'queues', ARGV[1], number)
return number
