-- Claiming lanes, and rescuing expired claims.

-- Refuses a node without a heartbeat or declared dead. Takes no lock: a node declared dead at this moment gets an
-- expired claim, which the next rescue takes. Also refuses a ticket that was given up: a call with a ticket holds its
-- node's lock shared until it ends, and give_up() takes the lock exclusively. So the row is read by a separate
-- statement after the lock.
CREATE FUNCTION seriatim.check_node(_node text, _ticket bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _given_up bigint;
BEGIN
  IF _ticket > 0 THEN
    PERFORM pg_advisory_xact_lock_shared(hashtext('node seriatim.'), hashtext(_node));
  END IF;
  SELECT given_up INTO _given_up FROM seriatim.node WHERE id = _node AND dead_at IS NULL;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the node is not registered or dead' USING ERRCODE = 'SR004';
  END IF;
  IF _ticket BETWEEN 1 AND _given_up THEN
    RAISE EXCEPTION 'the call was given up' USING ERRCODE = 'SR008';
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
CREATE FUNCTION seriatim.routes_of(_name text, _groups text[]) RETURNS int[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT 0 || ARRAY(
      SELECT number FROM seriatim.route
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
-- returns each in order without a scan. Skips locked lanes. The ctids stay valid until this transaction changes the
-- rows.
CREATE FUNCTION seriatim.lock_ready(_queue int, _routes int[], _lanes_max int, _crashed_max int,
  OUT o_lanes bigint[], OUT o_rows tid[], OUT o_packed boolean) LANGUAGE plpgsql AS $$
BEGIN
  WITH best AS (
    SELECT w.crashed, x.*
    FROM (SELECT r * 2 AS class, 0 AS crashed, _lanes_max AS most FROM unnest(_routes) r
      UNION ALL SELECT r * 2 + 1, 1, least(_crashed_max, _lanes_max) FROM unnest(_routes) r) w
    CROSS JOIN LATERAL (
      SELECT number, priority, at, l.ctid AS row, payload IS NOT NULL AS packed FROM seriatim.lane l
      WHERE l.queue = _queue AND l.class = w.class
      ORDER BY priority, at, number LIMIT w.most FOR UPDATE SKIP LOCKED) x
  ), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY crashed ORDER BY priority, at, number) AS rank FROM best
  ), chosen AS (
    SELECT * FROM ranked WHERE crashed = 0 OR rank <= _crashed_max
    ORDER BY priority, at, number LIMIT _lanes_max
  )
  SELECT array_agg(number ORDER BY priority, at, number), array_agg(row ORDER BY priority, at, number),
    bool_and(packed)
  INTO o_lanes, o_rows, o_packed FROM chosen;
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

-- Whether a turn is one job.
CREATE FUNCTION seriatim.takes_one(_q seriatim.queue) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT _q.mode IN (0, 3) OR _q.mode = 2 AND _q.take = 1
$$;

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

-- The claims, in four forms. Tokens are drawn under the locks of the lanes: otherwise a later claim of a lane could
-- get a lower one.

-- Packed lanes: one statement writes the claim and returns the turns. It sorts by the given order, since an UPDATE has
-- the planner's.
CREATE FUNCTION seriatim.hold_packed(_name text, _lanes bigint[], _rows tid[], _node text, _own boolean,
  _ttl bigint, _now bigint) RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY WITH held AS (
    UPDATE seriatim.lane l
    SET token = nextval('seriatim.token'), claimed = true, holder = _node, own_lease = _own,
      ttl = greatest(_ttl, seriatim.capped(l.queue, l.lease_ttl)),
      until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, l.lease_ttl))),
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL
    FROM unnest(_lanes, _rows) WITH ORDINALITY w (number, row, place)
    WHERE l.ctid = w.row AND l.number = w.number AND l.payload IS NOT NULL
    RETURNING w.place, l.*
  )
  SELECT l.number, l.queue, _name, l.key, l.token, l.retry_count, l.crashes, l.error, l.claimed_at,
    l.number, l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, 1, l.options
  FROM held l ORDER BY l.place;
END $$;

-- In accumulate, if all waiting jobs are taken: later arrivals have higher numbers. Returns the lanes of which only a
-- part can be taken.
CREATE FUNCTION seriatim.hold_whole(_lanes bigint[], _node text, _own boolean, _ttl bigint,
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
    SET token = nextval('seriatim.token'), claimed = true, holder = _node, own_lease = _own,
      ttl = greatest(_ttl, seriatim.capped(l.queue, k.ttl)), until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, k.ttl))),
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, next_due = NULL,
      taken = k.last
    FROM looked k
    CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = k.number OFFSET 0) n
    WHERE l.ctid = n.row AND k.whole
  )
  SELECT array_agg(number) INTO _parts FROM looked WHERE NOT whole;
  RETURN _parts;
END $$;

