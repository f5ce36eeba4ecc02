-- Version 1. Times are microseconds since 1970. Text is kept as bytes, and so compared byte by byte.
-- Each statement ends with a semicolon at the end of a line; none is lost by running it twice.

CREATE TABLE IF NOT EXISTS seriatim_meta (
  id TINYINT NOT NULL PRIMARY KEY,
  version INT NOT NULL,                      -- of this schema
  definitions BIGINT NOT NULL DEFAULT 1      -- raised with every change of a queue or route
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_queue (
  number INT NOT NULL PRIMARY KEY,
  name VARBINARY(128) NOT NULL,
  definition MEDIUMBLOB NOT NULL,            -- JSON
  declared TINYINT NOT NULL,
  paused TINYINT NOT NULL DEFAULT 0,
  UNIQUE KEY queue_name (name)
) ENGINE = InnoDB;

-- Turns that ended. Several rows for a queue, so that settles do not wait for each other.
CREATE TABLE IF NOT EXISTS seriatim_tally (
  q INT NOT NULL,
  slot TINYINT NOT NULL,
  processed BIGINT NOT NULL,
  failed BIGINT NOT NULL,
  PRIMARY KEY (q, slot)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_route (
  number INT NOT NULL PRIMARY KEY,           -- 0, which is not here, is anybody
  node VARBINARY(256) NULL,
  grp VARBINARY(256) NULL
) ENGINE = InnoDB;

-- A row exists while it is being used: what counts is the number that it got. Tokens never go back.
CREATE TABLE IF NOT EXISTS seriatim_token (
  tok BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_lane (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  q INT NOT NULL,
  k VARBINARY(512) NULL,
  age BIGINT NOT NULL DEFAULT 0,             -- the number of the job that opened it
  st TINYINT NOT NULL,                       -- 0 ready, 1 scheduled, 2 claimed, 3 held or paused, 9 being opened
  class INT NOT NULL DEFAULT 0,              -- route * 2 + (a crash behind it ? 1 : 0)
  prio INT NOT NULL DEFAULT 0,
  due BIGINT NOT NULL DEFAULT 0,
  wake BIGINT NULL,                          -- when its position must be looked at again
  tok BIGINT NOT NULL DEFAULT 0,
  open BIGINT NOT NULL DEFAULT 0,            -- jobs of an older generation are closed: the claim's
  n INT NOT NULL DEFAULT 0,                  -- open jobs
  c INT NOT NULL DEFAULT 0,                  -- closed jobs
  flags TINYINT NOT NULL DEFAULT 0,          -- 1 held, 2 paused
  retry INT NOT NULL DEFAULT -1,             -- these three: the lane's in `accumulate`, else its head's
  crashes INT NOT NULL DEFAULT 0,
  error BLOB NULL,
  next_due BIGINT NULL,
  route INT NOT NULL DEFAULT 0,
  node VARBINARY(512) NULL,                  -- this and what follows: of the claim
  own TINYINT NOT NULL DEFAULT 0,            -- a lease of its own
  ttl BIGINT NOT NULL DEFAULT 0,
  until BIGINT NOT NULL DEFAULT 0,
  claimed_at BIGINT NOT NULL DEFAULT 0,
  beat_at BIGINT NOT NULL DEFAULT 0,
  progress MEDIUMBLOB NULL,
  UNIQUE KEY lane_key (q, k),
  KEY lane_ready (q, st, class, prio, due, age),
  KEY lane_due (q, st, due),
  KEY lane_wake (q, wake)
) ENGINE = InnoDB;

-- Every job, waiting, claimed or ended. One that ends changes its row, so that its payload is not copied.
CREATE TABLE IF NOT EXISTS seriatim_job (
  seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  q INT NOT NULL,
  lane BIGINT NULL,                          -- none when it has ended
  gen BIGINT NOT NULL,                       -- closed when below the lane's `open`
  later TINYINT NOT NULL,                    -- of `exclusive`: it was not due yet
  ord VARBINARY(24) NOT NULL,                -- what orders or identifies the open jobs of the lane
  created BIGINT NOT NULL,
  score DOUBLE NOT NULL,
  prio INT NOT NULL,
  run_at BIGINT NOT NULL,
  attempts INT NOT NULL,
  started BIGINT NULL,
  flagged TINYINT NOT NULL,
  expires BIGINT NULL,
  route INT NOT NULL,
  retry INT NOT NULL,
  crashes INT NOT NULL,
  error BLOB NULL,
  task VARBINARY(256) NULL,
  digest BINARY(16) NULL,
  opts MEDIUMBLOB NULL,
  aliases MEDIUMBLOB NULL,                   -- ids of equal jobs that became one with it, 16 bytes each
  k VARBINARY(512) NULL,                     -- these four: of an ended job
  state TINYINT NOT NULL DEFAULT 0,          -- 0 not ended, 1 succeeded, 2 cancelled, 3 dead
  at BIGINT NOT NULL DEFAULT 0,
  until BIGINT NULL,
  payload LONGBLOB NULL,
  KEY job_lane (lane, ord),
  KEY job_expires (expires),
  KEY job_until (until),
  KEY job_ended (q, state, at)
) ENGINE = InnoDB;

-- Claimed jobs that somebody wants cancelled.
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
  k VARBINARY(512) NOT NULL,                 -- empty without a key, which no key is
  name VARBINARY(256) NOT NULL,
  job VARBINARY(16) NOT NULL,                -- empty while the first push of it is under way
  until BIGINT NOT NULL,
  PRIMARY KEY (q, k, name),
  KEY idempotency_until (until)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_node (
  id VARBINARY(512) NOT NULL PRIMARY KEY,
  info MEDIUMBLOB NOT NULL,                  -- JSON
  beat_at BIGINT NOT NULL,
  dead_at BIGINT NULL,
  command VARBINARY(16) NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS seriatim_leader (
  role VARBINARY(256) NOT NULL PRIMARY KEY,
  node VARBINARY(512) NOT NULL,
  until BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE OR REPLACE VIEW seriatim_lanes AS
SELECT l.id AS lane, CONVERT(q.name USING utf8mb4) AS queue, CONVERT(l.k USING utf8mb4) AS lane_key,
  CASE l.st WHEN 2 THEN 'claimed' WHEN 3 THEN IF(l.flags & 2, 'paused', 'held') ELSE 'waiting' END AS state,
  FROM_UNIXTIME(l.due / 1000000) AS due, l.n + l.c AS jobs, l.retry AS retry_count, l.crashes,
  CONVERT(l.error USING utf8mb4) AS error, IF(l.st = 2, l.tok, NULL) AS token, CONVERT(l.node USING utf8mb4) AS node
FROM seriatim_lane l JOIN seriatim_queue q ON q.number = l.q;

CREATE OR REPLACE VIEW seriatim_jobs AS
SELECT j.seq, CONVERT(q.name USING utf8mb4) AS queue, CONVERT(l.k USING utf8mb4) AS job_key, CONVERT(j.task USING utf8mb4) AS task,
  IF(l.st = 2 AND j.gen < l.open, 'running', 'queued') AS state, j.score, j.prio AS priority,
  FROM_UNIXTIME(j.run_at / 1000000) AS run_at, j.attempts, j.retry AS retry_count, j.crashes,
  CONVERT(j.error USING utf8mb4) AS error, FROM_UNIXTIME(j.created / 1000000) AS created_at, j.payload
FROM seriatim_job j JOIN seriatim_lane l ON l.id = j.lane JOIN seriatim_queue q ON q.number = j.q;

CREATE OR REPLACE VIEW seriatim_morgue AS
SELECT j.seq, CONVERT(q.name USING utf8mb4) AS queue, CONVERT(j.k USING utf8mb4) AS job_key, CONVERT(j.task USING utf8mb4) AS task,
  j.score, j.attempts, CONVERT(j.error USING utf8mb4) AS error, FROM_UNIXTIME(j.created / 1000000) AS created_at,
  FROM_UNIXTIME(j.at / 1000000) AS died_at, j.payload
FROM seriatim_job j JOIN seriatim_queue q ON q.number = j.q WHERE j.state = 3;

CREATE OR REPLACE VIEW seriatim_nodes AS
SELECT CONVERT(id USING utf8mb4) AS node, CONVERT(info USING utf8mb4) AS info, FROM_UNIXTIME(beat_at / 1000000) AS heartbeat_at,
  dead_at IS NOT NULL AS dead, CONVERT(command USING utf8mb4) AS command
FROM seriatim_node;
