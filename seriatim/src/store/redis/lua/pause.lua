-- Pauses or resumes the queue, in its first shard. ARGV: 1 or 0. It is a new version, which the other
-- shards adopt: so neither a late adoption of an earlier one nor a change of shards undoes it.
if not S then return 0 end
even_when_full()
if S.paused == (ARGV[1] == '1') then return 1 end
call('HSET', K.meta, 'paused', ARGV[1], 'version', num(S.version + 1))
rings = true
commit()
return 1
