-- Makes this shard refuse claims and rescues of a node with a ticket up to this one. ARGV: node, ticket, for how many
-- seconds.
--
-- Reads and writes given_up.
local known = tonumber(call('HGET', P .. 'given_up', ARGV[1]) or '0')
if tonumber(ARGV[2]) > known then call('HSET', P .. 'given_up', ARGV[1], ARGV[2]) end
call('EXPIRE', P .. 'given_up', ARGV[3])
return 1
