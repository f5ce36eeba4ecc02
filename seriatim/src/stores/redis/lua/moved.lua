-- Records that a dead job moved to another shard. ARGV: now, seq, creation millisecond, new place: shard, seq and
-- creation time there. Its id refers to that place as long as dead jobs are kept. Answers 1, or 0 if the job is no
-- longer dead.
--
-- Reads and writes the job, dead, deadkeys and done.
if not S then return 0 end
NOW = clock(ARGV[1])
even_when_full()
local j = J.job_of(tonumber(ARGV[2]))
local is_dead = j and j.state == 'dead' and math.floor(j.created / 1000) == tonumber(ARGV[3])
if is_dead then
  J.unbury(j)
  if not j.body then call('HDEL', K.bodies, num(j.seq)) end
  j.state, j.error, j.ended, j.task, j.options, j.size, j.body = 'moved', ARGV[4], NOW, '', '', 0, ''
  J.save_job(j)
  call('ZADD', K.done, num(after(tonumber(call('HGET', K.meta, 'keepdead')))), pad(j.seq))
end
commit() -- also if it was not: a lane may have been read for it
return is_dead and 1 or 0
