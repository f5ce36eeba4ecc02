-- From version 30.

-- Waits for all calls under way: each reads a queue or a lane before it changes a retry_count.
LOCK TABLE seriatim.queue, seriatim.lane, seriatim.tally IN ACCESS EXCLUSIVE MODE;
ALTER TABLE seriatim.tally ADD COLUMN retrying bigint;
INSERT INTO seriatim.tally (queue, retrying)
  SELECT queue, count(*) FROM seriatim.lane WHERE retry_count >= 0 GROUP BY queue;
