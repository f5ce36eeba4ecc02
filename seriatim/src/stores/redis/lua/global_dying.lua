-- Declares dead the nodes whose last heartbeat is too old. ARGV: now, the caller, for how long it leads the rescues then ('' =
-- it looks at all shards in any case). Answers {now, whether the caller is alive, whether it is to look at the shards,
-- {node, last heartbeat, ...}}.
--
-- Reads alive, beats and the leader of the rescues; writes alive and dead of the nodes that it declares dead, alive and beats of
-- those whose heartbeats are ahead, and leaders.
local text = string.format('%.0f', now)
-- A dead node gets no new claims, so a node that is not alive must not declare others dead.
if not call('ZSCORE', P .. 'alive', ARGV[2]) then return { now, 0, 0, {} } end
local dying = call('ZRANGEBYSCORE', P .. 'alive', '-inf', '(' .. text)
for _, node in ipairs(dying) do
  call('ZREM', P .. 'alive', node)
  call('ZADD', P .. 'dead', text, node)
end
local lives = call('ZSCORE', P .. 'alive', ARGV[2]) and 1 or 0
if ARGV[3] ~= '' then
  local known = not dying[1] and call('HGET', P .. 'leaders', 'rescue!')
  if known then
    local leader, until_ = cmsgpack.unpack(known)
    -- Further ahead it is from before the clock was set back.
    local leads = until_ > now and until_ <= now + tonumber(ARGV[3])
    if leader ~= ARGV[2] and leads and call('ZSCORE', P .. 'alive', leader) then
      return { now, lives, 0, {} }
    end
  end
  call('HSET', P .. 'leaders', 'rescue!', cmsgpack.pack(ARGV[2], now + tonumber(ARGV[3])))
end
-- A heartbeat that is more than a lease ahead is from before the clock was set back: it counts as one of now.
local later = call('ZRANGEBYSCORE', P .. 'alive', '(' .. text, '+inf', 'WITHSCORES')
for i = 1, #later, 2 do
  local beat = tonumber(call('HGET', P .. 'beats', later[i]) or text)
  local lease = later[i + 1] - beat
  if beat > now + lease then
    call('HSET', P .. 'beats', later[i], text)
    call('ZADD', P .. 'alive', string.format('%.0f', now + lease), later[i])
  end
end
return { now, lives, 1, call('HGETALL', P .. 'beats') }
