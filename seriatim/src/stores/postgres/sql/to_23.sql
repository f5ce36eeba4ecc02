-- From version 22.

-- Batches by age: all, and those that have not ended.
CREATE INDEX job_batch_opened ON seriatim.job_batch (opened_at, id);
CREATE INDEX job_batch_open ON seriatim.job_batch (opened_at, id) WHERE ended_at IS NULL;
