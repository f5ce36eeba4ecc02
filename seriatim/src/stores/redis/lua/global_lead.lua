-- Makes a node the leader of a role. ARGV: now, role, node, ttl. Answers 1 if it is the leader now.
--
-- Reads and writes leaders.
local known = call('HGET', P .. 'leaders', ARGV[2])
if known then
  local leader, until_ = cmsgpack.unpack(known)
  if leader ~= ARGV[3] and until_ > now then return 0 end
end
call('HSET', P .. 'leaders', ARGV[2], cmsgpack.pack(ARGV[3], now + tonumber(ARGV[4])))
return 1
