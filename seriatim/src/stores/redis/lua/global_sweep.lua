-- Forgets nodes that died long enough ago. ARGV: now, how long they are shown.
-- Answers now.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local old = string.format('%.0f', now - tonumber(ARGV[2]))
for _, node in ipairs(call('ZRANGEBYSCORE', P .. 'dead', '-inf', old)) do
  call('ZREM', P .. 'dead', node)
  for _, key in ipairs({ 'beats', 'nodes', 'commands' }) do call('HDEL', P .. key, node) end
end
return now
