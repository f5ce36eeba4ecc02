-- From version 31.
ALTER TABLE seriatim.queue ADD COLUMN window_from bigint;
