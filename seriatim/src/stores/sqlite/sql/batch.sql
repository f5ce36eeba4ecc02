-- Sets of jobs, each with a job to push when the last of them has ended. Lanes with a job of a batch have the flag 128.
CREATE TABLE batch (
  id        TEXT PRIMARY KEY,
  opened    INTEGER NOT NULL,
  sealed    INTEGER NOT NULL DEFAULT 0,
  pending   INTEGER NOT NULL DEFAULT 0, -- jobs that have not ended
  done      INTEGER NOT NULL DEFAULT 0,
  dead      INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  ended     INTEGER,                    -- when it ended: from then on nothing changes
  callback  TEXT NOT NULL,              -- the job to push, without its payload
  payload   BLOB NOT NULL,
  digest    BLOB NOT NULL,              -- of that payload, as the producer knew it
  job       BLOB,                       -- the id of the pushed job
  refused   TEXT                        -- why there is none
) WITHOUT ROWID;
CREATE INDEX batch_ended ON batch (ended);
