-- Only the jobs in turns of a queue: a scan of all its waiting jobs would be slow.
(SELECT j.* FROM (SELECT number FROM seriatim.claimed_lane WHERE queue = $1) c
  CROSS JOIN LATERAL (SELECT t.seq FROM seriatim.turn_job t WHERE t.lane = c.number OFFSET 0) t
  CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = t.seq OFFSET 0) j)
