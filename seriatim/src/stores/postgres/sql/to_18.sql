-- From version 17.

-- Lanes, with light claims in the form of the others. The claims are looked through only for lanes that were ready and are
-- so no more: those that are claimed.
CREATE OR REPLACE VIEW seriatim.lane_now AS
SELECT l.number, l.queue, l.key, coalesce(b.token, l.token) AS token, l.held, l.paused, l.due, l.priority,
  l.retry_count, l.crashes, l.error, l.claimed OR b.token IS NOT NULL AS claimed,
  coalesce(l.holder, b.node) AS holder, coalesce(l.own_lease, b.own) AS own_lease, coalesce(l.ttl, b.ttl) AS ttl, coalesce(l.until, b.until) AS until,
  coalesce(l.claimed_at, b.claimed_at) AS claimed_at, coalesce(l.beat_at, b.claimed_at) AS beat_at, l.progress, l.taken,
  l.packed_run_at, l.task, l.score, l.created_at, l.options, l.payload
FROM seriatim.lane l
LEFT JOIN LATERAL (SELECT * FROM seriatim.batch n
  WHERE n.light AND l.token = 0 AND l.class IS NOT NULL
    AND NOT EXISTS (SELECT FROM seriatim.ready r WHERE r.queue = l.queue AND r.class = l.class AND r.priority = l.priority
      AND r.at = l.at AND r.number = l.number OFFSET 0)
    AND l.number = ANY (n.lanes) OFFSET 0) b ON true;
