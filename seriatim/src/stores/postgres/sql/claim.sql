-- Claiming lanes, and rescuing expired claims.

-- The error for a node without a heartbeat or declared dead; NULL if it may claim. Takes no lock: a node declared dead
-- at this moment gets an expired claim, which the next rescue takes. Also for a ticket that was given up: a call with a
-- ticket holds its node's lock shared until it ends, and give_up() takes the lock exclusively. So the row is read by a
-- separate statement after the lock.
CREATE FUNCTION seriatim.refused_as(_node text, _ticket bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  _given_up bigint;
BEGIN
  IF _ticket > 0 THEN
    PERFORM pg_advisory_xact_lock_shared(hashtext('node seriatim.'), hashtext(_node));
  END IF;
  SELECT given_up INTO _given_up FROM seriatim.node WHERE id = _node AND dead_at IS NULL;
  RETURN CASE WHEN NOT FOUND THEN 'SR004' WHEN _ticket BETWEEN 1 AND _given_up THEN 'SR008' END;
END $$;

-- Refuses such a node.
CREATE FUNCTION seriatim.check_node(_node text, _ticket bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _refused text := seriatim.refused_as(_node, _ticket);
BEGIN
  IF _refused IS NOT NULL THEN
    RAISE EXCEPTION 'the node is not registered or dead, or the call was given up' USING ERRCODE = _refused;
  END IF;
END $$;

-- Gives up the calls of a node up to a ticket. Waits for running ones, whose claims are then visible; later ones are
-- refused.
CREATE FUNCTION seriatim.give_up(_node text, _ticket bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('node seriatim.'), hashtext(_node));
  UPDATE seriatim.node SET given_up = greatest(given_up, _ticket) WHERE id = _node;
END $$;

-- The routes that a node may take.
CREATE FUNCTION seriatim.routes_of(_name text, _groups text[]) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT 0::bigint || ARRAY(
      SELECT number::bigint FROM seriatim.route
      WHERE node IN ('', coalesce(_name, ''))
        AND (consumer_group = '' OR consumer_group = ANY (_groups))));
END $$;

-- Computes the position of lanes whose wake has come. Locked lanes are left to the transaction that locked them.
CREATE FUNCTION seriatim.promote(_queue int, _now bigint, _lanes_max int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  _lanes bigint[];
BEGIN
  SELECT array_agg(number) INTO _lanes FROM (
    SELECT number FROM seriatim.lane WHERE queue = _queue AND wake <= _now
    ORDER BY wake LIMIT _lanes_max FOR UPDATE SKIP LOCKED) l;
  IF _lanes IS NOT NULL THEN
    PERFORM seriatim.place(_lanes, _now);
  END IF;
END $$;

-- Locks the best ready lanes over the given classes, best first. Each class is probed separately, so that the index
-- returns each in order without a scan. Of a light one it locks the row in `ready`, of another the lane; it skips locked
-- ones, and those that another call has moved since. The ctids of their rows in `ready` stay valid until this
-- transaction changes the rows.
CREATE FUNCTION seriatim.lock_ready(_queue int, _routes bigint[], _lanes_max int, _crashed_max int, _own boolean,
  OUT o_lanes bigint[], OUT o_spots tid[], OUT o_light boolean, OUT o_packed boolean, OUT o_priority smallint,
  OUT o_at bigint, OUT o_number bigint) LANGUAGE plpgsql AS $$
DECLARE
  _some_light boolean;
BEGIN
  WITH best AS (
    SELECT w.crashed, x.*
    FROM (SELECT r * 2 AS class, 0 AS crashed, _lanes_max AS most FROM unnest(_routes) r
      UNION ALL SELECT r * 2 + 1, 1, least(_crashed_max, _lanes_max) FROM unnest(_routes) r) w
    CROSS JOIN LATERAL (
      SELECT r.number, r.priority, r.at, r.spot, r.light, l.packed
      FROM (SELECT x.*, x.ctid AS spot FROM seriatim.ready x WHERE x.queue = _queue AND x.class = w.class
        ORDER BY x.priority, x.at, x.number OFFSET 0) r
      CROSS JOIN LATERAL (
        SELECT * FROM (SELECT true AS packed FROM seriatim.ready y
          WHERE r.light AND y.ctid = r.spot AND y.light FOR UPDATE SKIP LOCKED) y
        UNION ALL
        SELECT * FROM (SELECT n.payload IS NOT NULL FROM seriatim.lane n
          WHERE NOT r.light AND n.number = r.number AND n.class = r.class AND n.priority = r.priority AND n.at = r.at
          FOR UPDATE SKIP LOCKED) n) l
      LIMIT w.most) x
  ), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY crashed ORDER BY priority, at, number) AS rank FROM best
  ), chosen AS (
    SELECT * FROM ranked WHERE crashed = 0 OR rank <= _crashed_max
    ORDER BY priority, at, number LIMIT _lanes_max
  )
  -- The chosen ones are in order.
  SELECT array_agg(number), array_agg(spot), bool_and(light) AND NOT _own, bool_or(light), bool_and(packed),
    max(priority), (array_agg(at))[count(*)], (array_agg(number))[count(*)]
  INTO o_lanes, o_spots, o_light, _some_light, o_packed, o_priority, o_at, o_number FROM chosen;
  IF _some_light AND NOT o_light THEN
    SELECT f.o_lanes, f.o_spots INTO o_lanes, o_spots FROM seriatim.lock_rest(o_lanes, o_spots) f;
  END IF;
END $$;

-- Locks lanes whose rows in `ready` are locked. Leaves those out that another call has.
CREATE FUNCTION seriatim.lock_rest(_lanes bigint[], _spots tid[], OUT o_lanes bigint[], OUT o_spots tid[])
LANGUAGE plpgsql AS $$
DECLARE
  _locked bigint[] := ARRAY(SELECT number FROM seriatim.lane WHERE number = ANY (_lanes) FOR UPDATE SKIP LOCKED);
