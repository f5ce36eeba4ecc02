-- What groups use of their limits (decision 0043). The row with grp -1 is of the whole queue: where the round of its groups is.
CREATE TABLE share (
  q       INTEGER NOT NULL,
  grp     INTEGER NOT NULL,
  running INTEGER NOT NULL DEFAULT 0,  -- turns, of groups with a limit
  paced   INTEGER NOT NULL DEFAULT 0,  -- in ns: when the turns that started would have started at the pace of the rate
  next    INTEGER NOT NULL DEFAULT 0,  -- the group whose turn it is, and how many lanes it has given
  given   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (q, grp)
) WITHOUT ROWID;
