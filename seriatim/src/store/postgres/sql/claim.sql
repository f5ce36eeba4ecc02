-- Claiming, and taking over what dead holders left.

-- A node that never beat or was declared dead may not hold anything. No lock: a node that is
-- declared dead at this very moment gets a claim that has expired, and the next rescue takes it.
CREATE FUNCTION seriatim.check_node(_node text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM seriatim.node WHERE id = _node AND dead_at IS NULL) THEN
    RAISE EXCEPTION 'the node is not registered or dead' USING ERRCODE = 'SR004';
  END IF;
END $$;

-- The classes of lanes that a node may take: (route, with a crash behind it or not).
CREATE FUNCTION seriatim.routes_of(_name text, _groups text[]) RETURNS int[] LANGUAGE sql STABLE AS $$
  SELECT 0 || ARRAY(
    SELECT number FROM seriatim.route
    WHERE node IN ('', coalesce(_name, ''))
      AND (consumer_group = '' OR consumer_group = ANY (_groups)))
$$;

-- Looks again at lanes whose time has come. Lanes that somebody holds are placed by him.
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

-- Locks the best ready lanes over the given classes, best first. Each class is probed on its own,
-- so that the index gives each in order and nothing is scanned over. Nobody is waited for.
CREATE FUNCTION seriatim.lock_ready(_queue int, _routes int[], _lanes_max int, _crashed_max int)
RETURNS bigint[] LANGUAGE sql VOLATILE AS $$
  WITH best AS (
    SELECT w.crashed, x.*
    FROM (SELECT r * 2 AS class, 0 AS crashed, _lanes_max AS most FROM unnest(_routes) r
      UNION ALL SELECT r * 2 + 1, 1, least(_crashed_max, _lanes_max) FROM unnest(_routes) r) w
    CROSS JOIN LATERAL (
      SELECT number, priority, at FROM seriatim.lane l
      WHERE l.queue = _queue AND l.class = w.class
      ORDER BY priority, at, number LIMIT w.most FOR UPDATE SKIP LOCKED) x
  ), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY crashed ORDER BY priority, at, number) AS rank FROM best
  ), chosen AS (
    SELECT * FROM ranked WHERE crashed = 0 OR rank <= _crashed_max
    ORDER BY priority, at, number LIMIT _lanes_max
  )
  SELECT array_agg(number ORDER BY priority, at, number) FROM chosen
$$;

