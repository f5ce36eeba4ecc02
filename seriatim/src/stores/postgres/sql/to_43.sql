-- From version 42.
CREATE UNLOGGED TABLE seriatim.sleeper (
  queue text COLLATE "C" NOT NULL,
  place int NOT NULL,
  process int NOT NULL,
  PRIMARY KEY (queue, place)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
