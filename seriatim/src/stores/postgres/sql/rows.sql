-- How the rows of several tables belong together: what the other scripts read.

-- Whether a claim owns a job of its lane.
CREATE FUNCTION seriatim.owns(_mode smallint, _taken bigint, _joined bigint[], _closed boolean, _seq bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT _closed OR CASE WHEN _taken IS NULL THEN false WHEN _mode = 1 THEN _seq <= _taken
    ELSE _seq = _taken OR coalesce(_seq = ANY (_joined), false) END
$$;

-- The jobs that a lane's claim owns. What waits behind them is not read.
-- The `+ 0` keeps the last search from using the index of all jobs by number.
CREATE FUNCTION seriatim.owned(_lane bigint, _mode smallint, _taken bigint, _joined bigint[]) RETURNS SETOF seriatim.item
LANGUAGE sql STABLE AS $$
  SELECT * FROM seriatim.item WHERE closed AND CASE WHEN closed THEN lane END = _lane
  UNION ALL
  SELECT * FROM seriatim.item WHERE seq = CASE WHEN _mode <> 1 THEN _taken END AND NOT closed
  UNION ALL
  SELECT * FROM seriatim.item WHERE seq = ANY (_joined) AND NOT closed
  UNION ALL
  SELECT * FROM seriatim.item
  WHERE lane = CASE WHEN _mode = 1 AND _taken IS NOT NULL THEN _lane END AND seq + 0 <= _taken AND NOT closed
$$;

-- Lanes, with light claims in the form of the others. The claims are looked through only for lanes that were ready and are
-- so no more: those that are claimed; and the lists of lanes only in claims that may have the lane.
CREATE VIEW seriatim.lane_now AS
SELECT l.number, l.queue, l.key, coalesce(b.token, l.token) AS token, l.held, l.paused, l.due, l.priority,
  l.retry_count, l.crashes, l.error, l.claimed OR b.token IS NOT NULL AS claimed,
  coalesce(l.holder, b.node) AS holder, coalesce(l.own_lease, b.own) AS own_lease, coalesce(l.ttl, b.ttl) AS ttl, coalesce(l.until, b.until) AS until,
  coalesce(l.claimed_at, b.claimed_at) AS claimed_at, coalesce(l.beat_at, b.claimed_at) AS beat_at, l.progress, l.taken, l.joined,
  l.packed_run_at, l.task, l.score, l.created_at, l.options, l.payload
FROM seriatim.lane l
LEFT JOIN LATERAL (SELECT * FROM seriatim.batch n
  WHERE n.light AND l.token = 0 AND l.class IS NOT NULL
    AND NOT EXISTS (SELECT FROM seriatim.ready r WHERE r.queue = l.queue AND r.class = l.class AND r.priority = l.priority
      AND r.at = l.at AND r.number = l.number OFFSET 0)
    AND CASE WHEN coalesce(n.queue = l.queue AND l.number BETWEEN n.low AND n.high, true)
      THEN l.number = ANY (n.lanes) END OFFSET 0) b ON true;

-- The claimed ones of them, found by their claims.
CREATE VIEW seriatim.claimed_lane AS
SELECT l.number, l.queue, l.key, b.token, l.held, l.paused, l.due, l.priority,
  l.retry_count, l.crashes, l.error, true AS claimed,
  b.node AS holder, coalesce(l.own_lease, b.own) AS own_lease, coalesce(l.ttl, b.ttl) AS ttl, coalesce(l.until, b.until) AS until,
  coalesce(l.claimed_at, b.claimed_at) AS claimed_at, coalesce(l.beat_at, b.claimed_at) AS beat_at, l.progress, l.taken, l.joined,
  l.packed_run_at, l.task, l.score, l.created_at, l.options, l.payload
FROM seriatim.batch b
CROSS JOIN LATERAL unnest(b.lanes) u (number)
CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n
  WHERE n.number = u.number AND (n.batch = b.token OR b.light AND n.token = 0) OFFSET 0) l;

-- The jobs of claimed lanes, as their holders get them, one row per job.
CREATE VIEW seriatim.turn_job AS
SELECT l.number AS lane, l.queue, q.name, l.key, b.token, l.retry_count, l.crashes, l.error,
  b.claimed_at, l.number AS seq, l.created_at, l.task, l.payload, l.score, l.priority,
  l.packed_run_at AS run_at, 1 AS attempt, l.options
