-- From version 39. Functions and views change too.
ALTER TABLE seriatim.inbox ADD COLUMN max_retries int, ADD COLUMN key_group text;
