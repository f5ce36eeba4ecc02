-- Declares dead the nodes whose last heartbeat is too old. ARGV: now, the caller. Answers {now, whether the caller is
-- alive, {node, last heartbeat, ...}}.
local text = string.format('%.0f', now)
-- A dead node gets no new claims, so a node that is not alive must not declare others dead.
if not call('ZSCORE', P .. 'alive', ARGV[2]) then return { now, 0, {} } end
for _, node in ipairs(call('ZRANGEBYSCORE', P .. 'alive', '-inf', '(' .. text)) do
  call('ZREM', P .. 'alive', node)
  call('ZADD', P .. 'dead', text, node)
end
local lives = call('ZSCORE', P .. 'alive', ARGV[2]) and 1 or 0
return { now, lives, call('HGETALL', P .. 'beats') }
