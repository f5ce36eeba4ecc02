-- The secret that the servers of a store share. No view shows it.
CREATE TABLE IF NOT EXISTS seriatim.secret (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  bytes bytea NOT NULL
);
