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
local _, are_more = W.sweep(W.idem, W.idemold, now, tonumber(ARGV[3]), 60000000)
raised(tonumber(call('HGET', P .. 'meta', 'version') or '0'), tonumber(ARGV[4]))
return are_more and 1 or 0
