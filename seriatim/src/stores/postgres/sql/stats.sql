-- The numbers of each queue. $1: the time, or NULL for the store's clock.
WITH told AS (
  SELECT queue, sum(lanes)::bigint AS lanes, sum(jobs)::bigint AS jobs, sum(claimed)::bigint AS claimed,
    sum(dead)::bigint AS dead, sum(processed)::bigint AS processed, sum(failed)::bigint AS failed
  FROM seriatim.tally GROUP BY queue
)
SELECT q.name, q.mode, q.paused, coalesce($1, seriatim.clock()) AS now, seriatim.first_due(q.number) AS due,
  coalesce(t.lanes, 0) AS lanes, coalesce(t.jobs, 0) AS jobs, coalesce(t.claimed, 0) AS claimed,
  coalesce(t.dead, 0) AS dead, coalesce(t.processed, 0) AS processed, coalesce(t.failed, 0) AS failed,
  (SELECT count(*) FROM seriatim.lane l WHERE l.queue = q.number AND l.retry_count >= 0 AND l.number > 0) AS retrying
FROM seriatim.queue q LEFT JOIN told t ON t.queue = q.number
ORDER BY q.name
