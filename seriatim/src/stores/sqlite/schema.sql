-- Version 1; `migrate.rs` has what came later. Times are in microseconds since 1970; keys are compared byte by byte.

CREATE TABLE meta (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  seq     INTEGER NOT NULL,            -- the last number given to a job or lane
  token   INTEGER NOT NULL,            -- the last fencing token
  version INTEGER NOT NULL             -- raised with every change to a queue or route
);
INSERT INTO meta VALUES (1, 0, 0, 1);

CREATE TABLE queue (
  number     INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  definition TEXT NOT NULL,            -- JSON
  declared   INTEGER NOT NULL,
  paused     INTEGER NOT NULL DEFAULT 0,
  -- Updated once per batch, so statistics cost the same for any number of jobs.
  lanes      INTEGER NOT NULL DEFAULT 0,
  jobs       INTEGER NOT NULL DEFAULT 0,
  running    INTEGER NOT NULL DEFAULT 0,
  dead       INTEGER NOT NULL DEFAULT 0,
  processed  INTEGER NOT NULL DEFAULT 0,
  failed     INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE route (                   -- 0: unbound
  number INTEGER PRIMARY KEY,
  node   TEXT,
  grp    TEXT
);

-- A lane with its first job (the slot): a lane with one job is one row in every mode. In `parallel` the lane is the
-- job, and its id is the job's number.
CREATE TABLE lane (
  id         INTEGER PRIMARY KEY,
  q          INTEGER NOT NULL,
  key        TEXT,
  st         INTEGER NOT NULL,         -- 0 ready, 1 scheduled, 2 claimed, 3 held or paused
  class      INTEGER NOT NULL,         -- route * 2 + (a crash behind it ? 1 : 0)
  prio       INTEGER NOT NULL,
  due        INTEGER NOT NULL,
  wake       INTEGER,                  -- when its position must be computed again
  tok        INTEGER NOT NULL DEFAULT 0,
  open       INTEGER NOT NULL DEFAULT 0, -- jobs with a lower generation are closed: owned by the claim
  n          INTEGER NOT NULL DEFAULT 0, -- rows in item
  flags      INTEGER NOT NULL DEFAULT 0, -- 1 held, 2 paused, 4 some job has aliases, 8 some job is flagged,
                                       -- 16 some payload is in body, 32 there is progress,
                                       -- 64 the claim may own jobs in item
  retry      INTEGER NOT NULL DEFAULT -1, -- these three: the lane's in `accumulate`, else the slot's
  crashes    INTEGER NOT NULL DEFAULT 0,
  error      TEXT,
  next_due   INTEGER,
  route      INTEGER NOT NULL DEFAULT 0,
  claimed_at INTEGER,
  beat_at    INTEGER,
  progress   TEXT,
  -- the slot
  seq        INTEGER,
  gen        INTEGER,
  created    INTEGER,
  score      REAL,
  jprio      INTEGER,
  run_at     INTEGER,
  attempts   INTEGER,
  started    INTEGER,
  flagged    INTEGER,
  expires    INTEGER,
  jroute     INTEGER,
  task       TEXT,
  digest     BLOB,
  opts       TEXT,
  aliases    TEXT,
  payload    BLOB                      -- null if it is in body
);
CREATE UNIQUE INDEX lane_key ON lane (q, key) WHERE key IS NOT NULL;
CREATE INDEX lane_ready ON lane (q, class, prio, due) WHERE st = 0;
CREATE INDEX lane_wake ON lane (q, wake) WHERE wake IS NOT NULL;
CREATE INDEX lane_slot ON lane (seq) WHERE seq <> id;
CREATE INDEX lane_expires ON lane (expires) WHERE expires IS NOT NULL;
-- Running lanes with a job flagged for cancellation.
CREATE INDEX lane_flagged ON lane (id) WHERE flags & 8 = 8;
CREATE INDEX lane_failed ON lane (q, retry) WHERE retry >= 0;

-- The jobs of a lane other than the slot's.
CREATE TABLE item (
  seq      INTEGER PRIMARY KEY,
  lane     INTEGER NOT NULL,
  gen      INTEGER NOT NULL,           -- closed if below the lane's `open`
  ord      BLOB NOT NULL,              -- sort key or digest of an open job
  created  INTEGER NOT NULL,
  score    REAL NOT NULL,
  jprio    INTEGER NOT NULL,
  run_at   INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  started  INTEGER,
  flagged  INTEGER NOT NULL,
  expires  INTEGER,
  jroute   INTEGER NOT NULL,
  retry    INTEGER NOT NULL,
  crashes  INTEGER NOT NULL,
  error    TEXT,
  task     TEXT,
  digest   BLOB,
  opts     TEXT,
  aliases  TEXT,
  payload  BLOB                        -- null if it is in body
);
CREATE UNIQUE INDEX item_order ON item (lane, gen, ord);
CREATE INDEX item_expires ON item (expires) WHERE expires IS NOT NULL;

-- Payloads too large to be rewritten with every change of their lane.
CREATE TABLE body (seq INTEGER PRIMARY KEY, payload BLOB NOT NULL);

-- One row per claim call, not per lane: `left` counts lanes that are not settled yet.
CREATE TABLE claim (
  tok   INTEGER PRIMARY KEY,
  node  TEXT NOT NULL,
  q     INTEGER NOT NULL,
  ttl   INTEGER NOT NULL,
  until INTEGER,                       -- end of an own lease
  lanes BLOB NOT NULL,                 -- their ids, 8 bytes each, little-endian
  left  INTEGER NOT NULL
);

-- Jobs that have ended and are still stored.
CREATE TABLE ended (
  seq      INTEGER PRIMARY KEY,
  q        INTEGER NOT NULL,
  key      TEXT,
  dead     INTEGER NOT NULL,           -- 1: in the morgue
  state    TEXT NOT NULL,              -- succeeded, canceled, failed
  at       INTEGER NOT NULL,
  until    INTEGER,                    -- when it may be deleted; null for dead ones
  created  INTEGER NOT NULL,
  score    REAL NOT NULL,
  jprio    INTEGER NOT NULL,
  run_at   INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  started  INTEGER,
  flagged  INTEGER NOT NULL,
  expires  INTEGER,
  jroute   INTEGER NOT NULL,
  retry    INTEGER NOT NULL,
  crashes  INTEGER NOT NULL,
  error    TEXT,
  task     TEXT,
  digest   BLOB,
  opts     TEXT,
  aliases  TEXT,
  payload  BLOB                        -- null if it is in body
);
CREATE INDEX ended_until ON ended (until) WHERE until IS NOT NULL;
CREATE INDEX ended_at ON ended (q, dead, at, seq);
CREATE INDEX ended_key ON ended (q, key, seq) WHERE dead = 1;

CREATE TABLE alias (seq INTEGER PRIMARY KEY, created INTEGER NOT NULL, target INTEGER NOT NULL);
CREATE INDEX alias_target ON alias (target);

CREATE TABLE idempotency (
  q     INTEGER NOT NULL,
  key   TEXT NOT NULL,                 -- '' without a key: no key is empty
  name  TEXT NOT NULL,
  job   BLOB NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (q, key, name)
) WITHOUT ROWID;
CREATE INDEX idempotency_until ON idempotency (until);

CREATE TABLE node (
  id      TEXT PRIMARY KEY,
  info    TEXT NOT NULL,
  lease   INTEGER NOT NULL,
  beat_at INTEGER NOT NULL,
  dead_at INTEGER,
  command TEXT
);

CREATE TABLE leader (role TEXT PRIMARY KEY, node TEXT NOT NULL, until INTEGER NOT NULL);
