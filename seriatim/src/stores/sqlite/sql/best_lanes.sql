-- The first ready lanes of a class behind (?4, ?5, ?6), with what a claim needs of them and of the job in their slot.
SELECT l.id, l.key, r.class, r.prio, r.due, l.wake, l.open, l.n, l.retry, l.crashes, l.error,
  l.seq, l.created, l.score, l.jprio, l.run_at, l.attempts, l.task, l.opts, l.payload
FROM ready r CROSS JOIN lane l ON l.id = r.id
WHERE r.q = ?1 AND r.class = ?2 AND (r.prio, r.due, r.id) > (?4, ?5, ?6)
ORDER BY r.prio, r.due, r.id LIMIT ?3
