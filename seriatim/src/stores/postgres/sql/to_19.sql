-- From version 18.

-- Windows.
ALTER TABLE seriatim.queue ADD COLUMN quiet bigint, ADD COLUMN max_wait bigint, ADD COLUMN max_jobs int,
  ADD COLUMN max_bytes bigint;