BEGIN
  SELECT array_agg(number ORDER BY place), array_agg(spot ORDER BY place) INTO o_lanes, o_spots
  FROM unnest(_lanes, _spots) WITH ORDINALITY w (number, spot, place)
  WHERE CASE WHEN number IN (SELECT unnest(_locked)) THEN true END;
END $$;

-- Lists the claim of these lanes. If it is a light one, _light is their queue.
CREATE FUNCTION seriatim.list_batch(_token bigint, _node text, _own boolean, _ttl bigint, _now bigint,
  _light int, _lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.batch (token, node, own, ttl, until, claimed_at, light, remaining, lanes, queue, low, high)
    SELECT _token, _node, _own, _ttl, seriatim.later(_now, _ttl), _now, _light IS NOT NULL, cardinality(_lanes), _lanes,
      _light, min(number), max(number)
    FROM unnest(_lanes) number WHERE _light IS NOT NULL;
END $$;

-- The same where lanes have no keys: locks their rows in `ready`. Nobody keeps such a lane locked for long, so the
-- lanes that are not light are locked afterwards, and left out if another call has them.
CREATE FUNCTION seriatim.lock_light(_queue int, _routes bigint[], _lanes_max int, _crashed_max int, _own boolean,
  OUT o_lanes bigint[], OUT o_spots tid[], OUT o_light boolean, OUT o_priority smallint,
  OUT o_at bigint, OUT o_number bigint) LANGUAGE plpgsql AS $$
BEGIN
  WITH chosen AS (
    SELECT * FROM (
      SELECT x.* FROM unnest(_routes) route
      CROSS JOIN LATERAL (
        SELECT r.number, r.priority, r.at, r.ctid AS spot, r.light FROM seriatim.ready r
        WHERE r.queue = _queue AND r.class = route * 2
        ORDER BY r.priority, r.at, r.number LIMIT _lanes_max FOR UPDATE SKIP LOCKED) x
      UNION ALL
      -- Those with crashes. There are few, and a rank of all rows would cost more than this.
      (SELECT x.* FROM unnest(_routes) route
      CROSS JOIN LATERAL (
        SELECT r.number, r.priority, r.at, r.ctid AS spot, r.light FROM seriatim.ready r
        WHERE r.queue = _queue AND r.class = route * 2 + 1
        ORDER BY r.priority, r.at, r.number LIMIT least(_crashed_max, _lanes_max) FOR UPDATE SKIP LOCKED) x
      ORDER BY priority, at, number LIMIT _crashed_max)) best
    ORDER BY priority, at, number LIMIT _lanes_max
  )
  -- The chosen ones are in order.
  SELECT array_agg(number), array_agg(spot), bool_and(light) AND NOT _own, max(priority),
    (array_agg(at))[count(*)], (array_agg(number))[count(*)]
  INTO o_lanes, o_spots, o_light, o_priority, o_at, o_number FROM chosen;
  IF o_light THEN
    RETURN;
  END IF;
  SELECT f.o_lanes, f.o_spots INTO o_lanes, o_spots FROM seriatim.lock_rest(o_lanes, o_spots) f;
END $$;

-- Takes locked lanes out of `ready`. A row that another call moved away and back while the lane was being locked is
-- not where it was found.
CREATE FUNCTION seriatim.take_ready(_lanes bigint[], _spots tid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _found int;
BEGIN
  DELETE FROM seriatim.ready
  WHERE ctid = ANY (_spots) AND CASE WHEN number IN (SELECT unnest(_lanes)) THEN true END;
  GET DIAGNOSTICS _found = ROW_COUNT;
  IF _found < cardinality(_lanes) THEN
    PERFORM seriatim.move_ready(ARRAY(
      SELECT ROW(l.queue, l.number, l.class, l.priority, l.at, NULL, NULL, NULL)::seriatim.move
      FROM unnest(_lanes) w (number)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l));
  END IF;
END $$;

-- Counts ended claims of lanes, one entry each. Another settle of the same claim is waited for: it is about to commit. A user's
-- transaction is not: the row keeps too high a count, until the sweep removes it. Whoever unfolds a claim reads all rows.
CREATE FUNCTION seriatim.leave_batches(_tokens bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _was text := current_setting('lock_timeout');
BEGIN
  BEGIN
    PERFORM set_config('lock_timeout', '50ms', true);
    PERFORM FROM seriatim.batch WHERE token = ANY (ARRAY(SELECT DISTINCT unnest(_tokens))) ORDER BY token FOR UPDATE;
    PERFORM set_config('lock_timeout', _was, true);
  EXCEPTION WHEN lock_not_available THEN
    -- The next statement counts what it can lock.
  END;
  -- A statement after the locks: it sees what others counted.
  WITH ended AS MATERIALIZED (
    SELECT b.*, c.lanes
    FROM (SELECT token, count(*) AS lanes FROM unnest(_tokens) token GROUP BY token ORDER BY token) c
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.remaining FROM seriatim.batch n WHERE n.token = c.token
      FOR UPDATE SKIP LOCKED) b
  ), counted AS (
    UPDATE seriatim.batch b SET remaining = b.remaining - e.lanes FROM ended e
    WHERE b.ctid = e.row AND e.remaining > e.lanes
  )
  DELETE FROM seriatim.batch b USING ended e WHERE b.ctid = e.row AND e.remaining <= e.lanes;
END $$;

-- The jobs that a turn of a lane takes, best first: in accumulate all waiting ones; in fifo, while the lane is in
-- order, as many as the queue allows. At most as many as fit in a turn.
CREATE FUNCTION seriatim.next_jobs(_lane bigint, _in_order boolean, _mode smallint, _take int, _now bigint,
  _jobs_max int, _bytes_max bigint) RETURNS TABLE (item tid, bytes bigint) LANGUAGE sql STABLE AS $$
  SELECT j.row, j.own FROM (
    SELECT o.row, o.bytes AS own, row_number() OVER (ORDER BY o.score, o.seq) AS rank,
      bool_and(o.fits) OVER (ORDER BY o.score, o.seq) AS fit,
      sum(o.bytes) OVER (ORDER BY o.score, o.seq) AS bytes
    FROM (
      SELECT c.ctid AS row, c.seq, c.score, octet_length(c.payload)::bigint AS bytes,
        c.task IS NOT DISTINCT FROM first_value(c.task) OVER (ORDER BY c.score, c.seq)
          AND (_mode = 1 OR row_number() OVER (ORDER BY c.score, c.seq) = 1
            OR c.run_at <= _now AND c.retry_count < 0 AND c.crashes = 0) AS fits
      FROM seriatim.item c
      WHERE c.lane = _lane AND NOT c.closed
      ORDER BY c.score, c.seq
      LIMIT CASE WHEN _mode = 1 THEN _jobs_max WHEN _in_order THEN _take ELSE 1 END) o
  ) j
  WHERE j.rank = 1 OR j.fit AND j.bytes <= _bytes_max
$$;

-- Whether a turn is one job, or jobs that are handed over one after the other.
CREATE FUNCTION seriatim.takes_one(_q seriatim.queue) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT _q.mode IN (0, 3) OR _q.mode = 2 AND _q.take <= 1
$$;

-- The queue as a claim sees it that may take up to _series jobs of a lane, to be handed over one after the other: `take`
-- is this number, negative. Not where turns are shared out, which are jobs there, or the bytes of the claim are limited.
CREATE FUNCTION seriatim.in_series(_q seriatim.queue, _series int, _room bigint) RETURNS seriatim.queue
LANGUAGE plpgsql AS $$
BEGIN
  IF _series > 1 AND _q.mode = 2 AND _q.take = 1 AND _q.retain = 0 AND _q.shares IS NULL AND _room IS NULL THEN
    _q.take := -_series;
  END IF;
  RETURN _q;
END $$;

-- The job of such a turn: in fifo the first, in exclusive the best due one.
CREATE FUNCTION seriatim.first_job(_lane bigint, _mode smallint, _due bigint) RETURNS SETOF seriatim.item
LANGUAGE sql STABLE AS $$
  (SELECT i.* FROM seriatim.item i WHERE _mode <> 3 AND i.lane = _lane
    ORDER BY i.score, i.seq LIMIT 1)
  UNION ALL
  (SELECT i.* FROM seriatim.item i
    WHERE _mode = 3 AND i.lane = _lane AND i.loose AND NOT i.closed AND i.run_at <= _due
    ORDER BY i.priority, i.run_at, i.seq LIMIT 1)
$$;

-- Closes the jobs of these lanes' turns. A separate statement after the lanes are locked: its snapshot includes
-- everything that a push committed before the lock.
CREATE FUNCTION seriatim.close_jobs(_lanes bigint[], _mode smallint, _take int, _now bigint,
  _jobs_max int, _bytes_max bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.item i SET closed = true
  FROM (
    SELECT j.item
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
    CROSS JOIN LATERAL seriatim.next_jobs(l.number, l.retry_count < 0 AND l.crashes = 0, _mode, _take, _now,
      _jobs_max, _bytes_max) j
  ) t
  WHERE i.ctid = t.item;
END $$;

-- The data of a turn for its holder, one row per job.
CREATE TYPE seriatim.taken AS (
  lane bigint, queue int, name text, key text, token bigint, retry_count int, crashes int, error text,
  claimed_at bigint, seq bigint, created_at bigint, task text, payload bytea, score float8,
  priority smallint, run_at bigint, attempt int, options text
);

-- The claims, in four forms, all under one token. It is drawn under the locks of the lanes: otherwise a later claim of
-- a lane could get a lower one.

-- Packed lanes: one statement writes the claim and returns the turns. It sorts by position, since an UPDATE has the
-- planner's order.
CREATE FUNCTION seriatim.hold_packed(_q seriatim.queue, _lanes bigint[], _token bigint, _node text, _own boolean,
  _ttl bigint, _now bigint) RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
DECLARE
  _until bigint := seriatim.later(_now, _ttl);
  _counted bigint[] := _q.counted;
BEGIN
  RETURN QUERY WITH held AS (
    UPDATE seriatim.lane l
    SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
      ttl = CASE WHEN l.lease_ttl > _ttl THEN least(l.lease_ttl, _q.lease_max) ELSE _ttl END,
      until = CASE WHEN l.lease_ttl > _ttl THEN seriatim.later(_now, least(l.lease_ttl, _q.lease_max)) ELSE _until END,
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL,
      grp = seriatim.counted_group(_counted, l.class)
    WHERE l.number = ANY (_lanes) AND l.payload IS NOT NULL
    RETURNING l.number, l.queue, l.key, l.retry_count, l.crashes, l.error,
    l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, l.options)
    SELECT l.number, l.queue, _q.name, l.key, _token, l.retry_count, l.crashes, l.error, _now,
    l.number, l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, 1, l.options
    FROM held l ORDER BY l.priority, l.packed_run_at, l.number;
END $$;

-- In accumulate, if all waiting jobs are taken: later arrivals have higher numbers. Returns the lanes of which only a
-- part can be taken.
CREATE FUNCTION seriatim.hold_whole(_counted bigint[], _lanes bigint[], _token bigint, _node text, _own boolean, _ttl bigint,
  _now bigint, _jobs_max int, _bytes_max bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  _parts bigint[];
BEGIN
  WITH looked AS MATERIALIZED (
    SELECT w.number, o.last, o.ttl,
      o.jobs <= _jobs_max AND o.bytes <= _bytes_max AND o.tasks IN (0, o.jobs)
        AND o.least_task IS NOT DISTINCT FROM o.most_task AS whole
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (
      SELECT count(*) AS jobs, coalesce(sum(octet_length(i.payload)), 0) AS bytes, max(i.seq) AS last,
        max(i.lease_ttl) AS ttl, count(i.task) AS tasks, min(i.task COLLATE "C") AS least_task,
        max(i.task COLLATE "C") AS most_task
      FROM (SELECT * FROM seriatim.item WHERE lane = w.number ORDER BY score, seq
        LIMIT _jobs_max + 1) i) o
  ), held AS (
    UPDATE seriatim.lane l
    SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
      ttl = greatest(_ttl, seriatim.capped(l.queue, k.ttl)), until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, k.ttl))),
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, next_due = NULL,
      taken = k.last, grp = seriatim.counted_group(_counted, l.class)
    FROM looked k
    CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = k.number OFFSET 0) n
    WHERE l.ctid = n.row AND k.whole
  )
  SELECT array_agg(number) INTO _parts FROM looked WHERE NOT whole;
  RETURN _parts;
