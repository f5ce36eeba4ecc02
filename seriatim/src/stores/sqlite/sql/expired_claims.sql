-- Expired claims: with an own lease by the clock, others by their node's heartbeat.
SELECT c.tok, c.q, c.lanes
FROM claim c LEFT JOIN node n ON n.id = c.node
WHERE CASE WHEN c.until IS NOT NULL THEN c.until < ?1
           ELSE n.id IS NULL OR n.beat_at + c.ttl < ?1 END
ORDER BY c.tok
