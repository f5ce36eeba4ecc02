-- Deletes nodes that died long enough ago. ARGV: now, how long they are shown. Answers now.
local old = string.format('%.0f', now - tonumber(ARGV[2]))
for _, node in ipairs(call('ZRANGEBYSCORE', P .. 'dead', '-inf', old)) do
  call('ZREM', P .. 'dead', node)
  for _, key in ipairs({ 'beats', 'nodes', 'commands' }) do call('HDEL', P .. key, node) end
end
return now
