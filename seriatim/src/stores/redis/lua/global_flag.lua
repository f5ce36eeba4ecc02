-- Notes that a shard has flagged jobs, so that heartbeats check it. ARGV: shard, a version that is new each time: a
-- client that saw an older one may not remove the note.
--
-- Writes flags.
call('HSET', P .. 'flags', ARGV[1], ARGV[2])
return 0
