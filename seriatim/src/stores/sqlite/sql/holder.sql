-- Who holds lane ?1 under token ?2: node, progress, last heartbeat (at least ?3), the end of an own lease, else the node's
-- heartbeat as stored and how long the claim outlives it.
SELECT coalesce(c.node, ''), l.progress,
  CASE WHEN c.until IS NOT NULL OR n.beat_at IS NULL THEN ?3 ELSE max(?3, n.beat_at) END,
  c.until, n.beat_at, c.ttl
FROM lane l LEFT JOIN claim c ON c.tok = ?2 LEFT JOIN node n ON n.id = c.node WHERE l.id = ?1
