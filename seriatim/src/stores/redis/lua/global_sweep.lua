-- Deletes nodes that died long enough ago, and old idempotency keys of the whole store, and raises the version of the format
-- (raise.lua). ARGV: now, how long nodes are shown, most keys to look at, the newest version. Answers whether there may be more.
--
-- Reads dead and idemold up to their times, idem, and in shards whether the jobs are stored; removes nodes from dead, beats,
-- nodes and commands, keys from idem and idemold, and writes later times into idemold.
local old = string.format('%.0f', now - tonumber(ARGV[2]))
for _, node in ipairs(call('ZRANGEBYSCORE', P .. 'dead', '-inf', old)) do
  call('ZREM', P .. 'dead', node)
  for _, key in ipairs({ 'beats', 'nodes', 'commands' }) do call('HDEL', P .. key, node) end
end
-- A key whose job is still stored is checked again after as long as it has outlived its time: a minute to a day.
local names = call('ZRANGEBYSCORE', W.idemold, '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[3])
for _, name in ipairs(names) do
  local seq, _, until_, queue, shard = cmsgpack.unpack(call('HGET', W.idem, name))
  if W.knows(W.place(queue, shard), seq) then
    local wait = math.min(math.max(now - until_, 60000000), 86400000000)
    call('ZADD', W.idemold, string.format('%.0f', now + wait), name)
  else
    call('ZREM', W.idemold, name)
    call('HDEL', W.idem, name)
  end
end
raised(tonumber(call('HGET', P .. 'meta', 'version') or '0'), tonumber(ARGV[4]))
return #names == tonumber(ARGV[3]) and 1 or 0