END $$;

-- If a turn is one job: one statement finds it, writes the claim and returns the turn. With _routes the lanes go on:
-- only those whose next job is due, of no worse priority than _best, and of one of these routes; and this lists the
-- claim. Without, a ready lane stays ready if the clock steps back.
CREATE FUNCTION seriatim.hold_one(_q seriatim.queue, _lanes bigint[], _token bigint, _node text, _own boolean,
  _ttl bigint, _now bigint, _routes bigint[], _best smallint) RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
DECLARE
  _number int := _q.number;
  _mode smallint := _q.mode;
  _name text := _q.name;
  _lease_max bigint := _q.lease_max;
  _counted bigint[] := _q.counted;
  _until bigint := seriatim.later(_now, _ttl);
BEGIN
  IF _q.take < 0 THEN
    RETURN QUERY SELECT t.* FROM seriatim.hold_series(_q, _lanes, _token, _node, _own, _ttl, _now, _routes, _best) t;
    RETURN;
  END IF;
  RETURN QUERY WITH held AS (
    UPDATE seriatim.lane l
    SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
      ttl = CASE WHEN h.lease_ttl > _ttl THEN least(h.lease_ttl, _lease_max) ELSE _ttl END,
      until = CASE WHEN h.lease_ttl > _ttl THEN seriatim.later(_now, least(h.lease_ttl, _lease_max)) ELSE _until END,
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, next_due = NULL,
      progress = CASE WHEN _routes IS NULL THEN l.progress END, joined = NULL,
      taken = h.seq, due = h.run_at, retry_count = h.retry_count, crashes = h.crashes, error = h.error,
      priority = h.priority, grp = seriatim.counted_group(_counted, l.class)
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.at, n.route, n.held OR n.paused AS stopped, n.retry_count
      FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) n
    CROSS JOIN LATERAL seriatim.first_job(w.number, _mode, greatest(_now, n.at)) h
    WHERE l.ctid = n.row AND (_routes IS NULL OR NOT n.stopped AND h.run_at <= _now AND h.crashes = 0
      AND coalesce(h.priority <= _best, true) AND n.route = ANY (_routes))
    RETURNING l.number, l.queue, l.key, h.retry_count, h.crashes, h.error, h.seq, h.created_at, h.task, h.payload,
      h.score, h.priority, h.run_at, h.attempts, h.options, seriatim.turned(n.retry_count, l.retry_count) AS turned
  ), listed AS (
    INSERT INTO seriatim.batch (token, node, own, ttl, until, claimed_at, light, remaining, lanes)
      SELECT _token, _node, _own, _ttl, _until, _now, false, count(*), array_agg(number) FROM held
      HAVING _routes IS NOT NULL AND count(*) > 0
  ), counted AS (
    INSERT INTO seriatim.tally (queue, claimed, retrying)
      SELECT _number, CASE WHEN _routes IS NOT NULL THEN count(*) END, sum(turned) FROM held
      HAVING _routes IS NOT NULL AND count(*) > 0 OR sum(turned) <> 0
  )
  SELECT h.number, h.queue, _name, h.key, _token, h.retry_count, h.crashes, h.error, _now, h.seq, h.created_at, h.task,
    h.payload, h.score, h.priority, h.run_at, h.attempts + 1, h.options
  FROM held h;