-- If a turn is one job. A ready lane stays ready if the clock steps back.
CREATE FUNCTION seriatim.hold_one(_lanes bigint[], _mode smallint, _node text, _own boolean,
  _ttl bigint, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.lane l
  SET token = nextval('seriatim.token'), claimed = true, holder = _node, own_lease = _own,
    ttl = greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl)), until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl))),
    claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, next_due = NULL,
    taken = h.seq, due = h.run_at, retry_count = h.retry_count, crashes = h.crashes, error = h.error,
    priority = h.priority
  FROM unnest(_lanes) w (number)
  CROSS JOIN LATERAL (SELECT n.ctid AS row, n.number, n.at FROM seriatim.lane n
    WHERE n.number = w.number OFFSET 0) n
  CROSS JOIN LATERAL seriatim.first_job(n.number, _mode, greatest(_now, n.at)) h
  WHERE l.ctid = n.row;
END $$;

-- For lanes whose jobs have been marked closed.
CREATE FUNCTION seriatim.hold_lanes(_lanes bigint[], _mode smallint, _node text, _own boolean,
  _ttl bigint, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.lane l
  SET token = nextval('seriatim.token'), claimed = true, holder = _node, own_lease = _own,
    ttl = greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl)),
    until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl))),
    claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL,
    next_due = CASE WHEN _mode = 1 AND EXISTS (
        SELECT FROM seriatim.item o WHERE o.lane = l.number AND NOT o.closed) THEN l.due END,
    due = CASE WHEN _mode = 1 THEN l.due ELSE h.run_at END,
    retry_count = CASE WHEN _mode = 1 THEN l.retry_count ELSE h.retry_count END,
    crashes = CASE WHEN _mode = 1 THEN l.crashes ELSE h.crashes END,
    error = CASE WHEN _mode = 1 THEN l.error ELSE h.error END,
    priority = CASE WHEN _mode = 1 THEN l.priority ELSE h.priority END
  FROM (
    SELECT DISTINCT ON (c.lane) c.*, max(c.lease_ttl) OVER (PARTITION BY c.lane) AS longest
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.item i WHERE i.lane = w.number AND i.closed OFFSET 0) c
    ORDER BY c.lane, c.score, c.seq
  ) first
  CROSS JOIN LATERAL (SELECT first.longest AS lease_ttl, first.run_at, first.retry_count,
    first.crashes, first.error, first.priority) h
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = first.lane OFFSET 0) n
  WHERE l.ctid = n.row;
END $$;

-- When a claim of this queue may next find something. Each class is asked for its first lane: any lane would do, but
-- then the planner may scan all lanes of the queue.
CREATE FUNCTION seriatim.next_due(_queue int, _routes int[], _now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT CASE WHEN EXISTS (
        SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (r * 2), (r * 2 + 1)) c (class)
        CROSS JOIN LATERAL (
          SELECT FROM seriatim.lane l WHERE l.queue = _queue AND l.class = c.class
          ORDER BY priority, at, number LIMIT 1) x) THEN _now
      ELSE (SELECT min(wake) FROM seriatim.lane WHERE queue = _queue AND wake IS NOT NULL) END);
END $$;

-- The first of these locked lanes whose turns together fit into _room bytes.
CREATE FUNCTION seriatim.fitting(_q seriatim.queue, _lanes bigint[], _now bigint, _jobs_max int, _bytes_max bigint,
  _room bigint, _job_bytes int) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT array_agg(x.number ORDER BY x.place) FROM (
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
    WHERE x.bytes <= _room);
END $$;

-- Claims locked lanes, each in the cheapest form. Separate statements after the lanes are locked: their snapshots
-- include everything that a push committed before the lock.
CREATE FUNCTION seriatim.hold(_q seriatim.queue, _lanes bigint[], _node text, _own boolean,
  _ttl bigint, _now bigint, _jobs_max int, _bytes_max bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _packed bigint[];
  _rows tid[];
BEGIN
  SELECT array_agg(l.number) FILTER (WHERE payload IS NOT NULL),
    array_agg(l.ctid) FILTER (WHERE payload IS NOT NULL),
    array_agg(l.number) FILTER (WHERE payload IS NULL)
  INTO _packed, _rows, _lanes FROM seriatim.lane l WHERE l.number = ANY (_lanes);
  IF _packed IS NOT NULL THEN
    PERFORM FROM seriatim.hold_packed(_q.name, _packed, _rows, _node, _own, _ttl, _now);
  END IF;
  IF _lanes IS NULL THEN
    RETURN;
  END IF;
  IF seriatim.takes_one(_q) THEN
    PERFORM seriatim.hold_one(_lanes, _q.mode, _node, _own, _ttl, _now);
    RETURN;
  END IF;
  IF _q.mode = 1 THEN
    _lanes := seriatim.hold_whole(_lanes, _node, _own, _ttl, _now, _jobs_max, _bytes_max);
  END IF;
  IF _lanes IS NOT NULL THEN
    PERFORM seriatim.close_jobs(_lanes, _q.mode, _q.take, _now, _jobs_max, _bytes_max);
    PERFORM seriatim.hold_lanes(_lanes, _q.mode, _node, _own, _ttl, _now);
  END IF;
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
    FROM seriatim.item i
    WHERE i.lane = l.number AND seriatim.owns(q.mode, l.taken, i.closed, i.seq)) j
  ORDER BY w.place, j.score, j.seq
