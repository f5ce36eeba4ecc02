-- From version 19.

-- Groups and limits. Routes and classes have room for a group.
ALTER TABLE seriatim.queue ADD COLUMN shares jsonb, ADD COLUMN grouped boolean NOT NULL DEFAULT false, ADD COLUMN counted bigint[],
  ADD COLUMN throttle bigint;
ALTER TABLE seriatim.lane ALTER COLUMN route TYPE bigint, ALTER COLUMN class TYPE bigint, ADD COLUMN grp bigint,
  ADD COLUMN joined bigint[];
ALTER TABLE seriatim.ready ALTER COLUMN class TYPE bigint;
ALTER TABLE seriatim.item ALTER COLUMN route TYPE bigint;
ALTER TABLE seriatim.ended ALTER COLUMN route TYPE bigint;
CREATE TABLE seriatim.share (
  queue int NOT NULL,
  grp bigint NOT NULL,
  running bigint NOT NULL DEFAULT 0,
  paced bigint NOT NULL DEFAULT 0,
  next bigint NOT NULL DEFAULT 0,
  given bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, grp)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE seriatim.freed (
  queue int NOT NULL,
  grp bigint NOT NULL,
  turns bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
