-- Pages of listings. What a page reads depends on what it shows, on the lanes that are claimed, and on those that are
-- held or paused: not on what else waits.
--
-- A walk along an index names the queue by a range of rows and orders by it too: no other index has this order, so that
-- no plan depends on statistics. Each STABLE function sees what its caller sees.

CREATE FUNCTION seriatim.last_number() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 9223372036854775807 $$;

-- The claimed lanes of a queue.
CREATE FUNCTION seriatim.claimed_lanes(_queue int) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.claimed_lane WHERE queue = _queue);
END $$;

-- Those that are held or paused.
CREATE FUNCTION seriatim.stopped_lanes(_queue int) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE (held OR paused)
    AND (queue, number) >= (_queue, 0) AND (queue, number) <= (_queue, seriatim.last_number()) ORDER BY queue, number);
END $$;

-- The first lanes after a place, by age. _but: lanes to leave out.
CREATE FUNCTION seriatim.lanes_by_age(_queue int, _last bigint, _but bigint[], _rows_max bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE number > 0
    AND (queue, number) > (_queue, _last) AND (queue, number) <= (_queue, seriatim.last_number())
    AND CASE WHEN number IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, number LIMIT _rows_max);
END $$;

-- By key, up to _end. Where lanes have no keys: by age.
CREATE FUNCTION seriatim.lanes_by_key(_queue int, _place text, _last bigint, _end text, _but bigint[], _rows_max bigint)
RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF (SELECT mode = 0 FROM seriatim.queue WHERE number = _queue) THEN
    RETURN seriatim.lanes_by_age(_queue, CASE WHEN _place = '' THEN _last ELSE 0 END, _but, _rows_max);
  END IF;
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE key IS NOT NULL
    AND (queue, key) >= (_queue, _place) AND queue <= _queue AND (key > _place OR number > _last)
    AND (_end IS NULL OR key <= _end)
    AND CASE WHEN number IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, key LIMIT _rows_max);
END $$;

