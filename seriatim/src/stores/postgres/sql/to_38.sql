-- From version 37.

-- Jobs that were tried are in the way of no sweep.
DROP INDEX seriatim.item_expiry;
CREATE INDEX item_expiry ON seriatim.item (expires_at, seq) WHERE expires_at IS NOT NULL AND NOT closed AND attempts = 0;

CREATE INDEX batch_node ON seriatim.batch (node);
