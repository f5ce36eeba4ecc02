-- Writes a light claim into the rows of these lanes, each with the job in its slot. next_due is used in `accumulate` only.
UPDATE lane SET st = 2, wake = NULL, tok = ?1, gen = -1, claimed_at = ?2, beat_at = ?2
WHERE id IN (SELECT value FROM json_each(?3)) AND st = 0 AND tok < ?1
