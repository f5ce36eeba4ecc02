-- A page of jobs after ($4, $5), the sort value and number of the last row seen, with less than $7 bytes of payload,
-- error (or result) and progress before the last row. Payloads longer than $8 are left out. $9: the time.
-- `job_pages.rs` replaces the words in capitals: sort column, its type, and source. See listing.sql.
SELECT w.seq, w.queue, w.name, w.key, w.task, w.state, w.payload_bytes,
  CASE WHEN w.shown THEN w.payload ELSE '' END AS payload,
  w.score, w.priority, w.run_at, w.attempt, w.retry_count, w.crashes, w.error, w.flagged, w.created_at, w.started_at,
  w.finished_at, w.heartbeat_at, w.progress, w.options, w.lane, w.token, w.node, w.place, w.found
FROM (
  SELECT p.*, count(*) OVER () AS found,
    coalesce(sum(CASE WHEN p.shown THEN p.payload_bytes ELSE 0 END + coalesce(octet_length(p.error), 0)
      + coalesce(octet_length(p.progress), 0)) OVER (ORDER BY p.sorted, p.seq
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
  FROM (SELECT v.*, PLACE::text AS place, PLACE AS sorted, octet_length(v.payload) AS payload_bytes,
      $8::bigint IS NULL OR octet_length(v.payload) <= $8 AS shown
    FROM FOUND v
    WHERE v.queue = $1 AND v.state = ANY ($2) AND ($3::text IS NULL OR v.key = $3)
      AND ($5::bigint IS NULL OR (PLACE, v.seq) > ($4::text::TYPE, $5))
    ORDER BY PLACE, v.seq LIMIT $6) p
) w WHERE w.bytes_before < $7 ORDER BY w.sorted, w.seq