-- Waiting lanes by due time, up to _to. `ready` has the due ones, in each group of class and priority in this order, and
-- the index of `wake` the scheduled ones.
CREATE FUNCTION seriatim.lanes_by_due(_queue int, _from bigint, _last bigint, _to bigint, _rows_max bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  _ready bigint[];
  _reached bigint;
BEGIN
  WITH RECURSIVE groups AS (
    (SELECT class, priority FROM seriatim.ready WHERE queue = _queue ORDER BY class, priority LIMIT 1)
    UNION ALL
    SELECT n.class, n.priority FROM groups g CROSS JOIN LATERAL (
      SELECT class, priority FROM seriatim.ready
      WHERE queue = _queue AND (class, priority) > (g.class, g.priority)
      ORDER BY class, priority LIMIT 1) n
  ), first AS (
    SELECT x.at, x.number FROM groups g CROSS JOIN LATERAL (
      SELECT r.at, r.number FROM seriatim.ready r
      WHERE r.queue = _queue AND r.class = g.class AND r.priority = g.priority
        AND (r.at, r.number) > (_from, _last) AND r.at <= _to
      ORDER BY r.at, r.number LIMIT _rows_max) x
    ORDER BY x.at, x.number LIMIT _rows_max
  )
  SELECT coalesce(array_agg(number), '{}'), max(at) INTO _ready, _reached FROM first;
  IF cardinality(_ready) = _rows_max THEN
    _to := _reached;
  END IF;
  RETURN _ready || ARRAY(SELECT number FROM seriatim.lane WHERE wake IS NOT NULL AND class IS NULL
    AND (queue, wake, number) > (_queue, _from, _last) AND (queue, wake, number) <= (_queue, _to, seriatim.last_number())
    ORDER BY queue, wake, number LIMIT _rows_max);
END $$;

-- Those with failures, most first. _from, _to: retry counts, negative.
CREATE FUNCTION seriatim.lanes_by_retries(_queue int, _from int, _last bigint, _to int, _rows_max bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE retry_count >= 0
    AND (CASE WHEN retry_count >= 0 THEN queue END, -retry_count, number) > (_queue, _from, _last)
    AND (CASE WHEN retry_count >= 0 THEN queue END, -retry_count, number) <= (_queue, _to, seriatim.last_number())
    ORDER BY CASE WHEN retry_count >= 0 THEN queue END, -retry_count, number LIMIT _rows_max);
END $$;

-- Lanes among which are the first _rows_max of a page: see lanes.sql for the filters and the order. _order: 0 age, 1 key,
-- 2 due, 3 retries. _source: 0 the key's, 1 the claimed ones, 2 those that are held or paused, 3 all, 4 all that wait,
-- 5 the one whose number _key is.
CREATE FUNCTION seriatim.list_lanes(_queue int, _order int, _source int, _key text, _node text, _last_place text, _last bigint,
  _end text, _rows_max bigint) RETURNS SETOF seriatim.lane_now LANGUAGE plpgsql STABLE AS $$
DECLARE
  _lanes bigint[];
  _but bigint[] := '{}';
BEGIN
  _last := coalesce(_last, 0);
  IF _source = 0 THEN
    _lanes := ARRAY(SELECT number FROM seriatim.lane WHERE queue = _queue AND key = _key);
  ELSIF _source = 5 THEN
    _lanes := ARRAY[_key::bigint];
  ELSIF _source = 1 AND _node IS NULL THEN
    RETURN QUERY SELECT c.* FROM seriatim.claimed_lane c WHERE c.queue = _queue;
    RETURN;
  ELSIF _source = 1 THEN
    RETURN QUERY SELECT c.* FROM seriatim.claimed_lane c WHERE c.holder = _node AND c.queue = _queue;
    RETURN;
  ELSIF _source = 2 THEN
    _lanes := seriatim.stopped_lanes(_queue);
  ELSE
    IF _source = 4 THEN
      _but := seriatim.claimed_lanes(_queue) || seriatim.stopped_lanes(_queue);
    END IF;
    IF _order = 0 THEN
      _lanes := seriatim.lanes_by_age(_queue, _last, _but, _rows_max);
    ELSIF _order = 1 THEN
      _lanes := seriatim.lanes_by_key(_queue, coalesce(_last_place, ''), _last, _end, _but, _rows_max);
    ELSIF _order = 3 THEN
      -- Few are claimed or stopped.
      _lanes := seriatim.lanes_by_retries(_queue, coalesce(_last_place::int, -2147483648), _last, coalesce(_end::int, 0),
        _rows_max + cardinality(_but));
    ELSE
      _lanes := seriatim.lanes_by_due(_queue, coalesce(_last_place::bigint, -9223372036854775808), _last,
        coalesce(_end::bigint, seriatim.last_number()), _rows_max);
      IF _source = 3 THEN
        _lanes := _lanes || seriatim.claimed_lanes(_queue) || seriatim.stopped_lanes(_queue);
      END IF;
    END IF;
  END IF;
  RETURN QUERY SELECT l.* FROM (SELECT DISTINCT unnest(_lanes) AS number) w
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane_now x WHERE x.number = w.number OFFSET 0) l;
END $$;

-- The jobs in turns of a queue. What waits is not read.
CREATE FUNCTION seriatim.claimed_jobs(_queue int) RETURNS TABLE (o_seq bigint, o_key text) LANGUAGE plpgsql STABLE AS $$
DECLARE
  _mode smallint := (SELECT mode FROM seriatim.queue WHERE number = _queue);
BEGIN
  RETURN QUERY SELECT o.seq, l.key FROM unnest(seriatim.claimed_lanes(_queue)) w (number)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
    CROSS JOIN LATERAL (
      SELECT l.number AS seq WHERE l.payload IS NOT NULL
      UNION ALL
      SELECT i.seq FROM seriatim.owned(l.number, _mode, l.taken, l.joined) i) o;
END $$;

-- The first of them after a place, by arrival or by key; with _key, only those of it. job_view looks for a light claim of each: in
-- all claims, so only for those that are shown.
CREATE FUNCTION seriatim.running(_queue int, _by_key boolean, _key text, _place text, _last bigint, _rows_max bigint)
RETURNS SETOF seriatim.job_view LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT j.* FROM (
      SELECT c.o_seq, CASE WHEN _by_key THEN coalesce(c.o_key, '') ELSE '' END COLLATE "C" AS place
      FROM seriatim.claimed_jobs(_queue) c
      WHERE (_key IS NULL OR c.o_key = _key) AND (_last IS NULL
        OR CASE WHEN _by_key THEN (coalesce(c.o_key, '') COLLATE "C", c.o_seq) > (_place, _last) ELSE c.o_seq > _last END)
      ORDER BY place, c.o_seq LIMIT _rows_max) c
    CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = c.o_seq OFFSET 0) j;
