-- Ending turns. Fates: 0 done, 1 bury, 2 cancel, 3 expire, 4 drop, 5 keep.

-- A settlement whose token is current, with what its lane and queue say.
CREATE TYPE seriatim.ending AS (
  place int, lane bigint, mode smallint, merge smallint, retain bigint, claimed_at bigint,
  rest smallint, owner bigint, due_kind smallint, due_in bigint, retry_count int, crashes int,
  error text, counted boolean, hold boolean
);

-- What becomes of one closed job.
CREATE TYPE seriatim.fated AS (
  place int, lane bigint, seq bigint, score float8, created_at bigint, fate smallint, why text,
  cancelled boolean
);

CREATE FUNCTION seriatim.due_after(_was bigint, _now bigint, _kind smallint, _in bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE _kind WHEN 0 THEN _was WHEN 1 THEN _now ELSE seriatim.later(_now, _in) END
$$;

-- A flagged job ends cancelled, whatever the outcome, unless it is done.
CREATE FUNCTION seriatim.fates_of(_endings seriatim.ending[], _x_place int[], _x_seq bigint[],
  _x_fate smallint[]) RETURNS seriatim.fated[] LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(array_agg(ROW(f.place, f.lane, f.seq, f.score, f.created_at,
      CASE WHEN f.cancelled THEN 2 ELSE f.fate END,
      CASE WHEN f.cancelled THEN 'canceled' WHEN f.fate = 3 THEN 'expired'
        WHEN f.fate IN (1, 2) THEN f.error END,
      f.cancelled)::seriatim.fated), '{}')
  FROM (
    SELECT e.place, e.error, i.lane, i.seq, i.score, i.created_at,
      coalesce(x.fate, e.rest) AS fate, i.flagged AND coalesce(x.fate, e.rest) <> 0 AS cancelled
    FROM unnest(_endings) e
    JOIN seriatim.item i ON i.lane = e.lane AND i.closed
    LEFT JOIN unnest(_x_place, _x_seq, _x_fate) x (place, seq, fate)
      ON x.place = e.place AND x.seq = i.seq
  ) f
$$;

-- Records what has ended, and removes it from among the living. What ends was tried.
CREATE FUNCTION seriatim.end_jobs(_endings seriatim.ending[], _fates seriatim.fated[], _now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.ended
    SELECT i.seq, i.queue, l.key, CASE f.fate WHEN 0 THEN 2 WHEN 1 THEN 3 ELSE 4 END, _now,
      CASE WHEN f.fate <> 1 THEN seriatim.later(_now, e.retain) END,
      i.digest, i.task, i.score, i.priority, i.run_at, i.created_at,
      coalesce(i.started_at, e.claimed_at), i.attempts + 1, i.retry_count, i.crashes,
      coalesce(f.why, i.error), i.options, i.lease_ttl, i.expires_at, i.route,
      i.flagged AND f.fate <> 1, i.payload
    FROM unnest(_fates) f
    JOIN unnest(_endings) e ON e.place = f.place
    JOIN seriatim.item i ON i.seq = f.seq
    JOIN seriatim.lane l ON l.number = i.lane
    WHERE f.fate = 1 OR f.fate IN (0, 2, 3) AND e.retain > 0;
  DELETE FROM seriatim.alias a
  USING unnest(_fates) f JOIN unnest(_endings) e ON e.place = f.place
  WHERE a.of_seq = f.seq AND (f.fate = 4 OR f.fate IN (0, 2, 3) AND e.retain = 0);
  DELETE FROM seriatim.item i USING unnest(_fates) f WHERE i.seq = f.seq AND f.fate <> 5;
END $$;

-- Opens what is kept. Where an equal job arrived meanwhile the two become one first: at most one
-- of them may be open.
CREATE FUNCTION seriatim.keep_jobs(_endings seriatim.ending[], _fates seriatim.fated[], _now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.item i
  SET attempts = i.attempts + CASE WHEN e.counted THEN 1 ELSE 0 END,
    started_at = coalesce(i.started_at, e.claimed_at)
  FROM unnest(_fates) f JOIN unnest(_endings) e ON e.place = f.place
  WHERE i.seq = f.seq AND f.fate = 5;
  UPDATE seriatim.item i
  SET retry_count = e.retry_count, crashes = e.crashes, error = e.error,
    run_at = seriatim.due_after(i.run_at, _now, e.due_kind, e.due_in)
  FROM unnest(_fates) f JOIN unnest(_endings) e ON e.place = f.place
  WHERE i.seq = f.seq AND f.fate = 5 AND e.mode <> 1 AND e.owner = i.seq;
  PERFORM seriatim.unite(k.seq, o.seq, e.merge)
  FROM unnest(_fates) f
  JOIN unnest(_endings) e ON e.place = f.place
  JOIN seriatim.item k ON k.seq = f.seq AND k.merging
  JOIN seriatim.item o ON o.lane = k.lane AND o.digest = k.digest AND o.merging AND NOT o.closed
  WHERE f.fate = 5;
  UPDATE seriatim.item i SET closed = false FROM unnest(_fates) f WHERE i.seq = f.seq AND f.fate = 5;
END $$;

CREATE FUNCTION seriatim.free_lanes(_endings seriatim.ending[], _fates seriatim.fated[], _now bigint)
RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE seriatim.lane l
  SET claimed = false, holder = NULL, own_lease = NULL, ttl = NULL, until = NULL, claimed_at = NULL,
    beat_at = NULL, progress = NULL, next_due = NULL,
    held = l.held OR e.hold AND e.kept AND (e.owner IS NULL OR e.owner_kept),
    due = CASE WHEN e.mode <> 1 THEN l.due WHEN NOT e.kept THEN coalesce(l.next_due, l.due)
      ELSE seriatim.due_after(l.due, _now, e.due_kind, e.due_in) END,
    retry_count = CASE WHEN e.mode = 1 AND e.kept THEN e.retry_count ELSE -1 END,
    crashes = CASE WHEN e.mode = 1 AND e.kept THEN e.crashes ELSE 0 END,
    error = CASE WHEN e.mode = 1 AND e.kept THEN e.error END
  FROM (
    SELECT s.*, f.lane IS NOT NULL AS kept, coalesce(f.owner_kept, false) AS owner_kept
    FROM unnest(_endings) s
    LEFT JOIN (
      SELECT f.lane, bool_or(f.seq = s.owner) AS owner_kept
      FROM unnest(_fates) f JOIN unnest(_endings) s ON s.place = f.place
      WHERE f.fate = 5 GROUP BY f.lane) f ON f.lane = s.lane
  ) e
  WHERE l.number = e.lane
$$;

CREATE FUNCTION seriatim.count_turns(_endings seriatim.ending[]) RETURNS void LANGUAGE sql VOLATILE AS $$
  INSERT INTO seriatim.tally AS t (queue, slot, processed, failed)
    SELECT l.queue, pg_backend_pid() % 32, count(*) FILTER (WHERE NOT e.counted AND e.rest = 0),
      count(*) FILTER (WHERE e.counted)
    FROM unnest(_endings) e JOIN seriatim.lane l ON l.number = e.lane
    GROUP BY l.queue ORDER BY l.queue
  ON CONFLICT (queue, slot) DO UPDATE
    SET processed = t.processed + excluded.processed, failed = t.failed + excluded.failed
$$;

-- The arrays hold one entry for each settlement; _x_… one for each exception, whose _x_place says
-- of which. Answers for those that were carried out; the rest were stale.
CREATE FUNCTION seriatim.settle(_now bigint, _lane bigint[], _queue int[], _token bigint[],
  _rest smallint[], _owner bigint[], _due_kind smallint[], _due_in bigint[], _retry_count int[],
  _crashes int[], _error text[], _counted boolean[], _hold boolean[], _x_place int[], _x_seq bigint[],
  _x_fate smallint[])
RETURNS TABLE (o_place int, o_seq bigint[], o_created_at bigint[]) LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _endings seriatim.ending[];
  _fates seriatim.fated[];
BEGIN
  PERFORM seriatim.lock_lanes(_lane);
  SELECT array_agg(ROW(w.place, w.lane, q.mode, q.merge, q.retain, l.claimed_at, w.rest, w.owner,
    w.due_kind, w.due_in, w.retry_count, w.crashes, w.error, w.counted, w.hold)::seriatim.ending)
  INTO _endings
  FROM (
    SELECT DISTINCT ON (lane) * FROM unnest(_lane, _queue, _token, _rest, _owner, _due_kind, _due_in,
        _retry_count, _crashes, _error, _counted, _hold)
      WITH ORDINALITY AS u (lane, queue, token, rest, owner, due_kind, due_in, retry_count, crashes,
        error, counted, hold, place)
    ORDER BY lane, place) w
  JOIN seriatim.lane l
    ON l.number = w.lane AND l.queue = w.queue AND l.token = w.token AND l.claimed
  JOIN seriatim.queue q ON q.number = l.queue;
  IF _endings IS NULL THEN
    RETURN;
  END IF;
  _fates := seriatim.fates_of(_endings, _x_place, _x_seq, _x_fate);
  PERFORM seriatim.end_jobs(_endings, _fates, _t);
  PERFORM seriatim.keep_jobs(_endings, _fates, _t);
  PERFORM seriatim.free_lanes(_endings, _fates, _t);
  -- Before place() removes the empty lanes.
  PERFORM seriatim.count_turns(_endings);
  PERFORM seriatim.place(ARRAY(SELECT lane FROM unnest(_endings)), _t);
  RETURN QUERY
    SELECT e.place, coalesce(array_agg(f.seq ORDER BY f.score, f.seq) FILTER (WHERE f.cancelled), '{}'),
      coalesce(array_agg(f.created_at ORDER BY f.score, f.seq) FILTER (WHERE f.cancelled), '{}')
    FROM unnest(_endings) e LEFT JOIN unnest(_fates) f ON f.place = e.place
    GROUP BY e.place;
END $$;
