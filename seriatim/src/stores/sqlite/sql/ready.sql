-- Ready lanes have a narrow table of their own, and a claim is one row: it takes its lanes out of `ready` and leaves
-- their wide rows as they are (`light.rs`).

CREATE TABLE ready (
  q     INTEGER NOT NULL,
  class INTEGER NOT NULL,
  prio  INTEGER NOT NULL,
  due   INTEGER NOT NULL,
  id    INTEGER NOT NULL,
  PRIMARY KEY (q, class, prio, due, id)
) WITHOUT ROWID;
INSERT INTO ready SELECT q, class, prio, due, id FROM lane WHERE st = 0;
DROP INDEX lane_ready;

-- When the claim was made; and its lanes, as a JSON array with a space on both sides of each id.
ALTER TABLE claim ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
UPDATE claim SET lanes =
  (SELECT '[' || coalesce(group_concat(' ' || id || ' '), '') || ']' FROM lane WHERE st = 2 AND tok = claim.tok);

-- The claimed lanes: those whose row says so, and those of light claims.
CREATE VIEW held (id, q, tok, node) AS
SELECT l.id, c.q, c.tok, c.node
FROM claim c CROSS JOIN json_each(c.lanes) j CROSS JOIN lane l ON l.id = j.value
WHERE (l.st = 2 AND l.tok = c.tok) OR (l.st = 0 AND l.tok < c.tok);

-- Every call of an earlier build that still runs fails from now on: it would push lanes that are not in `ready`.
ALTER TABLE meta RENAME COLUMN version TO definitions;
