-- Public views, for any SQL client, with the same columns in every SQL store: docs/sql.md. The tables behind them change.

CREATE FUNCTION seriatim.time_of(_micros bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT 'epoch'::timestamptz + _micros * interval '1 microsecond'
$$;

-- The id of a job, as push returns it.
CREATE FUNCTION seriatim.job_id(_created_at bigint, _queue int, _seq bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex(greatest(_created_at, 0) / 1000), 12, '0') || '7000'
    || lpad(to_hex(32768 + _queue), 4, '0') || lpad(to_hex(_seq), 12, '0'))::uuid
$$;

-- A payload as text; if it is not UTF-8 (from a codec), the bytes.
CREATE FUNCTION seriatim.text_of(_payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN convert_from(_payload, 'UTF8');
EXCEPTION WHEN OTHERS THEN
  RETURN _payload::text;
END $$;

-- The numbers of each queue.
CREATE FUNCTION seriatim.stats(_now bigint) RETURNS TABLE (name text, mode smallint, paused boolean, now bigint, due bigint,
  lanes bigint, jobs bigint, claimed bigint, dead bigint, processed bigint, failed bigint, retrying bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  -- One group for each queue: a join would read all tallies for each, as entry.sql forbids the other plans.
  RETURN QUERY
    SELECT q.name, q.mode, q.paused, coalesce(_now, seriatim.clock()), seriatim.first_due(q.number),
      q.lanes, q.jobs, q.claimed, q.dead, q.processed, q.failed, q.retrying
    FROM (SELECT u.number, max(u.name) AS name, max(u.mode) AS mode, bool_or(u.paused) AS paused,
        coalesce(sum(u.lanes), 0)::bigint AS lanes, coalesce(sum(u.jobs), 0)::bigint AS jobs,
        coalesce(sum(u.claimed), 0)::bigint AS claimed, coalesce(sum(u.dead), 0)::bigint AS dead,
        coalesce(sum(u.processed), 0)::bigint AS processed, coalesce(sum(u.failed), 0)::bigint AS failed,
        coalesce(sum(u.retrying), 0)::bigint AS retrying
      FROM (
        SELECT x.number, x.name, x.mode, x.paused, 0::bigint AS lanes, 0::bigint AS jobs, 0::bigint AS claimed,
          0::bigint AS dead, 0::bigint AS processed, 0::bigint AS failed, 0::bigint AS retrying FROM seriatim.queue x
        UNION ALL
        SELECT y.queue, NULL, NULL, NULL, y.lanes, y.jobs, y.claimed, y.dead, y.processed, y.failed, y.retrying
        FROM seriatim.tally y) u
      GROUP BY u.number OFFSET 0) q
    WHERE q.name IS NOT NULL
    ORDER BY q.name;
END $$;

-- The jobs with these ids. In a function, since its settings forbid plans that read all jobs, and compiled ones: see
-- entry.sql.
CREATE FUNCTION seriatim.find_jobs(_seq bigint[], _queue int[], _millis bigint[]) RETURNS SETOF seriatim.job_view
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT v.* FROM seriatim.resolve(_seq, _queue, _millis) r
    CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = r.o_seq OFFSET 0) v;
END $$;

CREATE VIEW seriatim.jobs AS
SELECT seriatim.job_id(v.created_at, v.queue, v.seq) AS job_id, v.name AS queue, v.key, v.task,
  (ARRAY['queued', 'running', 'succeeded', 'dead', 'canceled'])[v.state + 1] AS state,
  o->>'node' AS node, o->>'consumer_group' AS consumer_group, o->>'producer' AS producer,
  o->>'partition_key' AS partition_key, o->>'idempotency_key' AS idempotency_key, v.priority, v.score, v.attempt,
  v.retry_count, v.crashes, CASE WHEN NOT starts_with(v.error, 'seriatim-result:') THEN v.error END AS error,
  v.flagged AS cancel_requested, seriatim.time_of(v.created_at) AS created_at,
  seriatim.time_of(v.run_at) AS run_at, seriatim.time_of(v.started_at) AS started_at,
  seriatim.time_of(v.finished_at) AS finished_at, v.node AS claimed_by,
  seriatim.time_of(v.heartbeat_at) AS heartbeat_at, v.progress,
  CASE WHEN starts_with(v.error, 'seriatim-result:') THEN substr(v.error, 17) END AS result,
  seriatim.text_of(v.payload) AS payload
FROM seriatim.job_view v
CROSS JOIN LATERAL (SELECT v.options::jsonb AS o) options;

CREATE VIEW seriatim.lanes AS
SELECT q.name AS queue, l.key,
  CASE WHEN l.claimed THEN 'claimed' WHEN l.paused THEN 'paused' WHEN l.held THEN 'held'
    ELSE 'waiting' END AS state,
  CASE WHEN l.payload IS NOT NULL THEN 1 ELSE (
    SELECT count(*) FROM seriatim.item i WHERE i.lane = l.number) END AS jobs,
  seriatim.time_of(l.due) AS due, l.priority, l.retry_count, l.crashes, l.error,
  CASE WHEN l.claimed THEN l.token END AS token, l.holder AS node,
  seriatim.time_of(l.claimed_at) AS claimed_at,
  CASE WHEN l.own_lease THEN seriatim.time_of(l.until) END AS lease_until,
  CASE WHEN l.claimed THEN l.progress END AS progress
FROM seriatim.lane_now l
JOIN seriatim.queue q ON q.number = l.queue;

CREATE VIEW seriatim.morgue AS
SELECT job_id, queue, key, task, score, attempt, retry_count, crashes, error, created_at, finished_at AS died_at, payload
FROM seriatim.jobs WHERE state = 'dead';

CREATE VIEW seriatim.nodes AS
SELECT n.id AS node, n.info::jsonb->>'name' AS name, n.info::jsonb->>'host' AS host,
  (n.info::jsonb->>'pid')::int AS pid, n.info::jsonb->>'version' AS version,
  -- That of a node whose process is gone is stored 200 years earlier: see `stores/gone.rs`.
  seriatim.time_of(n.beat_at + CASE WHEN n.beat_at < 0 THEN 6307200000000000 ELSE 0 END) AS heartbeat_at, n.dead_at IS NULL AS alive,
  (ARRAY['quiet', 'stop'])[n.command + 1] AS told,
  (SELECT count(*) FROM seriatim.claimed_lane l WHERE l.holder = n.id) AS lanes
FROM seriatim.node n;
