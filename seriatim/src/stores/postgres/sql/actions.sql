-- Actions on jobs and lanes.

-- Locks the lanes of waiting jobs. A job may have moved to another lane by the time the lock is granted, so this
-- repeats until the locked lanes are the right ones.
CREATE FUNCTION seriatim.lock_jobs(_jobs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _lanes bigint[];
  _held bigint[] := '{}';
BEGIN
  LOOP
    _lanes := ARRAY(SELECT lane FROM seriatim.item WHERE seq = ANY (_jobs)
      UNION SELECT number FROM seriatim.lane WHERE number = ANY (_jobs) AND payload IS NOT NULL);
    EXIT WHEN _lanes <@ _held;
    PERFORM seriatim.lock_rows(_lanes);
    PERFORM seriatim.unpack(_lanes);
    _held := _held || _lanes;
  END LOOP;
END $$;

-- Answers in order: 0 cancelled, 1 flagged, 2 ended. An unknown job has no row.
CREATE FUNCTION seriatim.cancel(_now bigint, _seq bigint[], _queue int[], _millis bigint[])
RETURNS TABLE (o_place bigint, o_answer smallint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _places bigint[];
  _jobs bigint[];
  _open bigint[];
  _lanes bigint[];
  _left text[];
BEGIN
  PERFORM seriatim.lock_jobs(ARRAY(SELECT o_seq FROM seriatim.resolve(_seq, _queue, _millis)));
  SELECT array_agg(r.o_place), array_agg(r.o_seq) INTO _places, _jobs
  FROM seriatim.resolve(_seq, _queue, _millis) r;
  SELECT coalesce(array_agg(seq), '{}'), array_agg(DISTINCT lane) INTO _open, _lanes
  FROM seriatim.item WHERE seq = ANY (_jobs) AND NOT closed;
  -- If a waiting job is named twice, the first one cancels it.
  RETURN QUERY
    SELECT w.place, CASE WHEN i.closed THEN 1
        WHEN i.seq IS NOT NULL AND row_number() OVER (PARTITION BY w.seq ORDER BY w.place) = 1 THEN 0
        WHEN i.seq IS NULL OR q.retain > 0 THEN 2 ELSE 3 END::smallint
    FROM unnest(_places, _jobs) w (place, seq)
    LEFT JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = w.seq OFFSET 0) i ON true
    LEFT JOIN seriatim.queue q ON q.number = i.queue;
  UPDATE seriatim.item SET flagged = true WHERE seq = ANY (_jobs) AND closed AND NOT flagged;
  _left := seriatim.batches_of(_open);
  PERFORM seriatim.cancel_open(_open, 'canceled', _t);
  PERFORM seriatim.place_left(_lanes, _t);
  PERFORM seriatim.leave_job_batches(_left, 2, _t);
END $$;

-- The dead jobs of a selection, oldest first. _which: 0 all, 1 by id, 2 by key.
CREATE FUNCTION seriatim.select_dead(_queue int, _which int, _seq bigint[], _queues int[],
  _millis bigint[], _keys text[], _rows_max int) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE _which
    WHEN 0 THEN ARRAY(SELECT e.seq FROM seriatim.ended e WHERE e.queue = _queue AND e.state = 3
      ORDER BY e.seq LIMIT _rows_max)
    WHEN 1 THEN ARRAY(SELECT DISTINCT e.seq FROM unnest(_seq, _queues, _millis) w (seq, queue, millis)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.ended x WHERE x.seq = w.seq OFFSET 0) e
      WHERE e.queue = _queue AND e.state = 3 AND w.queue = _queue AND w.millis = greatest(e.created_at, 0) / 1000
      ORDER BY e.seq LIMIT _rows_max)
    ELSE ARRAY(SELECT e.seq FROM (SELECT DISTINCT key FROM unnest(_keys) key WHERE key <> '') w
      CROSS JOIN LATERAL (SELECT x.seq FROM seriatim.ended x
        WHERE x.queue = _queue AND x.state = 3 AND coalesce(x.key, '') = w.key ORDER BY x.seq LIMIT _rows_max) e
      ORDER BY e.seq LIMIT _rows_max) END;
END $$;

