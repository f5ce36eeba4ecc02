-- Saves a lane with the job in its slot.
UPDATE lane SET
  st = ?2, class = ?3, prio = ?4, due = ?5, wake = ?6, tok = ?7, open = ?8, n = ?9, flags = ?10,
  retry = ?11, crashes = ?12, error = ?13, next_due = ?14, route = ?15, claimed_at = ?16, beat_at = ?17,
  seq = ?18, gen = ?19, created = ?20, score = ?21, jprio = ?22, run_at = ?23, attempts = ?24,
  started = ?25, flagged = ?26, expires = ?27, jroute = ?28, task = ?29, digest = ?30, opts = ?31,
  aliases = ?32, payload = ?33
WHERE id = ?1
