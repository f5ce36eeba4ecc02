-- Makes a node the leader of a role. ARGV: now, role, node, ttl. Answers 1 when it is now.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local known = call('HGET', P .. 'leaders', ARGV[2])
if known then
  local leader, until_ = cmsgpack.unpack(known)
  if leader ~= ARGV[3] and until_ > now then return 0 end
end
call('HSET', P .. 'leaders', ARGV[2], cmsgpack.pack(ARGV[3], now + tonumber(ARGV[4])))
return 1
