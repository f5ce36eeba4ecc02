-- Writes a light claim into the rows of these lanes, with all their waiting jobs: generations below `open` are closed.
UPDATE lane SET st = 2, wake = NULL, tok = ?1, open = ?1, claimed_at = ?2, beat_at = ?2, next_due = NULL,
  flags = flags | iif(n > 0, 64, 0)
WHERE id IN (SELECT value FROM json_each(?3)) AND st = 0 AND tok < ?1
