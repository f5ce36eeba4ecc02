-- From version 42.
CREATE UNLOGGED TABLE seriatim.sleeper (
  queue text COLLATE "C" NOT NULL,
  place int NOT NULL,
  process int NOT NULL,
  -- When the session did, if this user may know it: another one may have its number later.
  began timestamptz,
  PRIMARY KEY (queue, place)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
