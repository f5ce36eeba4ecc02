-- The common part of scripts outside all shards that take the time. KEYS[1] = `prefix:{g}:`; ARGV[1]: now, or ''.
--
-- Writes nothing: `nothing` never exists.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
local now = tonumber(ARGV[1])
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
