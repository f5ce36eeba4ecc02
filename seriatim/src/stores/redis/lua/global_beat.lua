-- A node's heartbeat; with a lease of 0, its deregistration. ARGV: now, node, lease, description. Answers {now, alive,
-- command, shards with flagged jobs {shard, version, ...}, living nodes, the version of the stored format}.
--
-- Reads dead, commands, flags, alive and the version in meta; writes beats, nodes and alive, at a deregistration dead instead.
local node = ARGV[2]
local alive = not call('ZSCORE', P .. 'dead', node)
if alive then
  local last = tonumber(call('HGET', P .. 'beats', node) or '0')
  local beat = math.max(now, last)
  call('HSET', P .. 'beats', node, string.format('%.0f', beat))
  call('HSET', P .. 'nodes', node, ARGV[4])
  if tonumber(ARGV[3]) > 0 then
    call('ZADD', P .. 'alive', string.format('%.0f', beat + tonumber(ARGV[3])), node)
  else
    call('ZREM', P .. 'alive', node)
    call('ZADD', P .. 'dead', string.format('%.0f', now), node)
    alive = false
  end
end
local command = call('HGET', P .. 'commands', node)
return { now, alive and 1 or 0, command, call('HGETALL', P .. 'flags'),
  call('ZRANGE', P .. 'alive', 0, -1), call('HGET', P .. 'meta', 'version') }
