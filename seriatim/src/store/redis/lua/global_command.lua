-- Tells a living node something. ARGV: node, command. Answers 0 when it does not live.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
if not call('ZSCORE', P .. 'alive', ARGV[1]) then return 0 end
call('HSET', P .. 'commands', ARGV[1], ARGV[2])
return 1
