-- The common part of scripts outside all shards that go on when memory is full: see `even_when_full` in shard.lua. KEYS[1] =
-- `prefix:{g}:`, or of give_up.lua the prefix of a shard.
--
-- Writes nothing: `nothing` never exists.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing')

