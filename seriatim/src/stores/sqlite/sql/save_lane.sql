-- Saves a lane with the job in its slot.
UPDATE lane SET
  st = ?2, class = ?3, prio = ?4, due = ?5, wake = ?6, tok = ?7, open = ?8, n = ?9, flags = ?10,
  retry = ?11, crashes = ?12, error = ?13, next_due = ?14, route = ?15, claimed_at = ?16,
  seq = ?17, gen = ?18, created = ?19, score = ?20, jprio = ?21, run_at = ?22, attempts = ?23,
  started = ?24, flagged = ?25, expires = ?26, jroute = ?27, task = ?28, digest = ?29, opts = ?30,
  aliases = ?31, payload = ?32
WHERE id = ?1
