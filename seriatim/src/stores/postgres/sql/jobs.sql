-- A page of jobs after ($4, $5), the sort value and number of the last row seen, with less than $7 bytes of payload
-- before the last row. `views.rs` replaces the words in capitals: sort column, its type, and source.
-- See listing.sql.
SELECT * FROM (
  SELECT p.*, count(*) OVER () AS found,
    coalesce(sum(octet_length(p.payload)) OVER (ORDER BY p.sorted, p.seq
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
  FROM (SELECT v.*, PLACE::text AS place, PLACE AS sorted FROM FOUND v
    WHERE v.queue = $1 AND v.state = ANY ($2) AND ($3::text IS NULL OR v.key = $3)
      AND ($5::bigint IS NULL OR (PLACE, v.seq) > ($4::text::TYPE, $5))
    ORDER BY PLACE, v.seq LIMIT $6) p
) w WHERE w.bytes_before < $7 ORDER BY w.sorted, w.seq
