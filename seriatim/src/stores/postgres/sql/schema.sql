-- Tables. The schema name before a dot is replaced when this runs.
--
-- Times are microseconds since 1970, durations are microseconds. Modes: 0 parallel, 1 accumulate, 2 fifo, 3 exclusive.
-- Merges: 0 min, 1 max, 2 none.
--
-- The order of locks, which prevents deadlocks among these functions:
--   the table queue → a queue's advisory lock → that of its shares → routes → node rows → lanes: by (queue, key), then those without a
--   key by number
--   → idempotency by (queue, key, name) → all rows below a lane → batches, extensions → batches of jobs by id.
-- Texts in the order of COLLATE "C", whatever the database's is. Only the session that has locked the row of a lane may read and write its jobs.

CREATE TABLE seriatim.meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version int NOT NULL
);

-- Processes that wait for work of a queue, in an order of their own, with the sessions that listen for them: a push wakes two of
-- these. They are hints: a crash of the server empties the table.
CREATE UNLOGGED TABLE seriatim.sleeper (
  queue text COLLATE "C" NOT NULL,
  place int NOT NULL,
  process int NOT NULL,
  -- When the session did, if this user may know it: another one may have its number later.
  began timestamptz,
  PRIMARY KEY (queue, place)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- The secret that the servers of a store share. No view shows it.
CREATE TABLE seriatim.secret (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  bytes bytea NOT NULL
);

-- Numbers of jobs (in order of arrival) and of lanes; never reused.
CREATE SEQUENCE seriatim.seq;
-- Fencing tokens: see reseed().
CREATE SEQUENCE seriatim.token;
-- The server on which the tokens were raised last: see server_mark().
CREATE TABLE seriatim.seeded (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  mark text NOT NULL
);

CREATE TABLE seriatim.queue (
  number int PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  mode smallint NOT NULL,
  merge smallint NOT NULL,
  earliest boolean NOT NULL,
  take int NOT NULL,
  retain bigint NOT NULL,
  retain_dead bigint NOT NULL,
  retain_dead_max bigint NOT NULL,
  idempotency_ttl bigint NOT NULL,
  -- The longest lease.
  lease_max bigint NOT NULL,
  definition text NOT NULL,
  declared boolean NOT NULL,
  paused boolean NOT NULL DEFAULT false,
  -- It is being deleted.
  closing boolean NOT NULL DEFAULT false,
  -- Its window; without one, all four are null.
  quiet bigint,
  max_wait bigint,
  max_jobs int,
  max_bytes bigint,
  -- Its limits and groups, as claims read them: see share.sql. Null: it has none, and never had a group.
  shares jsonb,
  -- Whether its jobs may have groups.
  grouped boolean NOT NULL DEFAULT false,
  -- The groups whose running turns are counted; if empty, all. Null: none.
  counted bigint[],
  -- For how long a job throttles its key, and whether further ones are refused.
  throttle bigint,
  refuses boolean NOT NULL DEFAULT false,
  -- Packed lanes with a higher number were opened with its window. Null: all.
  window_from bigint
);

-- What the queues hold: the sums of these rows, each what one statement changed. Rows are only added, so nobody waits
-- for one; fold() replaces many by their sums. No index: all rows are read, or a few, whichever they are.
CREATE TABLE seriatim.tally (
  queue int NOT NULL,
  lanes bigint,
  -- Jobs that have not ended.
  jobs bigint,
  -- Claimed lanes.
  claimed bigint,
  -- Jobs in the morgue.
  dead bigint,
  -- Since the queue was created: jobs done, and turns failed.
  processed bigint,
  failed bigint,
  -- Lanes with retry_count >= 0.
  retrying bigint
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Where a job may be claimed. Route 0, unbound, has no row; an empty name means none.
CREATE TABLE seriatim.route (
  number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node text COLLATE "C" NOT NULL,
  consumer_group text COLLATE "C" NOT NULL,
  UNIQUE (node, consumer_group)
);

CREATE TABLE seriatim.lane (
  number bigint PRIMARY KEY,
  queue int NOT NULL,
  key text COLLATE "C",
  token bigint NOT NULL DEFAULT 0,
  held boolean NOT NULL DEFAULT false,
  paused boolean NOT NULL DEFAULT false,
  -- See `stores/route.rs`.
  route bigint NOT NULL DEFAULT 0,
  -- The lane's own in accumulate; otherwise a copy of its head's, for views.
  due bigint NOT NULL,
  -- In accumulate: of a claimed lane, when what arrived meanwhile is due, with a window at the latest. Of a lane that
  -- waits in an open window, until when pushes may move it; null in a packed one, whose row tells (see unpack()).
  next_due bigint,
  retry_count int NOT NULL DEFAULT -1,
  crashes int NOT NULL DEFAULT 0,
  error text,
  -- Its position, set by place(): if it has a class, it is ready and has a row in `ready`; to be computed again at
  -- wake. Neither while it is claimed, held or paused.
  class bigint,
  priority smallint NOT NULL DEFAULT 0,
  at bigint,
  wake bigint,
  -- Its claim, and the row of `batch` that lists it.
  claimed boolean NOT NULL DEFAULT false,
  batch bigint,
  holder text COLLATE "C",
  own_lease boolean,
  ttl bigint,
  until bigint,
  claimed_at bigint,
  beat_at bigint,
  progress text,
  -- The jobs of the claim if they are not marked: in accumulate all up to this number, otherwise this one, and those in
  -- `joined`. NULL: the jobs marked closed.
  taken bigint,
  -- Packed: the row of a lane with one untouched job is that job's row too. The job has the lane's number, and its
  -- run_at is the due time it came with. See unpack().
  packed_run_at bigint,
  digest bytea,
  task text,
  -- While it is not claimed: that of its first job, packed or not.
  score float8,
  created_at bigint,
  options text,
  lease_ttl bigint,
  payload bytea,
  -- While it is claimed: its group, if the group's running turns are counted in `share`.
  grp bigint,
  -- Short jobs of fifo that are claimed with the one in `taken`, to be handed over after it.
  joined bigint[]
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- No index has a column that a claim or the end of one changes: then these write no index (HOT updates).
CREATE UNIQUE INDEX lane_key ON seriatim.lane (queue, key) WHERE key IS NOT NULL;
CREATE INDEX lane_wake ON seriatim.lane (queue, wake, number) WHERE wake IS NOT NULL;
-- For listings. The condition restricts it to queries with `number > 0`: for a search of one lane, a plan made while
-- the table was small could scan the whole index. The indexes below have conditions for the same reason: a search of
-- one job names no queue or lane.
CREATE INDEX lane_age ON seriatim.lane (queue, number) WHERE number > 0;

CREATE INDEX lane_stopped ON seriatim.lane (queue, number) WHERE held OR paused;
CREATE INDEX lane_retrying ON seriatim.lane ((CASE WHEN retry_count >= 0 THEN queue END), (-retry_count), number)
  WHERE retry_count >= 0;

-- The ready lanes, best first. It says what the lane's row says, and is written under the lane's lock, except that a
-- claim takes `light` rows out under their own locks: see `batch`. Light: its lane has one packed job without a lease
-- of its own, and was never claimed (token 0).
CREATE TABLE seriatim.ready (
  queue int NOT NULL,
  class bigint NOT NULL,
  priority smallint NOT NULL,
  at bigint NOT NULL,
  number bigint NOT NULL,
  light boolean NOT NULL DEFAULT false,
  PRIMARY KEY (queue, class, priority, at, number)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Claims: one row for each call that claimed lanes, under its token. A light claim is only this row: it holds the lanes
-- that it names and that still have token 0, and writes no lane. The others say in the row of each lane that it is
-- claimed; this one only helps to find it. Who has to write a lane under a light claim first unfolds the claim into the
-- lane's row: see unfold(). `remaining` is how many lanes are still claimed, or more. `own`, `ttl` and `until` are those
-- of the shortest lease. `queue`, `low` and `high` of a light claim: of which queue its lanes are, and the lowest and highest
-- number of them. Null in claims that version 38 made.
CREATE TABLE seriatim.batch (
  token bigint PRIMARY KEY,
  node text COLLATE "C" NOT NULL,
  own boolean NOT NULL,
  ttl bigint NOT NULL,
  until bigint NOT NULL,
  claimed_at bigint NOT NULL,
  light boolean NOT NULL,
  remaining int NOT NULL,
  lanes bigint[] NOT NULL,
  queue int,
  low bigint,
  high bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
  toast_tuple_target = 8160);
-- Compressing numbers costs more than it saves, and a row is soon deleted.
ALTER TABLE seriatim.batch ALTER COLUMN lanes SET STORAGE EXTERNAL;
-- A node that looks for claims of its own reads no others.
CREATE INDEX batch_node ON seriatim.batch (node);

-- Extensions of own leases for lanes whose rows were locked by users' transactions: until when the claim under this token
-- stands. The next heartbeat that finds the lane free writes it into the lane's row.
CREATE TABLE seriatim.extension (
  lane bigint PRIMARY KEY,
  token bigint NOT NULL,
  until bigint NOT NULL
);

-- What groups use of their limits, with a row for each queue and group that has a limit; written under the lock of
-- share_claims(). The row with grp -1 is of the whole queue, and says where the round of its groups is.
CREATE TABLE seriatim.share (
  queue int NOT NULL,
  grp bigint NOT NULL,
  running bigint NOT NULL DEFAULT 0, -- turns that run, and those in `freed`
  paced bigint NOT NULL DEFAULT 0, -- in ns: when the turns that started would have started at the pace of the rate
  next bigint NOT NULL DEFAULT 0, -- the group whose turn it is, and how many lanes it has given
  given bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, grp)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Counted turns that have ended. Rows are only added, so no settle waits for a claim; claims take them off `share`.
CREATE TABLE seriatim.freed (
  queue int NOT NULL,
  grp bigint NOT NULL,
  turns bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Batches of jobs: see batches.sql. The end of one fixes its counts.
CREATE TABLE seriatim.job_batch (
  id text COLLATE "C" PRIMARY KEY,
  opened_at bigint NOT NULL,
  sealed boolean NOT NULL DEFAULT false,
  -- Jobs that have not ended.
  pending bigint NOT NULL DEFAULT 0,
  done bigint NOT NULL DEFAULT 0,
  dead bigint NOT NULL DEFAULT 0,
  cancelled bigint NOT NULL DEFAULT 0,
  ended_at bigint,
  -- What is pushed at its end, as push() takes it.
  callback json NOT NULL,
  payload bytea NOT NULL,
  digest bytea NOT NULL,
  -- The job that was pushed, or why none was.
  job_queue int,
  job_seq bigint,
  job_created_at bigint,
  refused text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_batch_ended ON seriatim.job_batch (ended_at) WHERE ended_at IS NOT NULL;
-- Batches by age: all, and those that have not ended.
CREATE INDEX job_batch_opened ON seriatim.job_batch (opened_at, id);
CREATE INDEX job_batch_open ON seriatim.job_batch (opened_at, id) WHERE ended_at IS NULL;

-- Jobs that have not ended: open (waiting) or closed (owned by the lane's claim).
CREATE TABLE seriatim.item (
  seq bigint PRIMARY KEY,
  queue int NOT NULL,
  lane bigint NOT NULL,
  closed boolean NOT NULL DEFAULT false,
  -- Whether equal payloads merge: then at most one of them is open.
  merging boolean NOT NULL,
  -- Whether jobs of its lane may overtake each other: only then are they indexed by urgency.
  loose boolean NOT NULL,
  digest bytea,
  task text,
  score float8 NOT NULL,
  priority smallint NOT NULL,
  run_at bigint NOT NULL,
  created_at bigint NOT NULL,
  started_at bigint,
  attempts int NOT NULL DEFAULT 0,
  retry_count int NOT NULL DEFAULT -1,
  crashes int NOT NULL DEFAULT 0,
  error text,
  options text,
  lease_ttl bigint,
  expires_at bigint,
  route bigint NOT NULL,
  flagged boolean NOT NULL DEFAULT false,
  payload bytea NOT NULL
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX item_order ON seriatim.item (lane, score, seq) WHERE lane IS NOT NULL;
CREATE INDEX item_urgency ON seriatim.item (lane, priority, run_at, seq) WHERE loose AND NOT closed;
CREATE INDEX item_later ON seriatim.item (lane, run_at, seq) WHERE loose AND NOT closed;
CREATE UNIQUE INDEX item_equal ON seriatim.item (lane, digest) WHERE merging AND NOT closed;
-- The jobs of claims, and those with another priority than 100, the default, where all jobs of a lane are taken together.
-- Expressions: a search for the jobs of a lane cannot use another index for them and pass by all that wait.
CREATE INDEX item_closed ON seriatim.item ((CASE WHEN closed THEN lane END)) WHERE closed;
CREATE INDEX item_priority ON seriatim.item ((CASE WHEN priority <> 100 THEN lane END), priority)
  WHERE priority <> 100 AND NOT loose AND NOT closed;
CREATE INDEX item_flagged ON seriatim.item (lane) WHERE flagged;
-- Only a job that was never tried expires.
CREATE INDEX item_expiry ON seriatim.item (expires_at, seq) WHERE expires_at IS NOT NULL AND NOT closed AND attempts = 0;
CREATE INDEX item_arrival ON seriatim.item (queue, seq) WHERE queue IS NOT NULL;

-- Jobs that have ended and are still stored. State: 2 succeeded, 3 failed (the morgue), 4 canceled.
CREATE TABLE seriatim.ended (
  seq bigint PRIMARY KEY,
  queue int NOT NULL,
  key text COLLATE "C",
  state smallint NOT NULL,
  ended_at bigint NOT NULL,
  until bigint,
  digest bytea,
  task text,
  score float8 NOT NULL,
  priority smallint NOT NULL,
  run_at bigint NOT NULL,
  created_at bigint NOT NULL,
  started_at bigint,
  attempts int NOT NULL,
  retry_count int NOT NULL,
  crashes int NOT NULL,
  error text,
  options text,
  lease_ttl bigint,
  expires_at bigint,
  route bigint NOT NULL,
  flagged boolean NOT NULL,
  payload bytea NOT NULL
);

CREATE INDEX ended_until ON seriatim.ended (until) WHERE until IS NOT NULL;
CREATE INDEX ended_list ON seriatim.ended (queue, state, seq) WHERE queue IS NOT NULL;
CREATE INDEX ended_age ON seriatim.ended (queue, state, (-ended_at), seq) WHERE queue IS NOT NULL;
CREATE INDEX ended_key ON seriatim.ended (queue, state, (coalesce(key, '')), seq) WHERE queue IS NOT NULL;

-- The ids of jobs that were merged into another.
CREATE TABLE seriatim.alias (
  seq bigint PRIMARY KEY,
  queue int NOT NULL,
  created_at bigint NOT NULL,
  of_seq bigint NOT NULL
);
CREATE INDEX alias_of ON seriatim.alias (of_seq);

-- An empty key means none, queue 0 the whole store. seq 0: reserved by a push that has not stored its job yet.
CREATE TABLE seriatim.idempotency (
  queue int NOT NULL,
  key text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  of_queue int NOT NULL, -- the job's
  seq bigint NOT NULL,
  created_at bigint NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (queue, key, name)
);
CREATE INDEX idempotency_until ON seriatim.idempotency (until);

-- Up to which of them the sweep has looked; from the first one again after the last.
CREATE TABLE seriatim.looked (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  until bigint NOT NULL
);

CREATE TABLE seriatim.node (
  id text COLLATE "C" PRIMARY KEY,
  info text NOT NULL,
  lease bigint NOT NULL,
  beat_at bigint NOT NULL,
  dead_at bigint,
  command smallint,
  given_up bigint NOT NULL DEFAULT 0 -- claims and rescues with a ticket up to this one take nothing
) WITH (fillfactor = 50);

CREATE TABLE seriatim.leader (
  role text COLLATE "C" PRIMARY KEY,
  node text NOT NULL,
  until bigint NOT NULL
);

-- The notebook. Names are ASCII, in the order of their bytes.
CREATE TABLE seriatim.note (
  name  text COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL
);

-- Tasks that any SQL session inserts: see docs/sql.md. Nodes push the rows in the order of their numbers and delete them.
-- `refused`: why a row cannot be pushed; it stays for people to see.
CREATE TABLE seriatim.inbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text,
  key text,
  payload text,
  task text,
  score float8,
  priority int,
  run_at timestamptz,
  expires_at timestamptz,
  idempotency_key text,
  node text,
  consumer_group text,
  partition_key text,
  producer text,
  action text NOT NULL DEFAULT 'push',
  job_id text,
  inserted_at timestamptz NOT NULL DEFAULT now(),
  refused text,
  refused_at timestamptz,
  max_retries int,
  key_group text
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
-- Expressions: no search for these rows can use the primary key and pass by the others.
CREATE INDEX inbox_waiting ON seriatim.inbox ((id + 0)) WHERE refused IS NULL;
CREATE INDEX inbox_refused ON seriatim.inbox ((id + 0)) WHERE refused IS NOT NULL;

-- Has a row while nodes sleep until a NOTIFY. Otherwise they look soon, and inserts send none: the commits of those
-- that do wait for each other on the whole server.
CREATE TABLE seriatim.inbox_asleep (one boolean PRIMARY KEY DEFAULT true CHECK (one));

-- With the rights of the owner: who inserts needs none on other tables.
CREATE FUNCTION seriatim.ring_inbox() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM seriatim.inbox_asleep) THEN
    PERFORM pg_notify(rtrim('seriatim.', '.') || '_due', '@inbox');
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER ring AFTER INSERT ON seriatim.inbox FOR EACH STATEMENT EXECUTE FUNCTION seriatim.ring_inbox();
