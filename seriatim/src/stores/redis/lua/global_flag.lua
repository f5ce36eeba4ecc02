-- Notes that a shard holds flagged jobs, so that heartbeats look there. ARGV: shard, a version that
-- is another each time: who saw an older one may not remove the note.
local call, P = redis.call, KEYS[1]
call('DEL', P .. 'nothing') -- see `even_when_full` in shard.lua
call('HSET', P .. 'flags', ARGV[1], ARGV[2])
return 0
