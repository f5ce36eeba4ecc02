-- Tells a living node something. ARGV: node, command ('' takes the last one back). Answers 0 when it does not live.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
if not call('ZSCORE', P .. 'alive', ARGV[1]) then return 0 end
if ARGV[2] == '' then
  call('HDEL', P .. 'commands', ARGV[1])
else
  call('HSET', P .. 'commands', ARGV[1], ARGV[2])
end
return 1