-- What the turns of these lanes own from now on. A statement of its own, after the lanes are
-- locked: its snapshot sees whatever a push committed before the lock.
CREATE FUNCTION seriatim.close_jobs(_lanes bigint[], _mode smallint, _take int, _now bigint,
  _jobs_max int, _bytes_max bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE seriatim.item i SET closed = true
  FROM (
    SELECT j.seq
    FROM unnest(_lanes) w (number)
    JOIN seriatim.lane l ON l.number = w.number
    CROSS JOIN LATERAL (
      SELECT o.seq, row_number() OVER (ORDER BY o.score, o.seq) AS rank,
        bool_and(o.fits) OVER (ORDER BY o.score, o.seq) AS fit,
        sum(o.bytes) OVER (ORDER BY o.score, o.seq) AS bytes
      FROM (
        SELECT c.seq, c.score, octet_length(c.payload) AS bytes,
          c.task IS NOT DISTINCT FROM first_value(c.task) OVER (ORDER BY c.score, c.seq)
            AND (_mode = 1 OR row_number() OVER (ORDER BY c.score, c.seq) = 1
              OR c.run_at <= _now AND c.retry_count < 0 AND c.crashes = 0) AS fits
        FROM seriatim.item c
        WHERE c.lane = l.number AND NOT c.closed
        ORDER BY c.score, c.seq
        LIMIT CASE WHEN _mode = 1 THEN _jobs_max
          WHEN l.retry_count < 0 AND l.crashes = 0 THEN _take ELSE 1 END) o
    ) j
    WHERE j.rank = 1 OR j.fit AND j.bytes <= _bytes_max
  ) t
  WHERE i.seq = t.seq
$$;

-- The same in exclusive: the best due job. A lane that is ready stays so when the clock steps back.
CREATE FUNCTION seriatim.close_best(_lanes bigint[], _now bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE seriatim.item i SET closed = true
  FROM (
    SELECT b.seq
    FROM unnest(_lanes) w (number)
    JOIN seriatim.lane l ON l.number = w.number
    CROSS JOIN LATERAL (
      SELECT c.seq FROM seriatim.item c
      WHERE c.lane = l.number AND NOT c.closed AND c.run_at <= greatest(_now, l.at)
      ORDER BY c.priority, c.run_at, c.seq LIMIT 1) b
  ) t
  WHERE i.seq = t.seq
$$;

-- The claims themselves. Tokens are drawn here, under the locks of the lanes: drawn before, a
-- later claim of a lane could get a lower one.
CREATE FUNCTION seriatim.hold_lanes(_lanes bigint[], _mode smallint, _node text, _own boolean,
  _ttl bigint, _now bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE seriatim.lane l
  SET token = nextval('seriatim.token'), claimed = true, holder = _node, own_lease = _own,
    ttl = greatest(_ttl, h.lease_ttl),
    until = seriatim.later(_now, greatest(_ttl, h.lease_ttl)),
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
    JOIN seriatim.item c ON c.lane = w.number AND c.closed
    ORDER BY c.lane, c.score, c.seq
  ) first
  CROSS JOIN LATERAL (SELECT first.longest AS lease_ttl, first.run_at, first.retry_count,
    first.crashes, first.error, first.priority) h
  WHERE l.number = first.lane
$$;

-- When a claim of this queue may next find something.
CREATE FUNCTION seriatim.next_due(_queue int, _routes int[], _now bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN EXISTS (
      SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (
        SELECT FROM seriatim.lane l
        WHERE l.queue = _queue AND l.class IN (r * 2, r * 2 + 1) LIMIT 1) x) THEN _now
    ELSE (SELECT min(wake) FROM seriatim.lane WHERE queue = _queue AND wake IS NOT NULL) END
$$;

-- The first row answers for the whole: next_due, and (of a rescue) whether the caller is dead. The
-- others are the jobs, turn by turn.
CREATE FUNCTION seriatim.claim(_now bigint, _name text, _node text, _node_name text, _groups text[],
  _lanes_max int, _crashed_max int, _own boolean, _ttl bigint, _promote_max int, _jobs_max int,
  _bytes_max bigint)
RETURNS TABLE (o_next_due bigint, o_gone boolean, o_turn seriatim.turn_job) LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _routes int[] := seriatim.routes_of(_node_name, _groups);
  _lanes bigint[];
BEGIN
  PERFORM seriatim.check_node(_node);
  PERFORM seriatim.share_queue(seriatim.queue_number(_name));
  PERFORM seriatim.draw_tokens();
  SELECT * INTO _q FROM seriatim.queue WHERE name = _name;
  IF _q.paused THEN
    RETURN NEXT;
    RETURN;
  END IF;
  PERFORM seriatim.promote(_q.number, _t, _promote_max);
  _lanes := seriatim.lock_ready(_q.number, _routes, _lanes_max, _crashed_max);
  IF _lanes IS NOT NULL THEN
    IF _q.mode = 3 THEN
      PERFORM seriatim.close_best(_lanes, _t);
    ELSE
      PERFORM seriatim.close_jobs(_lanes, _q.mode, _q.take, _t, _jobs_max, _bytes_max);
    END IF;
    PERFORM seriatim.hold_lanes(_lanes, _q.mode, _node, _own, _ttl, _t);
  END IF;
  o_next_due := seriatim.next_due(_q.number, _routes, _t);
  RETURN NEXT;
  RETURN QUERY SELECT NULL::bigint, NULL::boolean, j FROM unnest(_lanes) WITH ORDINALITY w (lane, place)
    JOIN seriatim.turn_job j ON j.lane = w.lane ORDER BY w.place, j.score, j.seq;
END $$;

-- Declares dead the nodes that are silent, then takes their expired claims, and those whose own
-- lease has run out, under new tokens: from then on the old holders' writes are refused.
CREATE FUNCTION seriatim.rescue(_now bigint, _node text, _ttl bigint, _lanes_max int)
RETURNS TABLE (o_next_due bigint, o_gone boolean, o_turn seriatim.turn_job) LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _lanes bigint[];
BEGIN
  PERFORM seriatim.check_node(_node);
  PERFORM FROM seriatim.node WHERE dead_at IS NULL AND seriatim.later(beat_at, lease) < _t
    ORDER BY id FOR UPDATE;
  UPDATE seriatim.node SET dead_at = _t WHERE dead_at IS NULL AND seriatim.later(beat_at, lease) < _t;
  -- Not an exception: that would bring the dead back to life.
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
  RETURN QUERY SELECT NULL::bigint, false, j FROM unnest(_lanes) WITH ORDINALITY w (lane, place)
    JOIN seriatim.turn_job j ON j.lane = w.lane ORDER BY w.place, j.score, j.seq;
END $$;
