-- Pauses or resumes the queue in this shard. ARGV: 1 or 0.
if not S then return 0 end
even_when_full()
call('HSET', K.meta, 'paused', ARGV[1])
rings = true
commit()
return 1