CREATE FUNCTION seriatim.delete_dead(_name text, _which int, _seq bigint[], _queues int[],
  _millis bigint[], _keys text[], _rows_max int, OUT o_count bigint, OUT o_more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  _jobs bigint[] := seriatim.select_dead(seriatim.queue_number(_name), _which, _seq, _queues, _millis,
    _keys, _rows_max + 1);
BEGIN
  o_more := cardinality(_jobs) > _rows_max;
  -- Lock in order and check again: a concurrent requeue may have moved some.
  _jobs := ARRAY(SELECT seq FROM seriatim.ended WHERE seq = ANY (_jobs[:_rows_max]) AND state = 3
    ORDER BY seq FOR UPDATE);
  PERFORM seriatim.forget(_jobs);
  o_count := cardinality(_jobs);
END $$;

CREATE FUNCTION seriatim.requeue(_now bigint, _name text, _which int, _seq bigint[], _queues int[],
  _millis bigint[], _keys text[], _rows_max int, OUT o_count bigint, OUT o_more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _jobs bigint[];
  _lanes bigint[];
  _zeros smallint[];
  _priorities smallint[];
  _back text[];
BEGIN
  SELECT * INTO _q FROM seriatim.shared_queue(_name);
  _jobs := seriatim.select_dead(_q.number, _which, _seq, _queues, _millis, _keys, _rows_max + 1);
  o_more := cardinality(_jobs) > _rows_max;
  _jobs := ARRAY(SELECT seq FROM seriatim.ended WHERE seq = ANY (_jobs[:_rows_max]) AND state = 3
    ORDER BY seq FOR UPDATE);
  o_count := cardinality(_jobs);
  IF o_count = 0 THEN
    RETURN;
  END IF;
  -- Those whose batch has ended belong to none any more. Its id may be another batch's since then.
  UPDATE seriatim.ended e SET options = nullif((e.options::jsonb - 'batch')::text, '{}')
  WHERE e.seq = ANY (_jobs) AND seriatim.batch_in(e.options) IS NOT NULL AND NOT EXISTS (
    SELECT FROM seriatim.job_batch b
    WHERE b.id = seriatim.batch_in(e.options) AND b.ended_at IS NULL AND b.opened_at <= e.ended_at OFFSET 0);
  _back := (SELECT array_agg(x.batch) FROM (SELECT seriatim.batch_in(e.options) AS batch
    FROM seriatim.ended e WHERE e.seq = ANY (_jobs) OFFSET 0) x WHERE x.batch IS NOT NULL);
  SELECT seriatim.open_lanes(d.queues, d.keys, d.routes, '{}', '{}', '{}', _t) INTO _lanes
  FROM (SELECT array_agg(_q.number) AS queues, array_agg(key ORDER BY place) AS keys,
      array_agg(route ORDER BY place) AS routes
    FROM unnest(_jobs) WITH ORDINALITY w (seq, place)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.ended x WHERE x.seq = w.seq OFFSET 0) e) d;
  PERFORM seriatim.unpack(_lanes);
  _lanes := ARRAY(SELECT coalesce(w.lane, w.seq)
    FROM unnest(_lanes, _jobs) WITH ORDINALITY w (lane, seq, o) ORDER BY o);
  WITH made AS (
    -- With a token: an earlier light claim may still name its number.
    INSERT INTO seriatim.lane (number, queue, due, route, token)
      SELECT e.seq, e.queue, _t, e.route, 1 FROM seriatim.ended e
      WHERE e.seq = ANY (_jobs) AND e.key IS NULL ORDER BY e.seq
    RETURNING queue)
  INSERT INTO seriatim.tally (queue, lanes) SELECT queue, count(*) FROM made GROUP BY queue;
  PERFORM seriatim.bring_back(w.seq, w.lane, _q, _t)
  FROM unnest(_jobs, _lanes) WITH ORDINALITY w (seq, lane, place) ORDER BY w.place;
  INSERT INTO seriatim.tally (queue, jobs, dead) VALUES (_q.number, o_count, -o_count);
  _zeros := array_fill(0::smallint, ARRAY[cardinality(_jobs)]);
  -- place() computes the lowest number itself.
  _priorities := array_fill(32767::smallint, ARRAY[cardinality(_jobs)]);
  PERFORM seriatim.arrive(_lanes, array_fill(_t, ARRAY[cardinality(_jobs)]), _priorities, _zeros);
  PERFORM seriatim.count_as_untried(_lanes);
  UPDATE seriatim.lane SET due = _t, retry_count = -1, crashes = 0
  WHERE number = ANY (_lanes) AND NOT claimed;
  PERFORM seriatim.place(ARRAY(SELECT DISTINCT unnest(_lanes)), _t);
  PERFORM seriatim.leave_job_batches(_back, 4, _t);
END $$;

-- Puts one dead job back into its lane, which the caller has locked.
CREATE FUNCTION seriatim.bring_back(_job bigint, _lane bigint, _q seriatim.queue, _now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _merging boolean := _q.mode = 1 AND _q.merge <> 2;
  _equal bigint;
BEGIN
  -- Closed at first: an equal job may be open.
  INSERT INTO seriatim.item (seq, queue, lane, closed, merging, loose, digest, task, score, priority,
      run_at, created_at, started_at, attempts, options, lease_ttl, expires_at, route, payload)
    -- One that was buried untried counts as tried: what a person brings back does not expire.
    SELECT seq, queue, _lane, true, _merging, _q.mode = 3, digest, task, score, priority, _now, created_at,
      started_at, CASE WHEN expires_at IS NULL THEN attempts ELSE greatest(attempts, 1) END,
      options, lease_ttl, expires_at, route, payload
    FROM seriatim.ended WHERE seq = _job;
  DELETE FROM seriatim.ended WHERE seq = _job;
  IF _merging THEN
    SELECT o.seq INTO _equal FROM seriatim.item o JOIN seriatim.item i ON i.seq = _job
    WHERE o.lane = _lane AND o.digest = i.digest AND o.merging AND NOT o.closed;
    IF FOUND THEN
      PERFORM seriatim.unite(_job, _equal, _q.merge);
    END IF;
  END IF;
  UPDATE seriatim.item SET closed = false WHERE seq = _job;
END $$;

-- The lanes of a selection, locked. _which: 0 all, 1 by key, 2 by number, 3 with a failure.
CREATE FUNCTION seriatim.select_lanes(_q seriatim.queue, _which int, _key text, _numbers bigint[],
  _rows_max int) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  _lanes bigint[];
BEGIN
  -- Those that are named are looked up; only the others are looked for.
  IF _which = 1 THEN
    _lanes := ARRAY(SELECT number FROM seriatim.lane WHERE queue = _q.number AND key = _key);
  ELSIF _which = 2 THEN
    _lanes := ARRAY(SELECT DISTINCT l.number FROM unnest(_numbers) w (number)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
      WHERE l.number > 0 AND l.queue = _q.number ORDER BY l.number LIMIT _rows_max);
  ELSE
    _lanes := ARRAY(SELECT l.number FROM seriatim.lane l
      WHERE l.queue = _q.number AND l.number > 0 AND CASE WHEN _which = 0 THEN true
        WHEN _q.mode = 1 THEN l.retry_count >= 0 ELSE EXISTS (
          SELECT FROM seriatim.item i WHERE i.lane = l.number AND i.retry_count >= 0
            AND NOT seriatim.owns(_q.mode, l.taken, l.joined, i.closed, i.seq) OFFSET 0) END
      ORDER BY l.number LIMIT _rows_max);
  END IF;
  PERFORM seriatim.lock_rows(_lanes);
  PERFORM seriatim.unpack(_lanes);
  RETURN _lanes;
END $$;

-- Actions: 0 pause, 1 resume, 2 run now, 3 bury what failed, 5 delete what failed, 6 delete. Before version 24, 4 was the last two.
CREATE FUNCTION seriatim.act(_now bigint, _name text, _which int, _key text, _numbers bigint[], _action int,
  _rows_max int, OUT o_count bigint, OUT o_more boolean) LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _lanes bigint[];
  _failed bigint[];
  _jobs bigint[] := '{}';
  _left text[];
BEGIN
  SELECT * INTO _q FROM seriatim.shared_queue(_name);
  _lanes := seriatim.select_lanes(_q, _which, _key, _numbers, _rows_max + 1);
  o_more := cardinality(_lanes) > _rows_max;
  _lanes := ARRAY(SELECT number FROM seriatim.lane
    WHERE number = ANY (_lanes[:_rows_max]) AND (_action < 2 OR NOT claimed));
  o_count := cardinality(_lanes);
  _action := CASE WHEN _action <> 4 THEN _action WHEN _which = 3 THEN 5 ELSE 6 END;
  IF _action = 0 THEN
    UPDATE seriatim.lane SET paused = true WHERE number = ANY (_lanes);
  ELSIF _action = 1 THEN
    UPDATE seriatim.lane SET paused = false, held = false WHERE number = ANY (_lanes);
  ELSIF _action = 2 THEN
    PERFORM seriatim.run_now(_lanes, _q.mode, _t);
  ELSE
    -- In `accumulate` all that waits in a lane fails together.
    _failed := ARRAY(SELECT number FROM seriatim.lane
      WHERE number = ANY (_lanes) AND _action <> 6 AND (_q.mode <> 1 OR retry_count >= 0));
    _jobs := ARRAY(SELECT seq FROM seriatim.item WHERE lane = ANY (CASE _action WHEN 6 THEN _lanes ELSE _failed END)
      AND (_action = 6 OR _q.mode = 1 OR retry_count >= 0));
    IF _action <> 6 THEN
      o_count := (SELECT count(DISTINCT lane) FROM seriatim.item WHERE seq = ANY (_jobs));
    END IF;
    _left := seriatim.batches_of(_jobs);
    IF _action = 3 THEN
      PERFORM seriatim.bury(_jobs, _q.mode, _t);
    ELSE
      PERFORM seriatim.forget(_jobs);
    END IF;
    PERFORM seriatim.count_as_untried(_failed);
    UPDATE seriatim.lane SET held = false, retry_count = -1, crashes = 0, error = NULL,
      due = CASE WHEN _q.mode = 1 THEN _t ELSE due END
    WHERE number = ANY (_failed);
  END IF;
  PERFORM seriatim.place(_lanes, _t);
  PERFORM seriatim.leave_job_batches(_left, CASE _action WHEN 3 THEN 1 ELSE 2 END, _t);
END $$;

CREATE FUNCTION seriatim.run_now(_lanes bigint[], _mode smallint, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.lane SET held = false, due = CASE WHEN _mode = 1 THEN _now ELSE due END
  WHERE number = ANY (_lanes);
  IF _mode = 3 THEN
    UPDATE seriatim.item SET run_at = _now WHERE lane = ANY (_lanes) AND run_at > _now AND loose AND NOT closed;
  ELSIF _mode <> 1 THEN
    UPDATE seriatim.item SET run_at = _now
    WHERE seq = ANY (ARRAY(SELECT f.seq FROM unnest(_lanes) w (number)
      CROSS JOIN LATERAL (SELECT i.seq FROM seriatim.item i WHERE i.lane = w.number ORDER BY i.score, i.seq LIMIT 1) f));
  END IF;
END $$;

CREATE FUNCTION seriatim.bury(_jobs bigint[], _mode smallint, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.ended
    SELECT i.seq, i.queue, l.key, 3, _now, NULL, i.digest, i.task, i.score, i.priority, i.run_at,
      i.created_at, i.started_at, i.attempts, i.retry_count, i.crashes,
      CASE WHEN _mode = 1 THEN coalesce(l.error, i.error) ELSE i.error END,
      i.options, i.lease_ttl, i.expires_at, i.route, false, i.payload
    FROM (SELECT * FROM seriatim.item WHERE seq = ANY (_jobs) OFFSET 0) i
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = i.lane OFFSET 0) l;
  INSERT INTO seriatim.tally (queue, dead)
    SELECT queue, count(*) FROM (SELECT * FROM seriatim.item WHERE seq = ANY (_jobs) OFFSET 0) i GROUP BY queue;
  PERFORM seriatim.drop_items(_jobs);
END $$;

-- Changes one waiting job. _change: 0 due at _at, 1 bound to _node, with these options, 2 deleted. Returns whether it was waiting.
CREATE FUNCTION seriatim.amend(_now bigint, _seq bigint, _queue int, _millis bigint, _change int,
  _at bigint, _node text, _options text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _job bigint;
  _lane bigint;
  _mode smallint;
  _bound bigint;
  _route bigint;
  _left text[];
BEGIN
  IF _change = 1 THEN
    -- Routes are locked before lanes.
    _bound := (seriatim.routes_for(ARRAY[_node], ARRAY[_options::json->>'consumer_group']))[1];
  END IF;
  SELECT o_seq INTO _job FROM seriatim.resolve(ARRAY[_seq], ARRAY[_queue], ARRAY[_millis]);
  PERFORM seriatim.lock_jobs(ARRAY[_job]);
  SELECT r.o_seq, i.lane, q.mode INTO _job, _lane, _mode
  FROM seriatim.resolve(ARRAY[_seq], ARRAY[_queue], ARRAY[_millis]) r
  CROSS JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = r.o_seq AND NOT o.closed OFFSET 0) i
  JOIN seriatim.queue q ON q.number = i.queue;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF _change = 0 AND _mode = 1 THEN
    UPDATE seriatim.lane SET due = CASE WHEN claimed THEN due ELSE _at END,
      next_due = CASE WHEN claimed THEN _at ELSE next_due END
    WHERE number = _lane;
  ELSIF _change = 0 THEN
    UPDATE seriatim.item SET run_at = _at WHERE seq = _job;
  ELSIF _change = 1 THEN
    UPDATE seriatim.item SET route = seriatim.route_in(seriatim.group_of(route), _bound), options = _options
    WHERE seq = _job RETURNING route INTO _route;
    UPDATE seriatim.lane SET route = _route WHERE number = _lane;
  ELSE
    _left := seriatim.batches_of(ARRAY[_job]);
    PERFORM seriatim.forget(ARRAY[_job]);
  END IF;
  PERFORM seriatim.place_left(ARRAY[_lane], _t);
  PERFORM seriatim.leave_job_batches(_left, 2, _t);
  RETURN true;
END $$;
