-- The numbers of each queue. $1: the time, or NULL for the store's clock.
WITH claimed AS (
  SELECT queue, count(*) AS claimed FROM seriatim.claimed_lane GROUP BY queue
)
SELECT q.name, q.mode, q.paused, coalesce($1, seriatim.clock()) AS now, l.lanes, coalesce(c.claimed, 0) AS claimed,
  l.retrying, seriatim.first_due(q.number) AS due,
  l.packed + (SELECT count(*) FROM seriatim.item i WHERE i.queue = q.number) AS jobs,
  (SELECT count(*) FROM seriatim.ended e WHERE e.queue = q.number AND e.state = 3) AS dead,
  t.processed, t.failed
FROM seriatim.queue q
LEFT JOIN claimed c ON c.queue = q.number
CROSS JOIN LATERAL (
  SELECT count(*) AS lanes, count(*) FILTER (WHERE payload IS NOT NULL) AS packed,
    count(*) FILTER (WHERE retry_count >= 0) AS retrying
  FROM seriatim.lane l WHERE l.queue = q.number AND l.number > 0) l
CROSS JOIN LATERAL (
  SELECT coalesce(sum(processed), 0)::bigint AS processed, coalesce(sum(failed), 0)::bigint AS failed
  FROM seriatim.tally t WHERE t.queue = q.number) t
ORDER BY q.name
