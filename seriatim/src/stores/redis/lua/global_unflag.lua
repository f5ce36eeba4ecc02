-- Removes the note that a shard has flagged jobs, unless one was flagged since the caller's check. ARGV: shard,
-- version.
--
-- Reads flags; removes from it.
if call('HGET', P .. 'flags', ARGV[1]) == ARGV[2] then call('HDEL', P .. 'flags', ARGV[1]) end
return 0
