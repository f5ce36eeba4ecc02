SELECT l.seq AS seq, l.created AS created, l.score AS score, l.jprio AS prio, l.run_at AS run_at
FROM lane l WHERE l.q = ?1 AND l.key = ?2 AND l.seq IS NOT NULL AND SLOT
UNION ALL
SELECT i.seq, i.created, i.score, i.jprio, i.run_at
FROM lane l CROSS JOIN item i INDEXED BY item_order ON i.lane = l.id WHERE l.q = ?1 AND l.key = ?2 AND ITEM
