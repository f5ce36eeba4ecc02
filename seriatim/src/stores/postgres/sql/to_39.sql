-- From version 38.
ALTER TABLE seriatim.batch ADD COLUMN queue int, ADD COLUMN low bigint, ADD COLUMN high bigint;
