-- A page of lanes after ($4, $5), the sort value and number of the last row seen, up to the sort value $8. $7: 0
-- waiting, 1 held, 2 paused. `views.rs` replaces the words in capitals: sort column, its type, a filter, and the
-- order's number. See listing.sql.
SELECT l.*, PLACE::text AS place,
  CASE WHEN l.payload IS NOT NULL THEN 1 ELSE
    (SELECT count(*) FROM seriatim.item i WHERE i.lane = l.number) END AS jobs,
  CASE WHEN q.mode = 1 AND l.payload IS NULL THEN (SELECT min(i.priority) FROM seriatim.item i
    WHERE i.lane = l.number) ELSE l.priority END AS urgency
FROM seriatim.list_lanes($1, PICK, $2, $3, $7, $9, $4, $5, $8, $6) l JOIN seriatim.queue q ON q.number = l.queue
WHERE l.queue = $1 AND ($2::text IS NULL OR l.key = $2) AND (NOT $3 OR l.claimed)
  AND ($7::smallint IS NULL
    OR NOT l.claimed AND CASE WHEN l.paused THEN 2 WHEN l.held THEN 1 ELSE 0 END = $7)
  AND ($8::text IS NULL OR PLACE <= $8::text::TYPE)
  AND ($9::text IS NULL OR l.claimed AND l.holder = $9) AND ONLY
  AND ($5::bigint IS NULL OR (PLACE, l.number) > ($4::text::TYPE, $5))
ORDER BY PLACE, l.number LIMIT $6
