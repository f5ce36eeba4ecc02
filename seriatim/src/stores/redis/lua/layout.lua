-- Changes the queue's number of shards, in its first shard. ARGV: the version that the caller saw, number, older
-- numbers, largest number ever, lowest token, definition. Answers 0 if the version is another, else 1.
--
-- Reads and writes meta.
if not S or num(S.version) ~= ARGV[1] then return 0 end
even_when_full()
call('HSET', K.meta, 'version', num(S.version + 1), 'shards', ARGV[2], 'older', ARGV[3], 'span',
  ARGV[4], 'floor', ARGV[5], 'definition', ARGV[6])
S.token, S.counted = math.max(S.token, tonumber(ARGV[5])), true
bell.rings = 'all'
commit()
return 1