END $$;

-- The first jobs of a lane that may be handed over one after the other: the head, and jobs behind it that were never
-- claimed before. `head` is the first one.
CREATE FUNCTION seriatim.series_of(_lane bigint, _most int, _now bigint, OUT head seriatim.item, OUT joined bigint[],
  OUT lease_ttl bigint) LANGUAGE plpgsql STABLE AS $$
DECLARE
  _bytes bigint := 0;
  _job seriatim.item;
BEGIN
  FOR _job IN SELECT * FROM seriatim.item i WHERE i.lane = _lane ORDER BY i.score, i.seq LIMIT _most LOOP
    _bytes := _bytes + octet_length(_job.payload);
    IF head.seq IS NULL THEN
      head := _job;
      joined := '{}';
    ELSE
      EXIT WHEN _bytes > 262144 OR _job.attempts > 0 OR _job.run_at > _now OR _job.task IS DISTINCT FROM head.task
        OR head.attempts > 0 OR NOT seriatim.are_plain(head.options) OR NOT seriatim.are_plain(_job.options) OR _job.retry_count >= 0 OR _job.crashes > 0;
      joined := joined || _job.seq;
    END IF;
    lease_ttl := greatest(lease_ttl, _job.lease_ttl);
  END LOOP;
END $$;

-- The same as hold_one(), but a turn may have more jobs.
CREATE FUNCTION seriatim.hold_series(_q seriatim.queue, _lanes bigint[], _token bigint, _node text, _own boolean,
  _ttl bigint, _now bigint, _routes bigint[], _best smallint) RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
