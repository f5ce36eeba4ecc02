-- Declares a node dead whose process is gone. ARGV: now, node, its last heartbeat as the caller knows it, the value to
-- store instead. Answers 0 if it has sent a heartbeat since, is dead, or is unknown.
--
-- Reads beats and alive; writes alive, dead and beats.
local node = ARGV[2]
if call('HGET', P .. 'beats', node) ~= ARGV[3] then return 0 end
if not call('ZSCORE', P .. 'alive', node) then return 0 end
call('ZREM', P .. 'alive', node)
call('ZADD', P .. 'dead', string.format('%.0f', now), node)
call('HSET', P .. 'beats', node, ARGV[4])
return 1