FROM seriatim.batch b
CROSS JOIN LATERAL unnest(b.lanes) u (number)
JOIN seriatim.lane l ON l.number = u.number AND l.token = 0
JOIN seriatim.queue q ON q.number = l.queue
WHERE b.light
UNION ALL
SELECT l.number AS lane, l.queue, q.name, l.key, l.token, l.retry_count, l.crashes, l.error,
  l.claimed_at, l.number AS seq, l.created_at, l.task, l.payload, l.score, l.priority,
  l.packed_run_at AS run_at, 1 AS attempt, l.options
FROM seriatim.lane l
JOIN seriatim.queue q ON q.number = l.queue
WHERE l.claimed AND l.payload IS NOT NULL
UNION ALL
SELECT l.number, l.queue, q.name, l.key, l.token, l.retry_count, l.crashes, l.error,
  l.claimed_at, i.seq, i.created_at, i.task, i.payload, i.score, i.priority, i.run_at,
  i.attempts + 1, i.options
FROM seriatim.lane l
JOIN seriatim.queue q ON q.number = l.queue
CROSS JOIN LATERAL seriatim.owned(l.number, q.mode, l.taken, l.joined) i
WHERE l.claimed;

-- Jobs that have not ended, in either form of storage.
CREATE VIEW seriatim.live AS
SELECT i.seq, i.queue, l.key, i.task, seriatim.owns(q.mode, l.taken, l.joined, i.closed, i.seq) AS closed,
  i.payload, i.score, i.priority, i.run_at, i.attempts,
  CASE WHEN q.mode = 1 THEN l.retry_count ELSE i.retry_count END AS retry_count,
  CASE WHEN q.mode = 1 THEN l.crashes ELSE i.crashes END AS crashes,
  CASE WHEN q.mode = 1 THEN l.error ELSE i.error END AS error,
  i.flagged, i.created_at, i.started_at, l.claimed_at, l.own_lease, l.beat_at, l.holder,
  l.progress, i.options, q.name, l.number AS lane, l.token
FROM seriatim.item i
JOIN seriatim.lane l ON l.number = i.lane
JOIN seriatim.queue q ON q.number = i.queue
UNION ALL
SELECT l.number, l.queue, l.key, l.task, l.claimed, l.payload, l.score, l.priority, l.packed_run_at, 0,
  l.retry_count, l.crashes, l.error, false, l.created_at, NULL, l.claimed_at, l.own_lease, l.beat_at,
  l.holder, l.progress, l.options, q.name, l.number, l.token
FROM seriatim.lane_now l
JOIN seriatim.queue q ON q.number = l.queue
WHERE l.payload IS NOT NULL AND l.number > 0;

-- Jobs for views. State: 0 queued, 1 running, the others as in ended.
CREATE VIEW seriatim.job_view AS
SELECT i.seq, i.queue, i.name, i.key, i.task, CASE WHEN i.closed THEN 1 ELSE 0 END::smallint AS state,
  i.payload, i.score, i.priority, i.run_at,
  CASE WHEN i.closed THEN i.attempts + 1 ELSE i.attempts END AS attempt,
  i.retry_count, i.crashes, i.error, i.flagged, i.created_at,
  CASE WHEN i.closed THEN coalesce(i.started_at, i.claimed_at) ELSE i.started_at END AS started_at,
  NULL::bigint AS finished_at,
  CASE WHEN NOT i.closed THEN NULL WHEN i.own_lease THEN i.beat_at ELSE greatest(i.beat_at, n.beat_at)
  END AS heartbeat_at,
  CASE WHEN i.closed THEN i.progress END AS progress,
  i.options, i.lane, CASE WHEN i.closed THEN i.token END AS token, CASE WHEN i.closed THEN i.holder END AS node
FROM seriatim.live i
LEFT JOIN seriatim.node n ON n.id = i.holder
UNION ALL
SELECT e.seq, e.queue, q.name, e.key, e.task, e.state, e.payload, e.score, e.priority, e.run_at,
  e.attempts, e.retry_count, e.crashes, e.error, e.flagged, e.created_at, e.started_at, e.ended_at,
  NULL, NULL, e.options, NULL, NULL, NULL
FROM seriatim.ended e
JOIN seriatim.queue q ON q.number = e.queue;
