-- Makes a node the leader of a role. ARGV: now, role, node, ttl, the longest time that another leader has left: what is further
-- ahead is from before the clock was set back. Answers 1 if it is the leader now.
--
-- Reads and writes leaders.
local known = call('HGET', P .. 'leaders', ARGV[2])
if known then
  local leader, until_ = cmsgpack.unpack(known)
  if leader ~= ARGV[3] and until_ > now then
    local longest = now + tonumber(ARGV[5])
    if until_ > longest then call('HSET', P .. 'leaders', ARGV[2], cmsgpack.pack(leader, longest)) end
    return 0
  end
end
call('HSET', P .. 'leaders', ARGV[2], cmsgpack.pack(ARGV[3], now + tonumber(ARGV[4])))
return 1
