-- From version 15.

-- The queue of the job, as a key may be one of the whole store.
ALTER TABLE seriatim.idempotency ADD COLUMN of_queue int;
UPDATE seriatim.idempotency SET of_queue = queue;
ALTER TABLE seriatim.idempotency ALTER COLUMN of_queue SET NOT NULL;

-- The lowest number there is has no negative.
DROP INDEX seriatim.inbox_refused;
CREATE INDEX inbox_refused ON seriatim.inbox ((id + 0)) WHERE refused IS NOT NULL;