DECLARE
  _number int := _q.number;
  _name text := _q.name;
  _most int := -_q.take;
  _lease_max bigint := _q.lease_max;
  _until bigint := seriatim.later(_now, _ttl);
BEGIN
  RETURN QUERY WITH held AS (
    UPDATE seriatim.lane l
    SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
      ttl = CASE WHEN h.lease_ttl > _ttl THEN least(h.lease_ttl, _lease_max) ELSE _ttl END,
      until = CASE WHEN h.lease_ttl > _ttl THEN seriatim.later(_now, least(h.lease_ttl, _lease_max)) ELSE _until END,
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, next_due = NULL,
      progress = CASE WHEN _routes IS NULL THEN l.progress END,
      taken = (h.head).seq, joined = nullif(h.joined, '{}'), due = (h.head).run_at,
      retry_count = (h.head).retry_count, crashes = (h.head).crashes, error = (h.head).error,
      priority = (h.head).priority, grp = NULL
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.at, n.route, n.held OR n.paused AS stopped, n.retry_count
      FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) n
    CROSS JOIN LATERAL (SELECT * FROM seriatim.series_of(w.number, _most, greatest(_now, n.at)) OFFSET 0) h
    WHERE l.ctid = n.row AND (_routes IS NULL OR NOT n.stopped AND (h.head).run_at <= _now AND (h.head).crashes = 0
      AND coalesce((h.head).priority <= _best, true) AND n.route = ANY (_routes))
    RETURNING l.number, l.queue, l.key, l.retry_count, l.crashes, l.error, l.taken || l.joined AS jobs,
      seriatim.turned(n.retry_count, l.retry_count) AS turned
  ), listed AS (
    INSERT INTO seriatim.batch (token, node, own, ttl, until, claimed_at, light, remaining, lanes)
      SELECT _token, _node, _own, _ttl, _until, _now, false, count(*), array_agg(number) FROM held
      HAVING _routes IS NOT NULL AND count(*) > 0
  ), counted AS (
    INSERT INTO seriatim.tally (queue, claimed, retrying)
      SELECT _number, CASE WHEN _routes IS NOT NULL THEN count(*) END, sum(turned) FROM held
      HAVING _routes IS NOT NULL AND count(*) > 0 OR sum(turned) <> 0
  )
  SELECT h.number, h.queue, _name, h.key, _token, h.retry_count, h.crashes, h.error, _now, i.seq, i.created_at, i.task,
    i.payload, i.score, i.priority, i.run_at, i.attempts + 1, i.options
  FROM held h
  CROSS JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = ANY (h.jobs) ORDER BY o.score, o.seq OFFSET 0) i;
END $$;

-- For lanes whose jobs have been marked closed.
CREATE FUNCTION seriatim.hold_lanes(_counted bigint[], _lanes bigint[], _mode smallint, _token bigint, _node text, _own boolean,
  _ttl bigint, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH held AS (UPDATE seriatim.lane l
  SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
    ttl = greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl)),
    until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl))),
    claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, taken = NULL,
    grp = seriatim.counted_group(_counted, l.class),
    next_due = CASE WHEN _mode = 1 AND EXISTS (
        SELECT FROM seriatim.item o WHERE o.lane = l.number AND NOT o.closed OFFSET 0) THEN l.due END,
    due = CASE WHEN _mode = 1 THEN l.due ELSE h.run_at END,
    retry_count = CASE WHEN _mode = 1 THEN l.retry_count ELSE h.retry_count END,
    crashes = CASE WHEN _mode = 1 THEN l.crashes ELSE h.crashes END,
    error = CASE WHEN _mode = 1 THEN l.error ELSE h.error END,
    priority = CASE WHEN _mode = 1 THEN l.priority ELSE h.priority END
  FROM (
    SELECT DISTINCT ON (c.lane) c.*, max(c.lease_ttl) OVER (PARTITION BY c.lane) AS longest
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.item i
      WHERE i.closed AND CASE WHEN i.closed THEN i.lane END = w.number OFFSET 0) c
    ORDER BY c.lane, c.score, c.seq
  ) first
  CROSS JOIN LATERAL (SELECT first.longest AS lease_ttl, first.run_at, first.retry_count,
    first.crashes, first.error, first.priority) h
  CROSS JOIN LATERAL (SELECT n.ctid AS row, n.retry_count FROM seriatim.lane n WHERE n.number = first.lane OFFSET 0) n
  WHERE l.ctid = n.row
  RETURNING l.queue, seriatim.turned(n.retry_count, l.retry_count) AS turned)
  INSERT INTO seriatim.tally (queue, retrying) SELECT queue, sum(turned) FROM held WHERE turned <> 0 GROUP BY queue;
END $$;

-- When a claim of this queue may next find something. Each class is asked for its first lane: any lane would do, but
-- then the planner may scan all lanes of the queue. The first look begins behind the last lane taken: before it, the
-- index still has all that this call took.
CREATE FUNCTION seriatim.next_due(_queue int, _routes bigint[], _now bigint, _priority smallint, _at bigint,
  _number bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (r * 2), (r * 2 + 1)) c (class)
    CROSS JOIN LATERAL (
      SELECT FROM seriatim.ready l
      WHERE l.queue = _queue AND l.class = c.class AND (l.priority, l.at, l.number) > (_priority, _at, _number)
      ORDER BY priority, at, number LIMIT 1) x) THEN
    RETURN _now;
  END IF;
  RETURN (
    SELECT CASE WHEN EXISTS (
        SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (r * 2), (r * 2 + 1)) c (class)
        CROSS JOIN LATERAL (
          SELECT FROM seriatim.ready l WHERE l.queue = _queue AND l.class = c.class
          ORDER BY priority, at, number LIMIT 1) x) THEN _now
      ELSE seriatim.next_wake(_queue) END);
