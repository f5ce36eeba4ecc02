-- Only a job that was never tried expires: those that were tried are in the way of no sweep.
DROP INDEX lane_expires;
CREATE INDEX lane_expires ON lane (expires) WHERE expires IS NOT NULL AND attempts = 0;
DROP INDEX item_expires;
CREATE INDEX item_expires ON item (expires) WHERE expires IS NOT NULL AND attempts = 0;
