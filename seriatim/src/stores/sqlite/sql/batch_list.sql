-- Batches by age: all, and those that have not ended.
CREATE INDEX batch_opened ON batch (opened, id);
CREATE INDEX batch_open ON batch (opened, id) WHERE ended IS NULL;