END $$;

-- Jobs that have not ended, by arrival. A packed lane is one job, with the lane's number. Between two jobs with rows
-- of their own are few lanes.
CREATE FUNCTION seriatim.live_jobs(_queue int, _waiting boolean, _last bigint, _rows_max bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  _but bigint[] := '{}';
  _jobs bigint[];
  _to bigint := seriatim.last_number();
BEGIN
  IF _waiting THEN
    _but := ARRAY(SELECT o_seq FROM seriatim.claimed_jobs(_queue));
  END IF;
  _jobs := ARRAY(SELECT seq FROM seriatim.item WHERE queue IS NOT NULL
    AND (queue, seq) > (_queue, _last) AND (queue, seq) <= (_queue, _to)
    AND CASE WHEN seq IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, seq LIMIT _rows_max);
  IF cardinality(_jobs) = _rows_max THEN
    _to := _jobs[_rows_max::int];
  END IF;
  RETURN _jobs || ARRAY(SELECT number FROM seriatim.lane WHERE number > 0 AND payload IS NOT NULL
    AND (queue, number) > (_queue, _last) AND (queue, number) <= (_queue, _to)
    AND CASE WHEN number IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, number LIMIT _rows_max);
END $$;

-- Ended jobs in a state. _order: 0 arrival, 1 key, 2 last change. Of one key, all are sorted.
CREATE FUNCTION seriatim.ended_jobs(_queue int, _state smallint, _order int, _key text, _place text, _last bigint,
  _rows_max bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  _all bigint := seriatim.last_number();
BEGIN
  IF _key IS NOT NULL THEN
    RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL AND key IS NOT NULL
      AND (queue, state, coalesce(key, '')) = (_queue, _state, _key));
  ELSIF _order = 0 THEN
    RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL
      AND (queue, state, seq) > (_queue, _state, _last) AND (queue, state, seq) <= (_queue, _state, _all)
      ORDER BY queue, state, seq LIMIT _rows_max);
  ELSIF _order = 1 THEN
    RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL
      AND (queue, state, coalesce(key, ''), seq) > (_queue, _state, coalesce(_place, ''), _last)
      AND (queue, state) <= (_queue, _state)
      ORDER BY queue, state, coalesce(key, ''), seq LIMIT _rows_max);
  END IF;
  RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL
    AND (queue, state, -ended_at, seq) > (_queue, _state, coalesce(_place::bigint, -_all), _last)
    AND (queue, state, -ended_at, seq) <= (_queue, _state, _all, _all)
    ORDER BY queue, state, -ended_at, seq LIMIT _rows_max);
END $$;

-- Jobs among which are all of a page: see jobs.sql for the filters and the order. Live jobs of one key, or by key,
-- are all read.
CREATE FUNCTION seriatim.list_jobs(_queue int, _order int, _states smallint[], _key text, _place text, _last bigint,
  _rows_max bigint) RETURNS SETOF seriatim.job_view LANGUAGE plpgsql STABLE AS $$
DECLARE
  _jobs bigint[];
BEGIN
  _last := coalesce(_last, 0);
  IF _states[1] > 1 THEN
    _jobs := seriatim.ended_jobs(_queue, _states[1], _order, _key, _place, _last, _rows_max);
  ELSIF _key IS NOT NULL THEN
    _jobs := ARRAY(SELECT o.seq FROM (SELECT * FROM seriatim.lane WHERE queue = _queue AND key = _key OFFSET 0) l
      CROSS JOIN LATERAL (
        SELECT l.number AS seq WHERE l.payload IS NOT NULL
        UNION ALL
        SELECT i.seq FROM seriatim.item i WHERE i.lane = l.number) o);
  ELSIF _order = 1 THEN
    _jobs := seriatim.live_jobs(_queue, false, 0, NULL);
  ELSE
    _jobs := seriatim.live_jobs(_queue, NOT 1 = ANY (_states), _last, _rows_max);
  END IF;
  RETURN QUERY SELECT j.* FROM unnest(_jobs) w (seq)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = w.seq OFFSET 0) j;
END $$;