END $$;

-- The first of these locked lanes whose turns together fit into _room bytes, and what those take of it.
CREATE FUNCTION seriatim.fitting(_q seriatim.queue, _lanes bigint[], _now bigint, _jobs_max int, _bytes_max bigint,
  _room bigint, _job_bytes int, OUT o_lanes bigint[], OUT o_bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT array_agg(x.number ORDER BY x.place), max(x.bytes) INTO o_lanes, o_bytes FROM (
      SELECT w.number, w.place, sum(t.bytes + t.jobs * _job_bytes) OVER (ORDER BY w.place) AS bytes
      FROM unnest(_lanes) WITH ORDINALITY w (number, place)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
      CROSS JOIN LATERAL (
        SELECT octet_length(l.payload) AS bytes, 1 AS jobs WHERE l.payload IS NOT NULL
        UNION ALL
        SELECT octet_length(o.payload), 1
        FROM seriatim.first_job(l.number, _q.mode, greatest(_now, l.at)) o
        WHERE l.payload IS NULL AND seriatim.takes_one(_q)
        UNION ALL
        SELECT sum(o.bytes), count(*)
        FROM seriatim.next_jobs(l.number, l.retry_count < 0 AND l.crashes = 0, _q.mode, _q.take, _now,
          _jobs_max, _bytes_max) o
        WHERE l.payload IS NULL AND NOT seriatim.takes_one(_q)
        HAVING count(*) > 0) t) x
    WHERE x.bytes <= _room;
END $$;

-- Claims locked lanes, each in the cheapest form, and returns their turns. Separate statements after the lanes are
-- locked: their snapshots include everything that a push committed before the lock.
CREATE FUNCTION seriatim.hold(_q seriatim.queue, _lanes bigint[], _token bigint, _node text, _own boolean,
  _ttl bigint, _now bigint, _jobs_max int, _bytes_max bigint) RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
DECLARE
  _all bigint[] := _lanes;
  _packed bigint[];
BEGIN
  SELECT array_agg(l.number) FILTER (WHERE payload IS NOT NULL),
    array_agg(l.number) FILTER (WHERE payload IS NULL)
  INTO _packed, _lanes FROM seriatim.lane l WHERE l.number = ANY (_lanes);
  IF _packed IS NULL AND seriatim.takes_one(_q) THEN
    RETURN QUERY SELECT t.* FROM seriatim.hold_one(_q, _all, _token, _node, _own, _ttl, _now, NULL, NULL) t;
    RETURN;
  END IF;
  IF _packed IS NOT NULL THEN
    PERFORM FROM seriatim.hold_packed(_q, _packed, _token, _node, _own, _ttl, _now);
  END IF;
  IF _lanes IS NOT NULL AND seriatim.takes_one(_q) THEN
    PERFORM FROM seriatim.hold_one(_q, _lanes, _token, _node, _own, _ttl, _now, NULL, NULL);
  ELSIF _lanes IS NOT NULL THEN
    IF _q.mode = 1 THEN
      _lanes := seriatim.hold_whole(_q.counted, _lanes, _token, _node, _own, _ttl, _now, _jobs_max, _bytes_max);
    END IF;
    IF _lanes IS NOT NULL THEN
      PERFORM seriatim.close_jobs(_lanes, _q.mode, _q.take, _now, _jobs_max, _bytes_max);
      PERFORM seriatim.hold_lanes(_q.counted, _lanes, _q.mode, _token, _node, _own, _ttl, _now);
    END IF;
  END IF;
  -- In their order.
  RETURN QUERY SELECT t.* FROM seriatim.turns_of(_all) t;
END $$;

-- The turns of these lanes, lane by lane.
CREATE FUNCTION seriatim.turns_of(_lanes bigint[]) RETURNS SETOF seriatim.taken
LANGUAGE sql STABLE AS $$
  SELECT l.number, l.queue, q.name, l.key, l.token, l.retry_count, l.crashes, l.error, l.claimed_at,
    j.seq, j.created_at, j.task, j.payload, j.score, j.priority, j.run_at, j.attempt, j.options
  FROM unnest(_lanes) WITH ORDINALITY w (number, place)
  CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
  JOIN seriatim.queue q ON q.number = l.queue
  CROSS JOIN LATERAL (
    SELECT l.number AS seq, l.created_at, l.task, l.payload, l.score, l.priority,
      l.packed_run_at AS run_at, 1 AS attempt, l.options
    WHERE l.payload IS NOT NULL
    UNION ALL
    SELECT i.seq, i.created_at, i.task, i.payload, i.score, i.priority, i.run_at, i.attempts + 1, i.options
    FROM seriatim.owned(l.number, q.mode, l.taken, l.joined) i) j
  ORDER BY w.place, j.score, j.seq
$$;

-- The last row has o_next_due and o_cut. The others are the jobs, turn by turn.
CREATE FUNCTION seriatim.claim(_now bigint, _name text, _node text, _node_name text, _groups text[],
  _lanes_max int, _crashed_max int, _own boolean, _ttl bigint, _promote_max int, _jobs_max int,
  _bytes_max bigint, _room bigint, _job_bytes int, _declared boolean, _ticket bigint, _series int)
RETURNS TABLE (o_next_due bigint, o_cut boolean, lane bigint, queue int, name text, key text,
  token bigint, retry_count int, crashes int, error text, claimed_at bigint, seq bigint,
  created_at bigint, task text, payload bytea, score float8, priority smallint, run_at bigint,
  attempt int, options text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _routes bigint[] := seriatim.routes_of(_node_name, _groups);
  _lanes bigint[];
  _spots tid[];
  _token bigint;
  _packed boolean;
  _light boolean;
  _ready int;
  _priority smallint;
  _at bigint;
  _number bigint;
  _mixed bigint[];
  _more boolean;
  _soonest bigint;
BEGIN
  PERFORM seriatim.check_node(_node, _ticket);
  SELECT * INTO _q FROM seriatim.shared_queue(_name, true);
  PERFORM seriatim.draw_tokens();
  IF _declared AND NOT _q.declared THEN
    RAISE EXCEPTION 'the queue is not declared' USING ERRCODE = 'SR005', DETAIL = _name;
  END IF;
  IF _ttl > _q.lease_max THEN
    RAISE EXCEPTION 'the lease is too long' USING ERRCODE = 'SR009', DETAIL = format('0 %s', _q.lease_max);
  END IF;
  IF _q.paused THEN
    RETURN NEXT;
    RETURN;
  END IF;
  _q := seriatim.in_series(_q, _series, _room);
  IF _q.shares IS NOT NULL THEN
    IF seriatim.goes_beside(_q, _lanes_max) THEN
      -- From here on it is like a queue without a limit.
      _q.shares := NULL;
    ELSE
      PERFORM seriatim.share_claims(_q.number);
    END IF;
    _t := coalesce(_now, seriatim.clock());
  END IF;
  PERFORM seriatim.promote(_q.number, _t, _promote_max);
  IF _q.shares IS NOT NULL THEN
    SELECT s.o_lanes, s.o_light, s.o_mixed, s.o_more, s.o_soonest, s.o_cut, s.o_now
    INTO _lanes, _light, _mixed, _more, _soonest, o_cut, _t
    FROM seriatim.share_out(_q, _routes, _lanes_max, _crashed_max, _own OR _room IS NOT NULL, _room, _jobs_max, _bytes_max,
      _job_bytes, _t, _now IS NULL) s;
  ELSIF _q.mode = 0 THEN
    SELECT * INTO _lanes, _spots, _light, _priority, _at, _number
    FROM seriatim.lock_light(_q.number, _routes, _lanes_max, _crashed_max, _own OR _room IS NOT NULL);
  ELSE
    SELECT * INTO _lanes, _spots, _light, _packed, _priority, _at, _number
    FROM seriatim.lock_ready(_q.number, _routes, _lanes_max, _crashed_max, _own OR _room IS NOT NULL);
  END IF;
  IF _q.shares IS NULL THEN
    -- A lane may have been freed after this call began, so the time of the claim is when its lane was locked.
    _t := coalesce(_now, seriatim.clock());
  END IF;
  IF _room IS NOT NULL AND _q.shares IS NULL THEN
    _ready := cardinality(_lanes);
    SELECT f.o_lanes INTO _lanes FROM seriatim.fitting(_q, _lanes, _t, _jobs_max, _bytes_max, _room, _job_bytes) f;
    _packed := false;
    o_cut := coalesce(cardinality(_lanes), 0) < _ready;
  END IF;
  IF _mixed IS NOT NULL THEN
    RETURN QUERY SELECT NULL::bigint, NULL::boolean, t.*
      FROM seriatim.hold_mixed(_q, _lanes, _mixed, _node, _own, _ttl, _t, _jobs_max, _bytes_max) t;
  ELSIF _lanes IS NOT NULL THEN
    _token := nextval('seriatim.token');
    IF _q.shares IS NULL THEN
      PERFORM seriatim.take_ready(_lanes, _spots[:cardinality(_lanes)]);
    END IF;
    PERFORM seriatim.list_batch(_token, _node, _own, _ttl, _t, CASE WHEN _light THEN _q.number END, _lanes);
    INSERT INTO seriatim.tally (queue, claimed) VALUES (_q.number, cardinality(_lanes));
  END IF;
  IF _light AND _q.shares IS NOT NULL THEN
    RETURN QUERY
      SELECT NULL::bigint, NULL::boolean, l.number, l.queue, _name, l.key, _token, l.retry_count, l.crashes, l.error, _t,
        l.number, l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, 1, l.options
      FROM unnest(_lanes) WITH ORDINALITY w (number, place)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l ORDER BY w.place;
  ELSIF _light THEN
    RETURN QUERY
      SELECT NULL::bigint, NULL::boolean, l.number, l.queue, _name, l.key, _token, l.retry_count, l.crashes, l.error, _t,
        l.number, l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, 1, l.options
      FROM seriatim.lane l WHERE l.number = ANY (_lanes) ORDER BY l.priority, l.packed_run_at, l.number;
  ELSIF _packed THEN
    RETURN QUERY SELECT NULL::bigint, NULL::boolean, t.*
      FROM seriatim.hold_packed(_q, _lanes, _token, _node, _own, _ttl, _t) t;
  ELSIF _lanes IS NOT NULL AND _mixed IS NULL THEN
    RETURN QUERY SELECT NULL::bigint, NULL::boolean, t.*
      FROM seriatim.hold(_q, _lanes, _token, _node, _own, _ttl, _t, _jobs_max, _bytes_max) t;
  END IF;
  IF _q.shares IS NULL THEN
    o_next_due := seriatim.next_due(_q.number, _routes, _t, _priority, _at, _number);
  ELSE
    o_next_due := seriatim.next_shared(_q.number, _t, _more, _soonest);
  END IF;
  RETURN NEXT;
END $$;

-- Gives claimed lanes, which the caller has locked, a new token and another holder.
CREATE FUNCTION seriatim.take_over(_lanes bigint[], _node text, _own boolean, _ttl bigint, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  _token bigint;
BEGIN
  IF coalesce(cardinality(_lanes), 0) = 0 THEN
    RETURN;
  END IF;
  PERFORM seriatim.leave_batches(ARRAY(SELECT batch FROM seriatim.lane WHERE number = ANY (_lanes)));
  _token := nextval('seriatim.token');
  PERFORM seriatim.list_batch(_token, _node, _own, _ttl, _now, NULL, _lanes);
  UPDATE seriatim.lane SET token = _token, batch = _token, holder = _node, own_lease = _own, ttl = _ttl,
    until = seriatim.later(_now, _ttl)
  WHERE number = ANY (_lanes);
END $$;

-- Declares silent nodes dead, then takes their expired claims and expired own leases under new tokens, which fences
-- the old holders. The first row tells whether the caller is dead, the others are the jobs.
CREATE FUNCTION seriatim.rescue(_now bigint, _node text, _ttl bigint, _lanes_max int, _ticket bigint)
RETURNS TABLE (o_next_due bigint, o_gone boolean, lane bigint, queue int, name text, key text,
  token bigint, retry_count int, crashes int, error text, claimed_at bigint, seq bigint,
  created_at bigint, task text, payload bytea, score float8, priority smallint, run_at bigint,
  attempt int, options text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _lanes bigint[];
BEGIN
  PERFORM seriatim.check_node(_node, _ticket);
  PERFORM FROM seriatim.node
    WHERE dead_at IS NULL AND (seriatim.later(beat_at, lease) < _t OR beat_at > seriatim.later(_t, lease))
    ORDER BY id FOR UPDATE;
  UPDATE seriatim.node SET dead_at = _t WHERE dead_at IS NULL AND seriatim.later(beat_at, lease) < _t;
  -- From before the clock was set back.
  UPDATE seriatim.node SET beat_at = _t WHERE dead_at IS NULL AND beat_at > seriatim.later(_t, lease);
  -- Not an exception: that would roll back the deaths.
  o_gone := NOT EXISTS (SELECT FROM seriatim.node WHERE id = _node AND dead_at IS NULL);
  RETURN NEXT;
  IF o_gone THEN
    RETURN;
  END IF;
  PERFORM seriatim.draw_tokens();
  -- Light claims of dead nodes first become like the others.
  PERFORM seriatim.unfold(ARRAY(
    SELECT l.number
    FROM (SELECT b.* FROM seriatim.batch b LEFT JOIN seriatim.node n ON n.id = b.node
      WHERE b.light AND (n.id IS NULL OR seriatim.later(n.beat_at, b.ttl) < _t) ORDER BY b.token OFFSET 0) b
    CROSS JOIN LATERAL unnest(b.lanes) u (number)
    CROSS JOIN LATERAL (SELECT l.number FROM seriatim.lane l WHERE l.number = u.number AND l.token = 0
      FOR UPDATE SKIP LOCKED) l
    LIMIT _lanes_max));
  SELECT array_agg(number) INTO _lanes FROM (
    SELECT l.number
    FROM (SELECT b.*, n.beat_at FROM seriatim.batch b LEFT JOIN seriatim.node n ON n.id = b.node
      WHERE CASE WHEN b.own THEN b.until < _t ELSE n.id IS NULL OR seriatim.later(n.beat_at, b.ttl) < _t END
      ORDER BY b.token OFFSET 0) b
    CROSS JOIN LATERAL unnest(b.lanes) u (number)
    CROSS JOIN LATERAL (SELECT l.number FROM seriatim.lane l
      WHERE l.number = u.number AND l.batch = b.token AND CASE WHEN b.own THEN l.until < _t AND NOT EXISTS (
          SELECT FROM seriatim.extension e WHERE e.lane = l.number AND e.token = l.token AND e.until >= _t)
        ELSE b.beat_at IS NULL OR seriatim.later(b.beat_at, l.ttl) < _t END
      FOR UPDATE SKIP LOCKED) l
    LIMIT _lanes_max) x;
  PERFORM seriatim.take_over(_lanes, _node, false, _ttl, _t);
  RETURN QUERY SELECT NULL::bigint, false, t.* FROM seriatim.turns_of(_lanes) t;
END $$;

-- Releases claims of a key, a lane, a queue or a node: a new token, no holder, an expired lease. Lanes are locked in
-- the common order and then checked again.
CREATE FUNCTION seriatim.release(_now bigint, _name text, _key text, _queue bigint, _lane bigint, _node text,
  _made_by bigint, _nobody text, _lanes_max int) RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _number int := CASE WHEN _name IS NULL THEN _queue ELSE seriatim.queue_number(_name) END;
  _lanes bigint[];
BEGIN
  PERFORM seriatim.draw_tokens();
  IF _lane IS NOT NULL OR _key IS NOT NULL THEN
    _lanes := ARRAY(SELECT number FROM seriatim.lane WHERE number = _lane AND queue = _number
      UNION ALL SELECT number FROM seriatim.lane WHERE queue = _number AND key = _key);
  ELSE
    _lanes := ARRAY(SELECT number FROM seriatim.claimed_lane
      WHERE claimed_at <= _made_by AND (_number IS NULL OR queue = _number) AND (_node IS NULL OR holder = _node)
      ORDER BY number LIMIT _lanes_max);
  END IF;
  PERFORM seriatim.lock_lanes(_lanes);
  _lanes := ARRAY(SELECT number FROM seriatim.lane
    WHERE number = ANY (_lanes) AND claimed AND claimed_at <= _made_by AND (_node IS NULL OR holder = _node) ORDER BY number);
  PERFORM seriatim.take_over(_lanes, _nobody, true, 0, _t);
  RETURN QUERY SELECT t.* FROM seriatim.turns_of(_lanes) t;
END $$;
