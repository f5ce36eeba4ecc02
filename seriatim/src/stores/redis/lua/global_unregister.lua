-- Removes the name of a deleted queue from the register. ARGV: name, number. Answers whether it had that number.
--
-- Reads queues; removes from it.
if call('HGET', P .. 'queues', ARGV[1]) ~= ARGV[2] then return 0 end
return call('HDEL', P .. 'queues', ARGV[1])
