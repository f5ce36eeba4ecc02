-- The jobs of the turns of a queue, in place of all jobs: among a million that wait they would be hard to find.
(SELECT j.* FROM (SELECT t.seq FROM seriatim.turn_job t WHERE t.queue = $1 OFFSET 0) t
  CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = t.seq OFFSET 0) j)
