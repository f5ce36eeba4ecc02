-- Times are microseconds since 1970. Text is stored as bytes, so it is compared byte by byte. Each
-- statement ends with a semicolon at the end of a line, and can run twice without loss.

CREATE TABLE IF NOT EXISTS seriatim_meta (
  id TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,                      -- of this schema
  definitions BIGINT NOT NULL DEFAULT 1      -- raised with every change to a queue or route
) ENGINE = InnoDB;

-- The secret that the servers of a store share.
CREATE TABLE IF NOT EXISTS seriatim_secret (
  id TINYINT NOT NULL PRIMARY KEY,
  bytes VARBINARY(32) NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_queue (
  number INT NOT NULL PRIMARY KEY,
  name VARBINARY(128) NOT NULL,
  definition MEDIUMBLOB NOT NULL,            -- JSON
  declared TINYINT NOT NULL,
  paused TINYINT NOT NULL DEFAULT 0,
  UNIQUE KEY queue_name (name)
) ENGINE = InnoDB;

-- Two rows for each queue, so that nothing else of a definition has to be locked. The first (claims = 0) is locked shared by
-- what writes the queue's lanes, and exclusively by a change of its mode and by its deletion. The second (claims = 1) is
-- locked shared by claims, and exclusively by a pause: who waits for a lane that a user's transaction keeps locked holds up
-- no pause.
CREATE TABLE IF NOT EXISTS seriatim_gate (
  q INT NOT NULL,
  claims TINYINT NOT NULL,
  PRIMARY KEY (q, claims)
) ENGINE = InnoDB;

-- The figures of each queue, without the rows of the next table.
CREATE TABLE IF NOT EXISTS seriatim_tally (
  q INT NOT NULL PRIMARY KEY,
  lanes BIGINT NOT NULL,
  jobs BIGINT NOT NULL,
  claimed BIGINT NOT NULL,
  retrying BIGINT NOT NULL,
  dead BIGINT NOT NULL,
  processed BIGINT NOT NULL,
  failed BIGINT NOT NULL
) ENGINE = InnoDB;

-- What operations have added to them: each inserts its own rows, so none waits for another one.
CREATE TABLE IF NOT EXISTS seriatim_delta (
  n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  q INT NOT NULL,
  lanes INT NOT NULL,
  jobs INT NOT NULL,
  claimed INT NOT NULL,
  retrying INT NOT NULL,
  dead INT NOT NULL,
  processed BIGINT NOT NULL,
  failed BIGINT NOT NULL
) ENGINE = InnoDB;

-- Wake-ups for other processes: a row for each queue in which a transaction made a lane claimable, or sooner. Processes read
-- the rows above the last one they know, and delete them later, except for the newest.
CREATE TABLE IF NOT EXISTS seriatim_ring (
  n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  q INT NOT NULL,
  p BIGINT NOT NULL,                         -- the process, which heard of it itself; 0 in a user's transaction
  a BIGINT NOT NULL DEFAULT 0,               -- the two processes that it is for; 0: all
  b BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- Processes that wait for work of a queue. Hints, which are not believed for long.
CREATE TABLE IF NOT EXISTS seriatim_sleeper (
  q INT NOT NULL,
  p BIGINT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (q, p)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_route (
  number INT NOT NULL PRIMARY KEY,           -- 0, unbound, has no row
  node VARBINARY(256) NULL,
  grp VARBINARY(256) NULL
) ENGINE = InnoDB;

-- The pace of rates, for each queue and group that has one. The row with grp -1 is of the whole queue: it is locked by each
-- claim of a queue with limits or groups, and says where the round of the groups is.
CREATE TABLE IF NOT EXISTS seriatim_share (
  q INT NOT NULL,
  grp BIGINT NOT NULL,
  paced BIGINT NOT NULL DEFAULT 0,           -- in ns: when the turns that started would have started at the pace of the rate
  next BIGINT NOT NULL DEFAULT 0,            -- the group whose turn it is, and how many lanes it has given
  given BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (q, grp)
) ENGINE = InnoDB;

-- Queues that have groups, or once had: lanes and dead jobs of some may be left.
CREATE TABLE IF NOT EXISTS seriatim_grouped (
  q INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- Sequences: rows are deleted after insertion, only their auto-increment numbers matter. A number of the first stands
-- for sixteen job numbers; the second has tokens, which only grow.
CREATE TABLE IF NOT EXISTS seriatim_number (
  n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_token (
  tok BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE = InnoDB;

-- A lane has the number of the job that opened it, and its row contains that job.
CREATE TABLE IF NOT EXISTS seriatim_lane (
  id BIGINT NOT NULL PRIMARY KEY,
  q INT NOT NULL,
  k VARBINARY(512) NULL,
  st TINYINT NOT NULL,                       -- 0 ready, 1 scheduled, 2 claimed, 3 held or paused, 9 being opened
  class BIGINT NOT NULL DEFAULT 0,           -- route * 2 + (a crash behind it ? 1 : 0); of a claimed lane, its group alone
  prio INT NOT NULL DEFAULT 0,               -- of a claimed lane, 1: its claim may end though its node lives
  due BIGINT NOT NULL DEFAULT 0,
  wake BIGINT NULL,                          -- when its position must be computed again
  tok BIGINT NOT NULL DEFAULT 0,
  open BIGINT NOT NULL DEFAULT 0,            -- jobs with a lower generation are closed: owned by the claim
  n INT NOT NULL DEFAULT 0,                  -- open jobs
  c INT NOT NULL DEFAULT 0,                  -- closed jobs
  taken BIGINT NOT NULL DEFAULT 0,           -- a closed job in seriatim_job whose row the claim did not write, or 0
  flags TINYINT NOT NULL DEFAULT 0,          -- 1 held, 2 paused
  retry INT NOT NULL DEFAULT -1,             -- these three: the lane's in `accumulate`, else its head's
  crashes INT NOT NULL DEFAULT 0,
  error BLOB NULL,
  next_due BIGINT NULL,                      -- `accumulate`
  route BIGINT NOT NULL DEFAULT 0,           -- see `stores/route.rs`
  soonest INT NULL,                          -- the best priority of the open jobs, if known (`accumulate`)
  node BIGINT NOT NULL DEFAULT 0,            -- this and the next five: of the last claim. Never null, so that a claim changes
  own TINYINT NOT NULL DEFAULT 0,            -- no row's size. Whether the claim has an own lease
  ttl BIGINT NOT NULL DEFAULT 0,
  until BIGINT NOT NULL DEFAULT 0,
  claimed_at BIGINT NOT NULL DEFAULT 0,
  beat_at BIGINT NOT NULL DEFAULT 0,
  progress MEDIUMBLOB NULL,
  j_gen BIGINT NULL,                         -- this and what follows: the job that opened it, as in seriatim_job;
  j_created BIGINT NULL,                     -- null if that has ended
  j_score DOUBLE NULL,
  j_prio INT NULL,
  j_run_at BIGINT NULL,
  j_attempts INT NULL,
  j_started BIGINT NULL,
  j_retry INT NULL,
  j_digest BINARY(16) NULL,
  j_rest MEDIUMBLOB NULL,
  payload LONGBLOB NULL,
  UNIQUE KEY lane_key (q, k),
  KEY lane_ready (q, st, class, prio, due)   -- scheduled lanes have class 0, prio 0, and wake as due
) ENGINE = InnoDB;

-- Ready lanes that must be positioned again nevertheless: some of `exclusive`.
CREATE TABLE IF NOT EXISTS seriatim_wake (
  lane BIGINT NOT NULL PRIMARY KEY,
  q INT NOT NULL,
  wake BIGINT NOT NULL,
  KEY wake_first (q, wake)
) ENGINE = InnoDB;

-- All other waiting and claimed jobs.
CREATE TABLE IF NOT EXISTS seriatim_job (
  seq BIGINT NOT NULL PRIMARY KEY,
  q INT NOT NULL,
  lane BIGINT NOT NULL,
  gen BIGINT NOT NULL,                       -- closed if below the lane's `open`, or if the lane's `taken` says so
  ord VARBINARY(24) NOT NULL,                -- sort key or digest of an open job
  created BIGINT NOT NULL,
  score DOUBLE NOT NULL,
  prio INT NOT NULL,
  run_at BIGINT NOT NULL,
  attempts INT NOT NULL,
  started BIGINT NULL,
  retry INT NOT NULL,
  digest BINARY(16) NULL,
  rest MEDIUMBLOB NULL,                      -- JSON: fields that most jobs do not have
  payload LONGBLOB NULL,
  KEY job_lane (lane, gen, ord)               -- the open jobs of a lane have its generation
) ENGINE = InnoDB;

-- Jobs that have ended and are still stored.
CREATE TABLE IF NOT EXISTS seriatim_ended (
  seq BIGINT NOT NULL PRIMARY KEY,
  q INT NOT NULL,
  k VARBINARY(512) NULL,
  state TINYINT NOT NULL,                    -- 1 succeeded, 2 cancelled, 3 dead
  at BIGINT NOT NULL,
  until BIGINT NULL,
  created BIGINT NOT NULL,
  score DOUBLE NOT NULL,
  prio INT NOT NULL,
  run_at BIGINT NOT NULL,
  attempts INT NOT NULL,
  started BIGINT NULL,
  retry INT NOT NULL,
  digest BINARY(16) NULL,
  rest MEDIUMBLOB NULL,
  payload LONGBLOB NULL,
  KEY ended_until (until),
  KEY ended_state (q, state, at),
  KEY ended_key (q, state, k)
) ENGINE = InnoDB;

-- Expiry times of the jobs that have one.
CREATE TABLE IF NOT EXISTS seriatim_expiry (
  seq BIGINT NOT NULL PRIMARY KEY,
  at BIGINT NOT NULL,
  KEY expiry_at (at)
) ENGINE = InnoDB;

-- Claimed jobs flagged for cancellation.
CREATE TABLE IF NOT EXISTS seriatim_flag (
  seq BIGINT NOT NULL PRIMARY KEY,
  lane BIGINT NOT NULL,
  KEY flag_lane (lane)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_alias (
  id BINARY(16) NOT NULL PRIMARY KEY,
  target BINARY(16) NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_idempotency (
  q INT NOT NULL,
  k VARBINARY(512) NOT NULL,                 -- empty without a key: no key is empty
  name VARBINARY(256) NOT NULL,
  job VARBINARY(16) NOT NULL,                -- empty while its first push is running
  until BIGINT NOT NULL,
  PRIMARY KEY (q, k, name),
  KEY idempotency_until (until)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_node (
  id VARBINARY(512) NOT NULL PRIMARY KEY,
  number BIGINT NOT NULL AUTO_INCREMENT,     -- in the rows of its claims; no other node ever gets it
  info MEDIUMBLOB NOT NULL,                  -- JSON
  beat_at BIGINT NOT NULL,
  dead_at BIGINT NULL,
  command VARBINARY(16) NULL,
  UNIQUE KEY node_number (number)
) ENGINE = InnoDB;

-- Claims and rescues of a node with a ticket up to this one take nothing. Each of them locks the row shared until it
-- ends; a separate table, so that heartbeats do not wait for them.
CREATE TABLE IF NOT EXISTS seriatim_ticket (
  node VARBINARY(512) NOT NULL PRIMARY KEY,
  given_up BIGINT NOT NULL
) ENGINE = InnoDB;

-- Own leases that were extended while another transaction had the lane locked, under this token.
CREATE TABLE IF NOT EXISTS seriatim_extension (
  lane BIGINT NOT NULL PRIMARY KEY,
  tok BIGINT NOT NULL,
  until BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_leader (
  role VARBINARY(256) NOT NULL PRIMARY KEY,
  node VARBINARY(512) NOT NULL,
  until BIGINT NOT NULL
) ENGINE = InnoDB;

-- The notebook.
CREATE TABLE IF NOT EXISTS seriatim_note (
  name VARBINARY(200) NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) ENGINE = InnoDB;

-- Tasks that any SQL session inserts: see docs/sql.md. Nodes push the rows in the order of their numbers and delete them.
-- `refused`: why a row cannot be pushed; it stays for people to see.
CREATE TABLE IF NOT EXISTS seriatim_inbox (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue TEXT NULL,
  `key` TEXT NULL,
  payload LONGTEXT NULL,
  task TEXT NULL,
  score DOUBLE NULL,
  priority INT NULL,
  run_at TIMESTAMP(6) NULL,
  expires_at TIMESTAMP(6) NULL,
  idempotency_key TEXT NULL,
  node TEXT NULL,
  consumer_group TEXT NULL,
  partition_key TEXT NULL,
  producer TEXT NULL,
  action VARCHAR(64) NOT NULL DEFAULT 'push',
  job_id TEXT NULL,
  inserted_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  refused TEXT NULL,
  refused_at TIMESTAMP(6) NULL,
  waits TINYINT AS (refused IS NULL) VIRTUAL,
  max_retries INT NULL,
  key_group TEXT NULL,
  KEY inbox_waiting (waits, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;

-- Public views, for any SQL client, with the same columns in every SQL store: docs/sql.md.
CREATE OR REPLACE VIEW seriatim_jobs AS
SELECT LOWER(CONCAT(LPAD(HEX(j.created DIV 65536000), 8, '0'), '-', LPAD(HEX(j.created DIV 1000 & 65535), 4, '0'), '-7000-',
    HEX(32768 + j.q), '-', LPAD(HEX(j.seq), 12, '0'))) AS job_id,
  CONVERT(q.name USING utf8mb4) AS queue, CONVERT(j.k USING utf8mb4) AS `key`,
  JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.task')) AS task, j.state,
  JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.options.node')) AS node,
  JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.options.consumer_group')) AS consumer_group,
  JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.options.producer')) AS producer,
  JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.options.partition_key')) AS partition_key,
  JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.options.idempotency_key')) AS idempotency_key,
  j.prio AS priority, j.score, j.attempts + (j.state = 'running') AS attempt,
  IF(q.definition LIKE '%"mode":"accumulate"%' AND l.id IS NOT NULL, l.retry, j.retry) AS retry_count,
  IF(q.definition LIKE '%"mode":"accumulate"%' AND l.id IS NOT NULL, l.crashes,
    COALESCE(CAST(JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.crashes')) AS SIGNED), 0)) AS crashes,
  IF(q.definition LIKE '%"mode":"accumulate"%' AND l.id IS NOT NULL, CONVERT(l.error USING utf8mb4),
    IF(JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.error')) LIKE 'seriatim-result:%', NULL, JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.error')))) AS error,
  COALESCE(JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.flagged')) = 'true', FALSE) AS cancel_requested,
  FROM_UNIXTIME(j.created * 0.000001) AS created_at, FROM_UNIXTIME(j.run_at * 0.000001) AS run_at,
  FROM_UNIXTIME(IF(j.state = 'running', COALESCE(j.started, l.claimed_at), j.started) * 0.000001) AS started_at,
  FROM_UNIXTIME(j.at * 0.000001) AS finished_at, IF(j.state = 'running', CONVERT(n.id USING utf8mb4), NULL) AS claimed_by,
  IF(j.state = 'running', FROM_UNIXTIME(IF(l.own, l.beat_at, GREATEST(l.beat_at, COALESCE(n.beat_at, 0))) * 0.000001), NULL)
    AS heartbeat_at,
  IF(j.state = 'running', CONVERT(l.progress USING utf8mb4), NULL) AS progress,
  IF(JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.error')) LIKE 'seriatim-result:%',
    SUBSTR(JSON_UNQUOTE(JSON_EXTRACT(j.rest, '$.error')), 17), NULL) AS result, CONVERT(j.payload USING utf8mb4) AS payload
FROM (
  SELECT l.id AS seq, l.q, l.k, l.id AS lane, IF(l.st = 2 AND l.j_gen < l.open, 'running', 'queued') AS state,
    l.j_created AS created, l.j_score AS score, l.j_prio AS prio, l.j_run_at AS run_at, l.j_attempts AS attempts,
    l.j_started AS started, l.j_retry AS retry, CONVERT(l.j_rest USING utf8mb4) AS rest, l.payload, NULL AS at
  FROM seriatim_lane l WHERE l.j_gen IS NOT NULL
  UNION ALL
  SELECT j.seq, j.q, l.k, l.id, IF(l.st = 2 AND (j.gen < l.open OR j.seq = l.taken), 'running', 'queued'),
    j.created, j.score, j.prio, j.run_at, j.attempts, j.started, j.retry, CONVERT(j.rest USING utf8mb4), j.payload, NULL
  FROM seriatim_job j JOIN seriatim_lane l ON l.id = j.lane
  UNION ALL
  SELECT e.seq, e.q, e.k, NULL, ELT(e.state, 'succeeded', 'canceled', 'dead'),
    e.created, e.score, e.prio, e.run_at, e.attempts, e.started, e.retry, CONVERT(e.rest USING utf8mb4), e.payload, e.at
  FROM seriatim_ended e) j
JOIN seriatim_queue q ON q.number = j.q
LEFT JOIN seriatim_lane l ON l.id = j.lane
LEFT JOIN seriatim_node n ON n.number = l.node AND l.st = 2;

CREATE OR REPLACE VIEW seriatim_lanes AS
SELECT CONVERT(q.name USING utf8mb4) AS queue, CONVERT(l.k USING utf8mb4) AS `key`,
  CASE l.st WHEN 2 THEN 'claimed' WHEN 3 THEN IF(l.flags & 2, 'paused', 'held') ELSE 'waiting' END AS state,
  l.n + l.c AS jobs, FROM_UNIXTIME(l.due * 0.000001) AS due, IF(l.st = 2, 0, l.prio) AS priority, l.retry AS retry_count, l.crashes,
  CONVERT(l.error USING utf8mb4) AS error, IF(l.st = 2, l.tok, NULL) AS token, CONVERT(n.id USING utf8mb4) AS node,
  IF(l.st = 2, FROM_UNIXTIME(l.claimed_at * 0.000001), NULL) AS claimed_at,
  IF(l.st = 2 AND l.own, FROM_UNIXTIME(l.until * 0.000001), NULL) AS lease_until,
  IF(l.st = 2, CONVERT(l.progress USING utf8mb4), NULL) AS progress
FROM seriatim_lane l JOIN seriatim_queue q ON q.number = l.q
  LEFT JOIN seriatim_node n ON n.number = l.node AND l.st = 2
WHERE l.st <> 9;

CREATE OR REPLACE VIEW seriatim_morgue AS
SELECT job_id, queue, `key`, task, score, attempt, retry_count, crashes, error, created_at, finished_at AS died_at, payload
FROM seriatim_jobs WHERE state = 'dead';

CREATE OR REPLACE VIEW seriatim_nodes AS
SELECT CONVERT(n.id USING utf8mb4) AS node,
  JSON_UNQUOTE(JSON_EXTRACT(CONVERT(n.info USING utf8mb4), '$.name')) AS name,
  JSON_UNQUOTE(JSON_EXTRACT(CONVERT(n.info USING utf8mb4), '$.host')) AS host,
  CAST(JSON_EXTRACT(CONVERT(n.info USING utf8mb4), '$.pid') AS SIGNED) AS pid,
  JSON_UNQUOTE(JSON_EXTRACT(CONVERT(n.info USING utf8mb4), '$.version')) AS version,
  -- That of a node whose process is gone is stored 200 years earlier: see `stores/gone.rs`.
  FROM_UNIXTIME((n.beat_at + IF(n.beat_at < 0, 6307200000000000, 0)) * 0.000001) AS heartbeat_at, n.dead_at IS NULL AS alive,
  CONVERT(n.command USING utf8mb4) AS told,
  (SELECT COUNT(*) FROM seriatim_lane l WHERE l.st = 2 AND l.node = n.number) AS lanes
FROM seriatim_node n;
