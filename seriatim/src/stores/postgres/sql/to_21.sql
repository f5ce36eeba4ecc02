-- From version 20.

ALTER TABLE seriatim.queue ADD COLUMN refuses boolean NOT NULL DEFAULT false;

-- Batches of jobs.
CREATE TABLE seriatim.job_batch (
  id text COLLATE "C" PRIMARY KEY,
  opened_at bigint NOT NULL,
  sealed boolean NOT NULL DEFAULT false,
  pending bigint NOT NULL DEFAULT 0,
  done bigint NOT NULL DEFAULT 0,
  dead bigint NOT NULL DEFAULT 0,
  cancelled bigint NOT NULL DEFAULT 0,
  ended_at bigint,
  callback json NOT NULL,
  payload bytea NOT NULL,
  digest bytea NOT NULL,
  job_queue int,
  job_seq bigint,
  job_created_at bigint,
  refused text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_batch_ended ON seriatim.job_batch (ended_at) WHERE ended_at IS NOT NULL;
