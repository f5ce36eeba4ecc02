-- What the servers of the store share. No view shows it.
CREATE TABLE IF NOT EXISTS seriatim.secret (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  bytes bytea NOT NULL
);
