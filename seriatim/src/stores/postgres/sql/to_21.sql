-- From version 20.

ALTER TABLE seriatim.queue ADD COLUMN refuses boolean NOT NULL DEFAULT false;
