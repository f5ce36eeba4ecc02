-- Tasks that any SQL session inserts: see docs/sql.md. Nodes push the rows in the order of their numbers and delete them.
-- `refused`: why a row cannot be pushed; it stays for people to see. Times are texts as of datetime(), or Unix seconds.
CREATE TABLE seriatim_inbox (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  queue           TEXT,
  key             TEXT,
  payload         TEXT,
  task            TEXT,
  score           REAL,
  priority        INTEGER,
  run_at,
  expires_at,
  idempotency_key TEXT,
  node            TEXT,
  consumer_group  TEXT,
  partition_key   TEXT,
  producer        TEXT,
  action          TEXT NOT NULL DEFAULT 'push',
  job_id          TEXT,
  inserted_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  refused         TEXT,
  refused_at      TEXT
);
CREATE INDEX inbox_waiting ON seriatim_inbox (id) WHERE refused IS NULL;
CREATE INDEX inbox_refused ON seriatim_inbox (id) WHERE refused IS NOT NULL;
