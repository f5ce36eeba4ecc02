-- Notes that a shard has flagged jobs, so that heartbeats check it. ARGV: shard, a version that is new each time: a
-- client that saw an older one may not remove the note.
--
-- Writes flags.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
call('HSET', P .. 'flags', ARGV[1], ARGV[2])
return 0
