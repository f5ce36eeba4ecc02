-- Changes the queue in its first shard. ARGV: the version that the caller saw, the lowest token, then fields of meta and their values.
-- Raises the version, which the other shards adopt: so no late adoption of an earlier version undoes it. Answers 0 if the version
-- is another, else 1.
--
-- Reads and writes meta.
if not S or num(S.version) ~= ARGV[1] then return 0 end
even_when_full()
call('HSET', K.meta, 'version', num(S.version + 1), unpack(ARGV, 3))
S.token, S.counted = math.max(S.token, tonumber(ARGV[2])), true
bell.rings = 'all'
commit()
return 1
