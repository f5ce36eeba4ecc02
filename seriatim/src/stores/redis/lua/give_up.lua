-- Makes this shard refuse claims and rescues of a node with a ticket up to this one. ARGV: node, ticket, for how many
-- seconds.
--
-- Reads and writes given_up.
local call, key = redis.call, KEYS[1] .. 'given_up'
call('DEL', KEYS[1] .. 'nothing') -- see `even_when_full` in shard.lua
local known = tonumber(call('HGET', key, ARGV[1]) or '0')
if tonumber(ARGV[2]) > known then call('HSET', key, ARGV[1], ARGV[2]) end
call('EXPIRE', key, ARGV[3])
return 1
