-- The rows of lanes that are now due say "ready".
UPDATE lane SET st = 0, wake = NULL
WHERE id IN (SELECT id FROM lane INDEXED BY lane_wake
             WHERE q = ?1 AND wake IS NOT NULL AND wake <= ?2 ORDER BY wake, id LIMIT ?3)
