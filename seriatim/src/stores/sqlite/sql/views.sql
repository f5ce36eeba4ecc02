-- Public views, for any SQL client, with the same columns in every SQL store: docs/sql.md. Times are texts, in UTC.

-- Claims by lane, light ones too.
CREATE VIEW seriatim_claims AS
SELECT h.id, h.tok, h.node, c.at, c.until FROM held h JOIN claim c ON c.tok = h.tok;

CREATE VIEW seriatim_jobs AS
SELECT printf('%08x-%04x-7000-%04x-%012x', j.created / 65536000, j.created / 1000 & 65535, 32768 + j.q, j.seq) AS job_id,
  q.name AS queue, j.key, j.task, j.state, json_extract(j.opts, '$.node') AS node,
  json_extract(j.opts, '$.consumer_group') AS consumer_group, json_extract(j.opts, '$.producer') AS producer,
  json_extract(j.opts, '$.partition_key') AS partition_key, json_extract(j.opts, '$.idempotency_key') AS idempotency_key,
  j.jprio AS priority, j.score, j.attempts + (j.state = 'running') AS attempt,
  CASE WHEN l.id IS NOT NULL AND json_extract(q.definition, '$.mode') = 'accumulate' THEN l.retry ELSE j.retry END
    AS retry_count,
  CASE WHEN l.id IS NOT NULL AND json_extract(q.definition, '$.mode') = 'accumulate' THEN l.crashes ELSE j.crashes END
    AS crashes,
  CASE WHEN l.id IS NOT NULL AND json_extract(q.definition, '$.mode') = 'accumulate' THEN l.error
    WHEN substr(j.error, 1, 16) = 'seriatim-result:' THEN NULL ELSE j.error END AS error,
  j.flagged AS cancel_requested, strftime('%Y-%m-%d %H:%M:%f', j.created / 1e6, 'unixepoch') AS created_at,
  strftime('%Y-%m-%d %H:%M:%f', j.run_at / 1e6, 'unixepoch') AS run_at,
  strftime('%Y-%m-%d %H:%M:%f', iif(j.state = 'running', coalesce(j.started, c.at), j.started) / 1e6, 'unixepoch')
    AS started_at,
  strftime('%Y-%m-%d %H:%M:%f', j.ended / 1e6, 'unixepoch') AS finished_at,
  iif(j.state = 'running', c.node, NULL) AS claimed_by,
  strftime('%Y-%m-%d %H:%M:%f', CASE WHEN j.state <> 'running' THEN NULL WHEN c.until IS NULL THEN max(coalesce(l.beat_at, 0), c.at, coalesce(n.beat_at, 0)) ELSE l.beat_at END / 1e6, 'unixepoch')
    AS heartbeat_at,
  iif(j.state = 'running', l.progress, NULL) AS progress,
  iif(substr(j.error, 1, 16) = 'seriatim-result:', substr(j.error, 17), NULL) AS result,
  CAST(coalesce(j.payload, (SELECT b.payload FROM body b WHERE b.seq = j.seq)) AS TEXT) AS payload
FROM (
  SELECT l.seq, l.q, l.key, l.id AS lane, l.created, l.score, l.jprio, l.run_at, l.attempts, l.started, l.flagged,
    l.retry, l.crashes, l.error, l.task, l.opts, l.payload, NULL AS ended,
    iif(c.id IS NOT NULL AND (l.st = 0 OR l.gen < l.open), 'running', 'queued') AS state
  FROM lane l LEFT JOIN seriatim_claims c ON c.id = l.id WHERE l.seq IS NOT NULL
  UNION ALL
  SELECT i.seq, l.q, l.key, l.id, i.created, i.score, i.jprio, i.run_at, i.attempts, i.started, i.flagged,
    i.retry, i.crashes, i.error, i.task, i.opts, i.payload, NULL,
    iif(c.id IS NOT NULL AND iif(l.st = 0, json_extract(q.definition, '$.mode') = 'accumulate', i.gen < l.open),
      'running', 'queued')
  FROM item i JOIN lane l ON l.id = i.lane JOIN queue q ON q.number = l.q LEFT JOIN seriatim_claims c ON c.id = l.id
  UNION ALL
  SELECT e.seq, e.q, e.key, NULL, e.created, e.score, e.jprio, e.run_at, e.attempts, e.started, e.flagged,
    e.retry, e.crashes, e.error, e.task, e.opts, e.payload, e.at, iif(e.dead, 'dead', e.state)
  FROM ended e) j
JOIN queue q ON q.number = j.q
LEFT JOIN lane l ON l.id = j.lane
LEFT JOIN seriatim_claims c ON c.id = l.id
LEFT JOIN node n ON n.id = c.node;

CREATE VIEW seriatim_lanes AS
SELECT q.name AS queue, l.key,
  CASE WHEN c.id IS NOT NULL THEN 'claimed' WHEN l.st <> 3 THEN 'waiting' WHEN l.flags & 2 THEN 'paused' ELSE 'held' END AS state,
  (l.seq IS NOT NULL) + l.n AS jobs, strftime('%Y-%m-%d %H:%M:%f', l.due / 1e6, 'unixepoch') AS due, l.prio AS priority,
  l.retry AS retry_count, l.crashes, l.error, c.tok AS token, c.node,
  strftime('%Y-%m-%d %H:%M:%f', c.at / 1e6, 'unixepoch') AS claimed_at,
  strftime('%Y-%m-%d %H:%M:%f', c.until / 1e6, 'unixepoch') AS lease_until, iif(c.id IS NULL, NULL, l.progress) AS progress
FROM lane l JOIN queue q ON q.number = l.q LEFT JOIN seriatim_claims c ON c.id = l.id;

CREATE VIEW seriatim_morgue AS
SELECT job_id, queue, key, task, score, attempt, retry_count, crashes, error, created_at, finished_at AS died_at, payload
FROM seriatim_jobs WHERE state = 'dead';

CREATE VIEW seriatim_nodes AS
SELECT n.id AS node, json_extract(n.info, '$.name') AS name, json_extract(n.info, '$.host') AS host,
  json_extract(n.info, '$.pid') AS pid, json_extract(n.info, '$.version') AS version,
  -- That of a node whose process is gone is stored 200 years earlier: see `stores/gone.rs`.
  strftime('%Y-%m-%d %H:%M:%f', (n.beat_at + iif(n.beat_at < 0, 6307200000000000, 0)) / 1e6, 'unixepoch') AS heartbeat_at,
  n.dead_at IS NULL AS alive, n.command AS told,
  (SELECT count(*) FROM held h WHERE h.node = n.id) AS lanes
FROM node n;
