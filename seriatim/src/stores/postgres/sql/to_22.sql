-- From version 21.

-- For how long a job throttles its key, in queues that do so.
ALTER TABLE seriatim.queue ADD COLUMN throttle bigint;
