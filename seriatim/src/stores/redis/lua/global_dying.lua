-- Declares dead the nodes whose last beat is too old. ARGV: now, the caller.
-- Answers {now, whether the caller lives, {node, last beat, ...}}.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local text = string.format('%.0f', now)
-- A dead node bears no new claims, so who is not heard may not declare others dead.
if not call('ZSCORE', P .. 'alive', ARGV[2]) then return { now, 0, {} } end
for _, node in ipairs(call('ZRANGEBYSCORE', P .. 'alive', '-inf', '(' .. text)) do
  call('ZREM', P .. 'alive', node)
  call('ZADD', P .. 'dead', text, node)
end
local lives = call('ZSCORE', P .. 'alive', ARGV[2]) and 1 or 0
return { now, lives, call('HGETALL', P .. 'beats') }
