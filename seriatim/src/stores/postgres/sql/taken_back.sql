-- `closing`: the queue is being deleted. `lease_max`: the longest lease, in microseconds. Default: 1 h.
ALTER TABLE seriatim.queue
  ADD COLUMN IF NOT EXISTS lease_max bigint NOT NULL DEFAULT 3600000000,
  ADD COLUMN IF NOT EXISTS closing boolean NOT NULL DEFAULT false;