$$;

-- The last row has o_next_due and o_cut. The others are the jobs, turn by turn.
CREATE FUNCTION seriatim.claim(_now bigint, _name text, _node text, _node_name text, _groups text[],
  _lanes_max int, _crashed_max int, _own boolean, _ttl bigint, _promote_max int, _jobs_max int,
  _bytes_max bigint, _room bigint, _job_bytes int, _declared boolean, _ticket bigint)
RETURNS TABLE (o_next_due bigint, o_cut boolean, lane bigint, queue int, name text, key text,
  token bigint, retry_count int, crashes int, error text, claimed_at bigint, seq bigint,
  created_at bigint, task text, payload bytea, score float8, priority smallint, run_at bigint,
  attempt int, options text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _routes int[] := seriatim.routes_of(_node_name, _groups);
  _lanes bigint[];
  _rows tid[];
  _packed boolean;
  _ready int;
BEGIN
  PERFORM seriatim.check_node(_node, _ticket);
  SELECT * INTO _q FROM seriatim.shared_queue(_name);
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
  PERFORM seriatim.promote(_q.number, _t, _promote_max);
  SELECT * INTO _lanes, _rows, _packed
  FROM seriatim.lock_ready(_q.number, _routes, _lanes_max, _crashed_max);
  -- A lane may have been freed after this call began, so the time of the claim is when its lane was locked.
  _t := coalesce(_now, seriatim.clock());
  IF _room IS NOT NULL THEN
    _ready := cardinality(_lanes);
    _lanes := seriatim.fitting(_q, _lanes, _t, _jobs_max, _bytes_max, _room, _job_bytes);
    _packed := false;
    o_cut := coalesce(cardinality(_lanes), 0) < _ready;
  END IF;
  IF _packed THEN
    RETURN QUERY SELECT NULL::bigint, NULL::boolean, t.*
      FROM seriatim.hold_packed(_q.name, _lanes, _rows, _node, _own, _ttl, _t) t;
  ELSIF _lanes IS NOT NULL THEN
    PERFORM seriatim.hold(_q, _lanes, _node, _own, _ttl, _t, _jobs_max, _bytes_max);
    RETURN QUERY SELECT NULL::bigint, NULL::boolean, t.* FROM seriatim.turns_of(_lanes) t;
  END IF;
  o_next_due := seriatim.next_due(_q.number, _routes, _t);
  RETURN NEXT;
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
  PERFORM FROM seriatim.node WHERE dead_at IS NULL AND seriatim.later(beat_at, lease) < _t
    ORDER BY id FOR UPDATE;
  UPDATE seriatim.node SET dead_at = _t WHERE dead_at IS NULL AND seriatim.later(beat_at, lease) < _t;
  -- Not an exception: that would roll back the deaths.
  o_gone := NOT EXISTS (SELECT FROM seriatim.node WHERE id = _node AND dead_at IS NULL);
  RETURN NEXT;
  IF o_gone THEN
    RETURN;
  END IF;
  PERFORM seriatim.draw_tokens();
  SELECT array_agg(number) INTO _lanes FROM (
    SELECT l.number FROM seriatim.lane l LEFT JOIN seriatim.node n ON n.id = l.holder
    WHERE l.claimed AND CASE WHEN l.own_lease THEN l.until < _t
      ELSE n.id IS NULL OR seriatim.later(n.beat_at, l.ttl) < _t END
    ORDER BY l.number LIMIT _lanes_max FOR UPDATE OF l SKIP LOCKED) x;
  UPDATE seriatim.lane SET token = nextval('seriatim.token'), holder = _node, own_lease = false,
    ttl = _ttl, until = seriatim.later(_t, _ttl)
  WHERE number = ANY (_lanes);
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
  _lanes := ARRAY(SELECT number FROM seriatim.lane
    WHERE claimed AND claimed_at <= _made_by AND (_number IS NULL OR queue = _number) AND (_key IS NULL OR key = _key)
      AND (_lane IS NULL OR number = _lane) AND (_node IS NULL OR holder = _node)
    ORDER BY number LIMIT _lanes_max);
  PERFORM seriatim.lock_lanes(_lanes);
  _lanes := ARRAY(SELECT number FROM seriatim.lane
    WHERE number = ANY (_lanes) AND claimed AND claimed_at <= _made_by AND (_node IS NULL OR holder = _node) ORDER BY number);
  UPDATE seriatim.lane SET token = nextval('seriatim.token'), holder = _nobody, own_lease = true, ttl = 0, until = _t
  WHERE number = ANY (_lanes);
  RETURN QUERY SELECT t.* FROM seriatim.turns_of(_lanes) t;
END $$;
