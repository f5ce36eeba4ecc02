-- Pauses or resumes the queue in its first shard, or closes it for deletion. ARGV: whether it is paused, whether it is
-- closed (1 or 0 each), the version that the caller saw. Raises the version, which the other shards adopt: so neither
-- a late adoption of an earlier version nor a change of shards undoes it. Answers 0 if the version is another.
--
-- Reads and writes meta.
if not S or num(S.version) ~= ARGV[3] then return 0 end
even_when_full()
local closing = call('HGET', K.meta, 'closing') or '0'
if S.paused == (ARGV[1] == '1') and closing == ARGV[2] then return 1 end
call('HSET', K.meta, 'paused', ARGV[1], 'closing', ARGV[2], 'version', num(S.version + 1))
bell.rings = 'all'
commit()
return 1
