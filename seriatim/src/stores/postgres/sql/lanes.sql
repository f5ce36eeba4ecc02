-- A page of lanes after ($4, $5), the sort value and number of the last row seen, up to the sort value $8. Looks at the
-- first $10 of them, among the first $7 that list_lanes finds. Answers the first $6 that fit ($9, $11 to $16), and the last two looked at: their `nth` tells whether there
-- was a next one. Stages: 0 ready, 1 scheduled, 2 retrying, 3 running, 4 held, 5 paused, 6 crashed. `lane_pages.rs` replaces
-- the words in capitals: sort column, its type, a filter, and the order's number. With $17 it counts no jobs. See listing.sql.
SELECT w.*,
  CASE WHEN w.payload IS NOT NULL THEN 1 WHEN $17::boolean THEN 0 ELSE
    (SELECT count(*) FROM seriatim.item i WHERE i.lane = w.number) END AS jobs,
  CASE WHEN w.mode = 1 AND w.payload IS NULL AND NOT $17 THEN (SELECT min(i.priority) FROM seriatim.item i
    WHERE i.lane = w.number) ELSE w.priority END AS urgency,
  greatest(w.until, (SELECT e.until FROM seriatim.extension e WHERE e.lane = w.number AND e.token = w.token)) AS own_until,
  (SELECT n.beat_at FROM seriatim.node n WHERE n.id = w.holder) AS node_beat,
  CASE WHEN w.windowed AND NOT w.claimed THEN (SELECT coalesce(n.next_due, CASE WHEN n.payload IS NOT NULL
      THEN seriatim.packed_until(n.number, n.queue, n.due, n.created_at) END)
    FROM seriatim.lane n WHERE n.number = w.number AND n.wake IS NOT NULL) END AS collects_until,
  coalesce(o.seq, w.number) AS only_seq, coalesce(o.created_at, w.created_at) AS only_created_at,
  coalesce(o.task, w.task) AS only_task, coalesce(o.options, w.options) AS only_options
FROM (
  SELECT f.*, count(*) FILTER (WHERE f.fits) OVER (ORDER BY f.nth) AS shown
  FROM (
    SELECT l.*, q.mode, q.quiet IS NOT NULL AS windowed, PLACE::text AS place, row_number() OVER (ORDER BY PLACE, l.number) AS nth,
      coalesce(($11::text IS NULL OR starts_with(l.key, $11))
      AND (cardinality($12::smallint[]) = 0 OR l.crashes > 0 AND 6 = ANY ($12)
        OR CASE WHEN l.claimed THEN 3 WHEN l.paused THEN 5 WHEN l.held THEN 4 WHEN l.retry_count >= 0 THEN 2
             WHEN l.due > coalesce($13::bigint, seriatim.clock()) THEN 1 ELSE 0 END = ANY ($12))
      AND ($14::bigint IS NULL OR l.due >= $14) AND ($15::bigint IS NULL OR l.due <= $15)
      AND ($16::bigint IS NULL OR l.retry_count >= $16)
      AND ($9::text IS NULL OR l.claimed AND l.holder = $9), false) AS fits
    FROM seriatim.list_lanes($1, PICK, $3, $2, $9, $4, $5, $8, $7) l JOIN seriatim.queue q ON q.number = l.queue
    WHERE l.queue = $1 AND ONLY AND ($8::text IS NULL OR PLACE <= $8::text::TYPE)
      AND ($5::bigint IS NULL OR (PLACE, l.number) > ($4::text::TYPE, $5))
    ORDER BY PLACE, l.number LIMIT $10
  ) f
) w LEFT JOIN LATERAL (SELECT * FROM seriatim.item i WHERE i.lane = w.number AND w.payload IS NULL
  ORDER BY i.lane, i.score, i.seq LIMIT 1) o ON true
WHERE w.fits AND w.shown <= $6 OR w.nth >= $10 - 1
ORDER BY w.nth
