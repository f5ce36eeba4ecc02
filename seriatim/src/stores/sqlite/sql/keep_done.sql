-- Stores a done job that was alone in its lane and had not failed before. The row's crashes are the job's own, or the
-- lane's (?6). ?7: when the claim was made, if it names the lane.
INSERT OR IGNORE INTO ended (seq, q, key, dead, state, at, until, created, score, jprio, run_at, attempts, started, flagged,
                   expires, jroute, retry, crashes, error, task, digest, opts, payload)
SELECT seq, q, key, 0, 'succeeded', ?4, ?5, created, score, jprio, run_at, attempts + 1, coalesce(started, iif(st = 2, claimed_at, ?7)), flagged,
       expires, jroute, -1, iif(?6, 0, crashes), iif(?6, NULL, error), task, digest, opts, payload
FROM lane
WHERE id = ?1 AND q = ?3 AND n = 0 AND flags & 143 = 0 AND retry < 0
  AND (st = 2 AND tok = ?2 AND next_due IS NULL OR st = 0 AND tok < ?2 AND ?7 IS NOT NULL)
