-- Claims the first lanes of a class with all their waiting jobs: generations below `open` are closed.
UPDATE lane SET st = 2, wake = NULL, tok = ?1, open = ?1, claimed_at = ?2, beat_at = ?2,
  flags = flags | iif(n > 0, 64, 0)
WHERE id IN (SELECT id FROM lane INDEXED BY lane_ready
             WHERE q = ?3 AND st = 0 AND class = ?4 ORDER BY prio, due, id LIMIT ?5)
