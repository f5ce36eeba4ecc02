-- Puts scheduled lanes that are now due into `ready`; promote.sql changes their rows.
INSERT INTO ready
SELECT q, class, prio, due, id FROM lane INDEXED BY lane_wake
WHERE q = ?1 AND wake IS NOT NULL AND wake <= ?2 ORDER BY wake, id LIMIT ?3
