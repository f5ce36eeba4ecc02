-- Pushing.

-- What a push has to know of the lanes of its jobs.
CREATE TYPE seriatim.joined AS (
  -- The lane of each job, NULL if it is packed in the lane or has none; and the same if arrive() may have to move the lane.
  lanes bigint[],
  arrivals bigint[],
  -- Whether one of the lanes does not exist, and whether one is bound to another route.
  missing boolean,
  others boolean,
  -- Lanes whose jobs need rows of their own, and waiting lanes that have a new first job or may be due earlier.
  packed bigint[],
  moved bigint[]
);

-- The route numbers of a batch, in its order.
CREATE FUNCTION seriatim.routes_for(_node text[], _group text[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  IF array_remove(_node, NULL) = '{}' AND array_remove(_group, NULL) = '{}' THEN
    RETURN array_fill(0::bigint, ARRAY[cardinality(_node)]);
  END IF;
  INSERT INTO seriatim.route (node, consumer_group)
    SELECT DISTINCT coalesce(w.node, '') COLLATE "C" AS n, coalesce(w.grp, '') COLLATE "C" AS g
    FROM unnest(_node, _group) w (node, grp)
    WHERE (w.node IS NOT NULL OR w.grp IS NOT NULL) AND NOT EXISTS (
      SELECT FROM seriatim.route r
      WHERE r.node = coalesce(w.node, '') AND r.consumer_group = coalesce(w.grp, ''))
    ORDER BY n, g
  ON CONFLICT DO NOTHING;
  -- ROUTES_MAX in `model/limits.rs`: a higher number would be taken for that of another group.
  IF FOUND AND (SELECT max(number) FROM seriatim.route) > 1000000 THEN
    RAISE EXCEPTION 'too many routes' USING ERRCODE = 'SR029';
  END IF;
  -- A new statement: it sees a row that a concurrent push inserted first.
  RETURN (
    SELECT array_agg(coalesce(r.number, 0)::bigint ORDER BY place)
    FROM unnest(_node, _group) WITH ORDINALITY w (node, grp, place)
    LEFT JOIN seriatim.route r
      ON r.node = coalesce(w.node, '') AND r.consumer_group = coalesce(w.grp, ''));
END $$;

-- Whether these queues and routes exist.
CREATE FUNCTION seriatim.has_room(_queues jsonb, _node text[], _group text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT EXISTS (SELECT FROM jsonb_array_elements(_queues) w (p)
      WHERE NOT EXISTS (SELECT FROM seriatim.queue q WHERE q.name = w.p->>'name' OFFSET 0))
    AND NOT EXISTS (SELECT FROM unnest(_node, _group) w (node, grp)
      WHERE (w.node IS NOT NULL OR w.grp IS NOT NULL) AND NOT EXISTS (SELECT FROM seriatim.route r
        WHERE r.node = coalesce(w.node, '') AND r.consumer_group = coalesce(w.grp, '') OFFSET 0));
END $$;

-- Creates missing lanes and locks all of them in order. The upsert makes a push and a settle of the same lane wait for
-- each other: a push that checked for a claim first and then wrote would strand its job. Returns the lane of each job,
-- NULL without a key. A new lane is due at -1 until arrive() sets it.
CREATE FUNCTION seriatim.open_lanes(_queue int[], _key text[], _route bigint[], _name text[], _scope int[],
  _scope_key text[], _now bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  WITH fresh AS MATERIALIZED (
    -- Numbered by first appearance, ignoring duplicates: among equals, lanes are claimed by age.
    SELECT f.*, nextval('seriatim.seq') AS number FROM (
      SELECT queue, key, (array_agg(route ORDER BY place))[1] AS route
      FROM unnest(_queue, _key, _route, _name, _scope, _scope_key)
        WITH ORDINALITY w (queue, key, route, name, scope, scope_key, place)
      WHERE key IS NOT NULL GROUP BY queue, key
      ORDER BY coalesce(min(place) FILTER (WHERE name IS NULL OR (
        SELECT r.o_seq FROM seriatim.remembered(scope, scope_key, name, _now) r) IS NULL), min(place))) f
  )
  , opened AS (
    INSERT INTO seriatim.lane AS l (number, queue, key, due, route)
      SELECT number, queue, key, -1, route FROM fresh ORDER BY queue, key COLLATE "C"
    ON CONFLICT (queue, key) WHERE key IS NOT NULL DO UPDATE SET token = l.token
    RETURNING l.queue, l.number)
  INSERT INTO seriatim.tally (queue, lanes)
    SELECT queue, count(*) FROM opened WHERE CASE WHEN number IN (SELECT number FROM fresh) THEN true END GROUP BY queue;
  RETURN ARRAY(
    SELECT l.number FROM unnest(_queue, _key) WITH ORDINALITY w (queue, key, place)
    LEFT JOIN LATERAL (SELECT n.number FROM seriatim.lane n WHERE n.queue = w.queue AND n.key = w.key OFFSET 0) l ON true
    ORDER BY w.place);
END $$;

-- Refuses jobs with another route than the waiting jobs of their lane, in modes where the route is the lane's.
CREATE FUNCTION seriatim.check_routes(_lanes bigint[], _route bigint[], _name text[] DEFAULT '{}', _scope int[] DEFAULT '{}',
  _scope_key text[] DEFAULT '{}', _t bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _bad record;
BEGIN
  SELECT w.place, l.key INTO _bad
  FROM unnest(_lanes, _route, _name, _scope, _scope_key) WITH ORDINALITY w (lane, route, name, scope, scope_key, place)
  CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n
    WHERE n.number = w.lane AND n.route <> w.route OFFSET 0) l
  JOIN seriatim.queue q ON q.number = l.queue AND q.mode IN (1, 2)
  WHERE (seriatim.remembered(w.scope, w.scope_key, w.name, _t)).o_seq IS NULL
  ORDER BY w.place LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'jobs that wait for the key are bound to another node or group' USING ERRCODE = 'SR003', DETAIL = _bad.place - 1;
  END IF;
END $$;

-- Refuses jobs with a key, or without one, if the mode forbids it, those with a group where there are none, and those with
-- too long a lease. Returns whether one of the queues has a window, and whether one has a throttle.
CREATE FUNCTION seriatim.check_jobs(_queue int[], _key text[], _lease_ttl bigint[], _grp bigint[], OUT o_windows boolean,
  OUT o_throttles boolean)
LANGUAGE plpgsql AS $$
DECLARE
  _bad record;
  _modes int;
  _lease_max bigint;
  _grouped boolean;
BEGIN
  -- Mostly all jobs are of one kind and right: then none is looked at for itself.
  SELECT bit_or(CASE WHEN mode = 0 THEN 1 ELSE 2 END), min(lease_max), bool_or(quiet IS NOT NULL), bool_or(throttle IS NOT NULL),
    bool_and(grouped)
  INTO _modes, _lease_max, o_windows, o_throttles, _grouped
  FROM seriatim.queue WHERE number = ANY (_queue);
  IF (CASE _modes WHEN 1 THEN array_remove(_key, NULL) = '{}' WHEN 2 THEN array_position(_key, NULL) IS NULL END)
    AND (array_remove(_lease_ttl, NULL) = '{}' OR _lease_max >= ALL (array_remove(_lease_ttl, NULL)))
    AND (_grouped OR _grp = '{}') THEN
    RETURN;
  END IF;
  SELECT w.place, q.mode, q.lease_max, (q.mode <> 0) <> (w.key IS NOT NULL) AS of_key, w.grp <> 0 AND NOT q.grouped AS of_group
  INTO _bad
  FROM unnest(_queue, _key, _lease_ttl, _grp) WITH ORDINALITY w (queue, key, lease_ttl, grp, place)
  JOIN seriatim.queue q ON q.number = w.queue
  WHERE (q.mode <> 0) <> (w.key IS NOT NULL) OR w.lease_ttl > q.lease_max OR w.grp <> 0 AND NOT q.grouped
  ORDER BY w.place LIMIT 1;
  IF FOUND AND NOT _bad.of_key AND _bad.of_group THEN
    RAISE EXCEPTION 'the queue has no groups' USING ERRCODE = 'SR012', DETAIL = _bad.place - 1;
  ELSIF FOUND AND NOT _bad.of_key THEN
    RAISE EXCEPTION 'the lease is too long' USING ERRCODE = 'SR009',
      DETAIL = format('%s %s', _bad.place - 1, _bad.lease_max);
  ELSIF FOUND THEN
    RAISE EXCEPTION 'the mode of the queue requires a key, or forbids one' USING ERRCODE = 'SR001',
      DETAIL = format('%s %s', _bad.place - 1, _bad.mode);
  END IF;
END $$;

-- Where the idempotency keys of a batch are remembered: by queue and key, or in queue 0 for the whole store. The options
-- say which: so a batch without idempotency keys carries nothing for it.
CREATE FUNCTION seriatim.scopes(_queue int[], _key text[], _name text[], _options text[], OUT _scope int[],
  OUT _scope_key text[]) LANGUAGE sql IMMUTABLE AS $$
  SELECT array_agg(CASE WHEN s.whole THEN 0 ELSE w.queue END ORDER BY w.place),
    array_agg(CASE WHEN NOT s.whole THEN w.key END ORDER BY w.place)
  FROM unnest(_queue, _key, _name, _options) WITH ORDINALITY w (queue, key, name, options, place)
  CROSS JOIN LATERAL (SELECT CASE WHEN w.name IS NULL THEN false
    ELSE coalesce(w.options::json->>'idempotency_scope', '') = 'store' END AS whole) s
$$;

-- Whether no row has any of these names, expired or not.
CREATE FUNCTION seriatim.are_new(_queue int[], _key text[], _name text[]) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT NOT EXISTS (SELECT FROM unnest(_queue, _key, _name) w (queue, key, name)
    CROSS JOIN LATERAL (SELECT FROM seriatim.idempotency i
      WHERE i.queue = w.queue AND i.key = coalesce(w.key, '') AND i.name = w.name OFFSET 0) i
    WHERE w.name IS NOT NULL)
$$;

-- Reserves the idempotency keys of a batch in order, so that two pushes of one key wait for each other even if no lane
-- makes them.
CREATE FUNCTION seriatim.take_names(_queue int[], _key text[], _name text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.idempotency AS i (queue, key, name, of_queue, seq, created_at, until)
    SELECT DISTINCT w.queue, coalesce(w.key, '') COLLATE "C" AS k, w.name COLLATE "C" AS n, 0, 0, 0, 0
    FROM unnest(_queue, _key, _name) w (queue, key, name)
    WHERE w.name IS NOT NULL
    ORDER BY w.queue, k, n
  ON CONFLICT (queue, key, name) DO UPDATE SET until = i.until;
END $$;

-- Whether a job with this number is stored, waiting or ended.
CREATE FUNCTION seriatim.has_job(_seq bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (SELECT FROM seriatim.item j WHERE j.seq = _seq)
    OR EXISTS (SELECT FROM seriatim.lane j WHERE j.number = _seq AND j.payload IS NOT NULL)
    OR EXISTS (SELECT FROM seriatim.ended j WHERE j.seq = _seq)
    OR EXISTS (SELECT FROM seriatim.alias j WHERE j.seq = _seq)
$$;

-- The first job of an idempotency key, if the key has not expired or the job is still stored.
CREATE FUNCTION seriatim.remembered(_queue int, _key text, _name text, _now bigint,
  OUT o_queue int, OUT o_seq bigint, OUT o_created_at bigint) LANGUAGE sql VOLATILE AS $$
  SELECT i.of_queue, i.seq, i.created_at FROM seriatim.idempotency i
  WHERE i.queue = _queue AND i.key = coalesce(_key, '') AND i.name = _name AND i.seq <> 0
    AND (i.until > _now OR seriatim.has_job(i.seq))
$$;

-- Updates due times of accumulate lanes for arrivals. One write per lane: repeated updates of a row in one transaction
-- leave versions that all have to be scanned.
CREATE FUNCTION seriatim.arrive(_lanes bigint[], _run_at bigint[], _priority smallint[],
  _status smallint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _moves seriatim.move[];
BEGIN
  WITH arrived AS (
  UPDATE seriatim.lane l
  SET next_due = CASE
      WHEN NOT l.claimed THEN l.next_due
      WHEN a.rule THEN least(l.next_due, a.earliest)
      ELSE coalesce(l.next_due, a.first) END,
    due = CASE
      WHEN l.claimed THEN l.due
      WHEN l.due < 0 AND NOT a.rule THEN a.first
      WHEN l.due < 0 THEN a.earliest
      WHEN a.rule THEN least(l.due, a.earliest)
      ELSE l.due END,
    priority = CASE WHEN l.claimed THEN l.priority ELSE least(l.priority, a.priority) END
  FROM (
    SELECT g.*, n.*, q.earliest AS rule
    FROM (SELECT w.lane, (array_agg(w.run_at ORDER BY w.place))[1] AS first,
      min(w.run_at) AS earliest, min(w.priority) AS priority
    FROM unnest(_lanes, _run_at, _priority, _status) WITH ORDINALITY
      w (lane, run_at, priority, status, place)
    WHERE w.status < 2 AND w.lane IS NOT NULL
    GROUP BY w.lane) g
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.queue, n.priority AS was_priority FROM seriatim.lane n
      WHERE n.number = g.lane OFFSET 0) n
    JOIN seriatim.queue q ON q.number = n.queue AND q.mode = 1
  ) a
  WHERE l.ctid = a.row AND (a.rule OR CASE WHEN l.claimed THEN l.next_due IS NULL
      ELSE l.due < 0 OR a.priority < l.priority END)
  RETURNING l.queue, l.number, l.class AS was_class, a.was_priority, l.at AS was_at, l.class, l.priority, l.at
  )
  SELECT array_agg(ROW(a.*)::seriatim.move) INTO _moves
  FROM arrived a WHERE class IS NOT NULL AND was_priority <> priority;
  IF _moves IS NOT NULL THEN
    PERFORM seriatim.move_ready(_moves);
  END IF;
END $$;

-- Inserts a packed lane for each job that is the first of its lane, and locks the existing lanes, all in one order.
-- Returns the places of the jobs stored. The conflict that updates nothing still takes the lock, so a push and a
-- settle of the same lane wait for each other: a push that checked for a claim first and then wrote would strand its
-- job.
CREATE FUNCTION seriatim.push_packed(_queue int[], _key text[], _task text[], _digest bytea[],
  _score float8[], _priority smallint[], _run_at bigint[], _options text[], _lease_ttl bigint[],
  _routes bigint[], _payload bytea[], _seqs bigint[], _keyed boolean, _now bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  _fifo int[] := ARRAY(SELECT number FROM seriatim.queue WHERE number = ANY (_queue) AND mode = 2);
  _stored bigint[] := _seqs;
  _all boolean;
BEGIN
  IF _keyed THEN
    WITH stored AS (
      INSERT INTO seriatim.lane AS l (number, queue, key, route, due, class, priority, at, wake,
          packed_run_at, digest, task, score, created_at, options, lease_ttl, payload)
        SELECT _seqs[i], f.queue, f.key, _routes[i], _run_at[i], CASE WHEN _run_at[i] <= _now THEN _routes[i] * 2 END,
          _priority[i], _run_at[i], CASE WHEN _run_at[i] > _now THEN _run_at[i] END, _run_at[i], _digest[i], _task[i],
          coalesce(_score[i], CASE WHEN f.queue = ANY (_fifo) THEN 0 ELSE _now / 1e6::float8 END), _now, _options[i],
          _lease_ttl[i], _payload[i]
        FROM (
          -- Narrow rows are sorted faster.
          SELECT DISTINCT ON (u.queue, u.key COLLATE "C", u.one) u.queue, u.key, u.i
          FROM (SELECT _queue[i] AS queue, _key[i] AS key, CASE WHEN _key[i] IS NULL THEN i END AS one, i
            FROM generate_subscripts(_key, 1) i) u
          ORDER BY u.queue, u.key COLLATE "C", u.one, u.i) f
      ON CONFLICT (queue, key) WHERE key IS NOT NULL DO UPDATE SET token = l.token WHERE false
      RETURNING l.number)
    SELECT coalesce(array_agg(number), '{}') INTO _stored FROM stored;
  ELSE
    INSERT INTO seriatim.lane (number, queue, route, due, class, priority, at, wake, packed_run_at, task,
        score, created_at, options, lease_ttl, payload)
      SELECT _seqs[i], _queue[i], _routes[i], _run_at[i], CASE WHEN _run_at[i] <= _now THEN _routes[i] * 2 END,
        _priority[i], _run_at[i], CASE WHEN _run_at[i] > _now THEN _run_at[i] END, _run_at[i], _task[i],
        coalesce(_score[i], _now / 1e6::float8), _now, _options[i], _lease_ttl[i], _payload[i]
      FROM generate_subscripts(_seqs, 1) i;
  END IF;
  _all := cardinality(_stored) = cardinality(_seqs);
  INSERT INTO seriatim.ready (queue, class, priority, at, number, light)
    -- Another job for one of these lanes may follow in the batch: then its row would have to be written again.
    SELECT _queue[i], _routes[i] * 2, _priority[i], _run_at[i], _seqs[i], _all AND _lease_ttl[i] IS NULL
    FROM generate_subscripts(_seqs, 1) i
    WHERE _run_at[i] <= _now AND (_all OR CASE WHEN _seqs[i] IN (SELECT unnest(_stored)) THEN true END);
  INSERT INTO seriatim.tally (queue, lanes, jobs)
    SELECT _queue[i], count(*), count(*) FROM generate_subscripts(_seqs, 1) i
    WHERE _all OR CASE WHEN _seqs[i] IN (SELECT unnest(_stored)) THEN true END GROUP BY 1;
  RETURN _stored;
END $$;

-- Adds the jobs with an entry in _lanes to those lanes, which the caller has locked. Returns whether each is stored under
-- its own number: otherwise some were merged.
CREATE FUNCTION seriatim.push_items(_queue int[], _lanes bigint[], _task text[], _digest bytea[], _score float8[],
  _priority smallint[], _run_at bigint[], _options text[], _lease_ttl bigint[], _routes bigint[],
  _payload bytea[], _seqs bigint[], _now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _fifo int[];
  _loose int[];
  _merging int[];
  _greatest int[];
  _plain bigint;
  _new bigint;
BEGIN
  SELECT coalesce(array_agg(number) FILTER (WHERE mode = 2), '{}'), coalesce(array_agg(number) FILTER (WHERE mode = 3), '{}'),
    coalesce(array_agg(number) FILTER (WHERE mode = 1 AND merge <> 2), '{}'),
    coalesce(array_agg(number) FILTER (WHERE mode = 1 AND merge = 1), '{}')
  INTO _fifo, _loose, _merging, _greatest FROM seriatim.queue WHERE number = ANY (_queue);
  INSERT INTO seriatim.item (seq, queue, lane, merging, loose, digest, task, score, priority, run_at,
      created_at, options, lease_ttl, route, payload)
    SELECT _seqs[i], _queue[i], _lanes[i], false, _queue[i] = ANY (_loose), _digest[i], _task[i],
      coalesce(_score[i], CASE WHEN _queue[i] = ANY (_fifo) THEN 0 ELSE _now / 1e6::float8 END), _priority[i], _run_at[i],
      _now, _options[i], _lease_ttl[i], _routes[i], _payload[i]
    FROM generate_subscripts(_seqs, 1) i WHERE _lanes[i] IS NOT NULL AND _queue[i] <> ALL (_merging);
  GET DIAGNOSTICS _plain = ROW_COUNT;
  IF _plain > 0 THEN
    INSERT INTO seriatim.tally (queue, jobs)
      SELECT queue, count(*) FROM unnest(_queue, _lanes) w (queue, lane)
      WHERE lane IS NOT NULL AND queue <> ALL (_merging) GROUP BY queue;
  END IF;
  IF _merging = '{}' THEN
    RETURN true;
  END IF;
  WITH merged AS (
  -- Equal jobs of the batch merge first: a statement can merge into a row only once.
  INSERT INTO seriatim.item AS i (seq, queue, lane, merging, loose, digest, task, score, priority, run_at,
      created_at, options, lease_ttl, route, payload)
    SELECT _seqs[d.place], _queue[d.place], d.lane, true, false, d.digest, _task[d.place],
      CASE WHEN _queue[d.place] = ANY (_greatest) THEN d.most ELSE d.least END, d.soonest, _run_at[d.place], _now,
      _options[d.place], _lease_ttl[d.place], _routes[d.place], _payload[d.place]
    FROM (
      SELECT j.lane, j.digest, min(j.place) AS place, min(j.score) AS least, max(j.score) AS most, min(j.priority) AS soonest
      FROM (SELECT i AS place, _lanes[i] AS lane, _digest[i] AS digest, coalesce(_score[i], _now / 1e6::float8) AS score,
          _priority[i] AS priority
        FROM generate_subscripts(_seqs, 1) i WHERE _lanes[i] IS NOT NULL AND _queue[i] = ANY (_merging)) j
      GROUP BY j.lane, j.digest) d
    ORDER BY d.place
  ON CONFLICT (lane, digest) WHERE merging AND NOT closed DO UPDATE
    SET score = CASE WHEN excluded.queue = ANY (_greatest) THEN greatest(i.score, excluded.score)
        ELSE least(i.score, excluded.score) END,
      priority = least(i.priority, excluded.priority)
  RETURNING i.queue, i.seq
  ), counted AS (
    INSERT INTO seriatim.tally (queue, jobs)
      SELECT queue, count(*) FROM merged
      WHERE CASE WHEN seq IN (SELECT u.seq FROM unnest(_seqs, _lanes) u (seq, lane) WHERE u.lane IS NOT NULL) THEN true END
      GROUP BY queue
    RETURNING jobs
  )
  SELECT coalesce(sum(jobs), 0) INTO _new FROM counted;
  RETURN _plain + _new = cardinality(array_remove(_lanes, NULL));
END $$;

-- The arrays have one entry per job; _queue has places in _queues. Returns rows in the same order; status: 0 queued, 1
-- merged, 2 duplicate, 3 refused. o_again_at: of a throttled key. _group: consumer groups. _grp: the numbers of groups; empty
-- if no job has one. _past: what happened to the jobs elsewhere (`model/past.rs`), likewise.
CREATE FUNCTION seriatim.push(_now bigint, _queues text, _queue int[], _key text[], _task text[],
  _digest bytea[], _score float8[], _priority smallint[], _at bigint[], _delay bigint[],
  _options text[], _lease_ttl bigint[], _expires_at bigint[], _name text[], _node text[],
  _group text[], _payload bytea[], _grp bigint[], _past text[])
RETURNS TABLE (o_status smallint, o_queue int, o_created_at bigint, o_seq bigint, o_again_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _known int[];
  _numbers int[];
  _routes bigint[];
  _run_at bigint[];
  _scope int[];
  _scope_key text[];
  _keyed boolean := array_remove(_key, NULL) <> '{}';
  _windows boolean;
  _throttles boolean;
  _seqs bigint[];
  _found seriatim.joined;
BEGIN
  -- First: a snapshot from before a queue was made does not show it.
  PERFORM seriatim.check_isolation();
  _known := seriatim.queues_for(_queues::jsonb);
  IF cardinality(_known) = 1 THEN
    _numbers := array_fill(_known[1], ARRAY[cardinality(_queue)]);
  ELSE
    _numbers := ARRAY(SELECT _known[_queue[i]] FROM generate_subscripts(_queue, 1) i);
  END IF;
  SELECT o_windows, o_throttles INTO _windows, _throttles FROM seriatim.check_jobs(_numbers, _key, _lease_ttl, _grp);
  _routes := seriatim.routes_for(_node, _group);
  IF _grp <> '{}' THEN
    _routes := ARRAY(SELECT seriatim.route_in(w.grp, w.bound)
      FROM unnest(_grp, _routes) WITH ORDINALITY w (grp, bound, place) ORDER BY w.place);
  END IF;
  IF _windows THEN
    _run_at := ARRAY(SELECT coalesce(w.at, seriatim.later(_t, coalesce(w.delay, q.quiet, 0)))
      FROM unnest(_at, _delay, _numbers) WITH ORDINALITY w (at, delay, queue, o)
      JOIN seriatim.queue q ON q.number = w.queue ORDER BY o);
  ELSIF array_remove(_at, NULL) = '{}' AND array_remove(_delay, NULL) = '{}' THEN
    _run_at := array_fill(_t, ARRAY[cardinality(_queue)]);
  ELSE
    _run_at := ARRAY(SELECT coalesce(w.at, seriatim.later(_t, coalesce(w.delay, 0)))
      FROM unnest(_at, _delay) WITH ORDINALITY w (at, delay, o) ORDER BY o);
  END IF;
  -- A job that fills a window by itself is not packed either.
  IF NOT (_throttles OR _past <> '{}' OR array_remove(_expires_at, NULL) <> '{}'
    OR _windows AND EXISTS (SELECT FROM unnest(_numbers, _payload) w (queue, payload)
      JOIN seriatim.queue q ON q.number = w.queue WHERE octet_length(w.payload) >= q.max_bytes)) THEN
    _seqs := ARRAY(SELECT nextval('seriatim.seq') FROM generate_subscripts(_numbers, 1));
    IF array_remove(_name, NULL) = '{}' THEN
      IF _keyed THEN
        _found := seriatim.known_lanes(_numbers, _key, _routes, _score, _priority, _seqs);
      END IF;
      RETURN QUERY SELECT * FROM seriatim.push_plain(_t, _numbers, _key, _task, _digest, _score, _priority,
        _run_at, _options, _lease_ttl, _routes, _payload, _seqs, _keyed, _windows, _found);
      RETURN;
    END IF;
    SELECT * INTO _scope, _scope_key FROM seriatim.scopes(_numbers, _key, _name, _options);
    IF seriatim.are_new(_scope, _scope_key, _name) THEN
      IF _keyed THEN
        -- Not in the savepoint below: see known_lanes().
        _found := seriatim.known_lanes(_numbers, _key, _routes, _score, _priority, _seqs);
      END IF;
      BEGIN
        RETURN QUERY SELECT * FROM seriatim.push_new(_t, _numbers, _key, _task, _digest, _score, _priority,
          _run_at, _options, _lease_ttl, _routes, _payload, _seqs, _keyed, _windows, _found, _name, _scope, _scope_key);
        RETURN;
      EXCEPTION WHEN SQLSTATE 'SR025' OR SQLSTATE 'SR003' THEN
        -- Another push took a name meanwhile. A job bound to another node is no error if its name turns out to be a repeat.
      END;
    END IF;
  END IF;
  RETURN QUERY SELECT * FROM seriatim.push_named(_t, _numbers, _key, _task, _digest, _score, _priority,
    _run_at, _options, _lease_ttl, _expires_at, _name, _routes, _payload, _windows, _past);
END $$;

-- Jobs without idempotency keys, expiry times, pasts and throttles. _found: their lanes, if known_lanes() has locked them.
CREATE FUNCTION seriatim.push_plain(_t bigint, _numbers int[], _key text[], _task text[],
  _digest bytea[], _score float8[], _priority smallint[], _run_at bigint[], _options text[],
  _lease_ttl bigint[], _routes bigint[], _payload bytea[], _seqs bigint[], _keyed boolean, _windows boolean,
  _found seriatim.joined)
RETURNS TABLE (o_status smallint, o_queue int, o_created_at bigint, o_seq bigint, o_again_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _stored bigint[];
BEGIN
  IF _found IS NULL THEN
    _stored := seriatim.push_packed(_numbers, _key, _task, _digest, _score, _priority, _run_at, _options,
      _lease_ttl, _routes, _payload, _seqs, _keyed, _t);
    IF cardinality(_stored) = cardinality(_seqs) THEN
      RETURN QUERY SELECT 0::smallint, _numbers[i], _t, _seqs[i], NULL::bigint FROM generate_subscripts(_seqs, 1) i;
      RETURN;
    END IF;
    _found := seriatim.lanes_of(_numbers, _key, _routes, _score, _priority, _seqs);
  END IF;
  RETURN QUERY SELECT * FROM seriatim.push_rest(_t, _numbers, _key, _task, _digest, _score, _priority,
    _run_at, _options, _lease_ttl, _routes, _payload, _seqs, _windows, _found);
END $$;

-- lanes_of(), if all lanes exist; otherwise NULL, and none is locked. Not in a savepoint that may be rolled back: who waits for
-- a lock that was taken in a savepoint inside it waits for the whole transaction, even if the outer one has given the lock back.
-- If a third session takes the lock then, this one waits behind the first, which waits for this one.
CREATE FUNCTION seriatim.known_lanes(_queue int[], _key text[], _routes bigint[], _score float8[], _priority smallint[],
  _seqs bigint[]) RETURNS seriatim.joined LANGUAGE plpgsql AS $$
DECLARE
  _found seriatim.joined;
BEGIN
  IF NOT seriatim.seem_known(_queue, _key) THEN
    RETURN NULL;
  END IF;
  BEGIN
    _found := seriatim.lanes_of(_queue, _key, _routes, _score, _priority, _seqs);
    IF _found.missing THEN
      -- This gives the locks back: lanes are made and locked in one order.
      RAISE EXCEPTION 'a lane is missing' USING ERRCODE = 'SR026';
    END IF;
  EXCEPTION WHEN SQLSTATE 'SR026' THEN
    RETURN NULL;
  END;
  RETURN _found;
END $$;

-- Whether all lanes of a batch seem to exist, by a few of them: then its jobs need no attempt to create them.
CREATE FUNCTION seriatim.seem_known(_queue int[], _key text[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN NOT EXISTS (
    SELECT FROM generate_series(1, cardinality(_key), greatest(cardinality(_key) / 8, 1)) i
    WHERE NOT EXISTS (SELECT FROM seriatim.lane n WHERE n.queue = _queue[i] AND n.key = _key[i] OFFSET 0));
END $$;

-- Locks the lanes of a batch, in the common order, and reads them.
CREATE FUNCTION seriatim.lanes_of(_queue int[], _key text[], _routes bigint[], _score float8[], _priority smallint[],
  _seqs bigint[]) RETURNS seriatim.joined LANGUAGE plpgsql AS $$
DECLARE
  _accumulate int[];
  _fifo int[];
  -- Queues in which each job may move its lane.
  _earliest int[];
  _found seriatim.joined;
BEGIN
  SELECT coalesce(array_agg(number) FILTER (WHERE mode = 1), '{}'), coalesce(array_agg(number) FILTER (WHERE mode = 2), '{}'),
    coalesce(array_agg(number) FILTER (WHERE mode = 3 OR mode = 1 AND earliest), '{}')
  INTO _accumulate, _fifo, _earliest FROM seriatim.queue WHERE number = ANY (_queue);
  SELECT array_agg(CASE WHEN l.joins THEN l.number END),
    array_agg(CASE WHEN l.joins AND l.queue = ANY (_accumulate) AND (l.packed OR l.queue = ANY (_earliest)
      OR CASE WHEN l.claimed THEN l.next_due IS NULL ELSE l.due < 0 OR _priority[l.place] < l.priority END)
      THEN l.number END),
    bool_or(l.number IS NULL), bool_or(l.route <> _routes[l.place]),
    array_agg(l.number) FILTER (WHERE l.joins AND (l.packed OR l.taken IS NOT NULL AND l.queue = ANY (_accumulate))),
    -- An arrival in accumulate moves its lane only through arrive(): reading the lane's jobs at each push would cost
    -- more with each waiting job. One in fifo moves its lane only if it is the first now.
    array_agg(l.number) FILTER (WHERE l.joins AND NOT l.claimed AND (l.queue = ANY (_earliest)
      OR l.queue = ANY (_fifo) AND coalesce(coalesce(_score[l.place], 0) < l.score, true)))
  INTO _found.lanes, _found.arrivals, _found.missing, _found.others, _found.packed, _found.moved
  FROM (
    SELECT w.place, l.*, l.number <> _seqs[w.place] AS joins
    FROM (SELECT i AS place, _queue[i] AS queue, _key[i] AS key FROM generate_subscripts(_key, 1) i
      ORDER BY _queue[i], _key[i] COLLATE "C" OFFSET 0) w
    LEFT JOIN LATERAL (
      SELECT n.number, n.queue, n.route, n.payload IS NOT NULL AS packed, n.taken, n.claimed, n.due, n.next_due, n.priority, n.score
      FROM seriatim.lane n WHERE n.queue = w.queue AND n.key = w.key FOR NO KEY UPDATE) l ON true
    ORDER BY w.place OFFSET 0) l;
  RETURN _found;
END $$;

-- The same with idempotency keys that nobody has used. Raises SR025 if that was not so.
CREATE FUNCTION seriatim.push_new(_t bigint, _numbers int[], _key text[], _task text[],
  _digest bytea[], _score float8[], _priority smallint[], _run_at bigint[], _options text[],
  _lease_ttl bigint[], _routes bigint[], _payload bytea[], _seqs bigint[], _keyed boolean, _windows boolean,
  _found seriatim.joined, _name text[], _scope int[], _scope_key text[])
RETURNS TABLE (o_status smallint, o_queue int, o_created_at bigint, o_seq bigint, o_again_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _states smallint[];
  _created_at bigint[];
  _new bigint;
BEGIN
  SELECT array_agg(p.o_status ORDER BY p.ordinality), array_agg(p.o_created_at ORDER BY p.ordinality),
    array_agg(p.o_seq ORDER BY p.ordinality)
  INTO _states, _created_at, _seqs
  FROM seriatim.push_plain(_t, _numbers, _key, _task, _digest, _score, _priority, _run_at, _options, _lease_ttl,
    _routes, _payload, _seqs, _keyed, _windows, _found) WITH ORDINALITY p;
  INSERT INTO seriatim.idempotency (queue, key, name, of_queue, seq, created_at, until)
    SELECT w.scope, coalesce(w.scope_key, ''), w.name, w.number, w.seq, w.created_at,
      seriatim.later(_t, q.idempotency_ttl)
    FROM unnest(_scope, _scope_key, _name, _numbers, _seqs, _created_at)
      w (scope, scope_key, name, number, seq, created_at)
    JOIN seriatim.queue q ON q.number = w.number
    WHERE w.name IS NOT NULL
    ORDER BY w.scope, coalesce(w.scope_key, '') COLLATE "C", w.name COLLATE "C"
  ON CONFLICT (queue, key, name) DO NOTHING;
  GET DIAGNOSTICS _new = ROW_COUNT;
  IF _new < cardinality(array_remove(_name, NULL)) THEN
    RAISE EXCEPTION 'an idempotency key is in use' USING ERRCODE = 'SR025';
  END IF;
  RETURN QUERY SELECT w.state, w.number, w.created_at, w.seq, NULL::bigint
    FROM unnest(_states, _numbers, _created_at, _seqs) w (state, number, created_at, seq);
END $$;

-- The jobs of a batch whose lane existed, or that are not the first of their lane in the batch: _found says which.
CREATE FUNCTION seriatim.push_rest(_t bigint, _numbers int[], _key text[], _task text[],
  _digest bytea[], _score float8[], _priority smallint[], _run_at bigint[], _options text[],
  _lease_ttl bigint[], _routes bigint[], _payload bytea[], _seqs bigint[], _windows boolean, _found seriatim.joined)
RETURNS TABLE (o_status smallint, o_queue int, o_created_at bigint, o_seq bigint, o_again_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _lanes bigint[] := _found.lanes;
  _zeros smallint[];
BEGIN
  IF _found.others THEN
    PERFORM seriatim.check_routes(_lanes, _routes);
  END IF;
  -- A job's number must be higher than those that came to its lane before. These were drawn before the lanes were
  -- locked: if no other session has drawn numbers between or after them, none came first with a higher one.
  IF _seqs[cardinality(_seqs)] - _seqs[1] <> cardinality(_seqs) - 1
    OR (SELECT last_value FROM seriatim.seq) <> _seqs[cardinality(_seqs)] THEN
    _seqs := ARRAY(SELECT CASE WHEN l IS NULL THEN s ELSE nextval('seriatim.seq') END
      FROM unnest(_seqs, _lanes) WITH ORDINALITY w (s, l, o) ORDER BY o);
  END IF;
  IF _found.packed IS NOT NULL THEN
    PERFORM seriatim.unpack(_found.packed);
  END IF;
  IF seriatim.push_items(_numbers, _lanes, _task, _digest, _score, _priority, _run_at, _options, _lease_ttl,
    _routes, _payload, _seqs, _t) THEN
    RETURN QUERY SELECT 0::smallint, _numbers[i], _t, _seqs[i], NULL::bigint FROM generate_subscripts(_seqs, 1) i;
  ELSE
    RETURN QUERY
      SELECT CASE WHEN i.seq <> w.seq THEN 1 ELSE 0 END::smallint, w.queue, coalesce(i.created_at, _t),
        coalesce(i.seq, w.seq), NULL::bigint
      FROM unnest(_numbers, _seqs, _lanes, _digest) WITH ORDINALITY w (queue, seq, lane, digest, place)
      LEFT JOIN LATERAL (
        SELECT i.seq, i.created_at FROM seriatim.item i
        WHERE i.lane = w.lane AND i.digest = w.digest AND i.merging AND NOT i.closed LIMIT 1) i ON true
      ORDER BY w.place;
  END IF;
  IF _windows OR array_remove(_found.arrivals, NULL) <> '{}' THEN
    _zeros := array_fill(0::smallint, ARRAY[cardinality(_lanes)]);
    IF _windows THEN
      PERFORM seriatim.collect(_lanes, _run_at, _zeros, _t);
    END IF;
    PERFORM seriatim.arrive(CASE WHEN _windows THEN _lanes ELSE _found.arrivals END, _run_at, _priority, _zeros);
  END IF;
  IF _found.moved IS NOT NULL THEN
    PERFORM seriatim.place(ARRAY(SELECT DISTINCT unnest(_found.moved)), _t);
  END IF;
END $$;

-- Batches with repeats, expiry times, pasts or throttled queues are stored job by job and not packed.
CREATE FUNCTION seriatim.push_named(_t bigint, _numbers int[], _key text[], _task text[],
  _digest bytea[], _score float8[], _priority smallint[], _run_at bigint[], _options text[],
  _lease_ttl bigint[], _expires_at bigint[], _name text[], _routes bigint[], _payload bytea[], _windows boolean,
  _past text[])
RETURNS TABLE (o_status smallint, o_queue int, o_created_at bigint, o_seq bigint, o_again_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _lanes bigint[];
  _seqs bigint[];
  _states smallint[] := '{}';
  _scope int[];
  _scope_key text[];
  -- Those of the jobs that need a lane: dead ones do not.
  _lane_key text[] := _key;
  _job record;
BEGIN
  IF _past <> '{}' THEN
    _lane_key := ARRAY(SELECT CASE WHEN w.past::json->>'dead_at' IS NULL THEN w.key END
      FROM unnest(_key, _past) WITH ORDINALITY w (key, past, place) ORDER BY w.place);
  END IF;
  SELECT * INTO _scope, _scope_key FROM seriatim.scopes(_numbers, _key, _name, _options);
  _lanes := seriatim.open_lanes(_numbers, _lane_key, _routes, _name, _scope, _scope_key, _t);
  PERFORM seriatim.unpack(_lanes);
  -- Before the routes: a repeat may have another one, and its first push, in another lane, may not have committed yet.
  PERFORM seriatim.take_names(_scope, _scope_key, _name);
  PERFORM seriatim.check_routes(_lanes, _routes, _name, _scope, _scope_key, _t);
  _seqs := ARRAY(SELECT nextval('seriatim.seq') FROM generate_subscripts(_numbers, 1));
  -- Without a key, the lane belongs to the job and has its number.
  _lanes := ARRAY(SELECT coalesce(w.lane, w.seq)
    FROM unnest(_lanes, _seqs) WITH ORDINALITY w (lane, seq, o) ORDER BY o);
  FOR _job IN
    SELECT w.*, q.mode, q.merge, q.idempotency_ttl, q.throttle, q.refuses, q.mode = 1 AND q.merge <> 2 AS merging,
      coalesce(w.own_score, CASE WHEN q.mode = 2 THEN 0 ELSE _t / 1e6::float8 END) AS score,
      coalesce((w.past::json->>'created_at')::bigint, _t) AS created_at, (w.past::json->>'started_at')::bigint AS started_at,
      coalesce((w.past::json->>'failures')::int, 0) AS failures, w.past::json->>'error' AS error,
      (w.past::json->>'dead_at')::bigint AS dead_at
    FROM unnest(_numbers, _lanes, _seqs, _key, _task, _digest, _score, _priority, _run_at, _options,
        _lease_ttl, _expires_at, _name, _scope, _scope_key, _routes, _payload, _past)
      WITH ORDINALITY AS w (queue, lane, seq, key, task, digest, own_score, priority, run_at, options,
        lease_ttl, expires_at, name, scope, scope_key, route, payload, past, place)
    JOIN seriatim.queue q ON q.number = w.queue
    ORDER BY w.place
  LOOP
    SELECT * INTO o_status, o_queue, o_seq, o_created_at, o_again_at FROM seriatim.push_one(_job, _t);
    -- Throttled is neither a new job nor an arrival in its lane, also if it is told as merged.
    _states := _states || o_status;
    -- Dead: new, and no arrival in its lane.
    o_status := CASE WHEN o_status = 4 THEN 0 WHEN o_status = 3 AND NOT _job.refuses THEN 1 ELSE o_status END;
    RETURN NEXT;
  END LOOP;
  INSERT INTO seriatim.tally (queue, lanes, jobs)
    SELECT queue, count(*) FILTER (WHERE key IS NULL), count(*)
    FROM unnest(_numbers, _key, _states) w (queue, key, state) WHERE state = 0 GROUP BY queue;
  IF _past <> '{}' THEN
    INSERT INTO seriatim.tally (queue, dead)
      SELECT queue, count(*) FROM unnest(_numbers, _states) w (queue, state) WHERE state = 4 GROUP BY queue;
  END IF;
  IF _windows THEN
    PERFORM seriatim.collect(_lanes, _run_at, _states, _t);
  END IF;
  PERFORM seriatim.arrive(_lanes, _run_at, _priority, _states);
  PERFORM seriatim.place(ARRAY(SELECT DISTINCT unnest(_lanes)), _t);
END $$;

-- One job of a batch, whose lane the caller has locked. Status 3: another job throttles its key; 4: it died elsewhere.
CREATE FUNCTION seriatim.push_one(_job record, _now bigint,
  OUT o_status smallint, OUT o_queue int, OUT o_seq bigint, OUT o_created_at bigint, OUT o_again_at bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _equal record;
BEGIN
  IF _job.name IS NOT NULL THEN
    SELECT * INTO o_queue, o_seq, o_created_at
    FROM seriatim.remembered(_job.scope, _job.scope_key, _job.name, _now);
    IF o_seq IS NOT NULL THEN
      o_status := 2;
      RETURN;
    END IF;
  END IF;
  IF _job.dead_at IS NOT NULL THEN
    o_status := 4;
    o_queue := _job.queue;
    o_seq := _job.seq;
    o_created_at := _job.created_at;
    INSERT INTO seriatim.ended
    VALUES (_job.seq, _job.queue, _job.key, 3, _job.dead_at, NULL, _job.digest, _job.task, _job.score, _job.priority,
      _job.run_at, _job.created_at, _job.started_at, _job.failures, _job.failures - 1, 0, _job.error, _job.options,
      _job.lease_ttl, _job.expires_at, _job.route, false, _job.payload);
    PERFORM seriatim.keep_name(_job, o_queue, o_seq, o_created_at, _now);
    RETURN;
  END IF;
  IF _job.throttle IS NOT NULL THEN
    SELECT i.of_queue, i.seq, i.created_at, i.until INTO o_queue, o_seq, o_created_at, o_again_at FROM seriatim.idempotency i
    WHERE i.queue = _job.queue AND i.key = _job.key AND i.name = '' AND i.until + 0 > _now;
    IF FOUND THEN
      o_status := 3;
      IF NOT _job.refuses THEN
        PERFORM seriatim.keep_name(_job, o_queue, o_seq, o_created_at, _now);
      END IF;
      RETURN;
    END IF;
  END IF;
  o_status := 0;
  o_queue := _job.queue;
  o_seq := _job.seq;
  o_created_at := _job.created_at;
  IF _job.merging THEN
    SELECT seq, created_at, priority, CASE _job.merge WHEN 0 THEN least(score, _job.score)
        ELSE greatest(score, _job.score) END AS merged, score INTO _equal
    FROM seriatim.item
    WHERE lane = _job.lane AND digest = _job.digest AND merging AND NOT closed;
    IF FOUND THEN
      o_status := 1;
      o_seq := _equal.seq;
      o_created_at := _equal.created_at;
      IF _equal.merged <> _equal.score OR _job.priority < _equal.priority THEN
        UPDATE seriatim.item SET score = _equal.merged, priority = least(priority, _job.priority)
        WHERE seq = _equal.seq;
      END IF;
    END IF;
  END IF;
  IF o_status = 0 THEN
    IF _job.key IS NULL THEN
      INSERT INTO seriatim.lane (number, queue, due, route)
      VALUES (_job.lane, _job.queue, _job.run_at, _job.route);
    END IF;
    IF _job.mode = 1 AND (_job.failures > 0 OR _job.error IS NOT NULL) THEN
      -- They are the lane's, and only the job that opens it sets them: arrive() has not seen that one yet.
      UPDATE seriatim.lane l SET retry_count = _job.failures - 1, error = _job.error
      WHERE l.number = _job.lane AND l.due < 0 AND NOT EXISTS (SELECT FROM seriatim.item i WHERE i.lane = l.number OFFSET 0);
      IF FOUND AND _job.failures > 0 THEN
        INSERT INTO seriatim.tally (queue, retrying) VALUES (_job.queue, 1);
      END IF;
    END IF;
    INSERT INTO seriatim.item (seq, queue, lane, merging, loose, digest, task, score, priority, run_at,
      created_at, started_at, attempts, retry_count, error, options, lease_ttl, expires_at, route, payload)
    VALUES (_job.seq, _job.queue, _job.lane, _job.merging, _job.mode = 3, _job.digest, _job.task,
      _job.score, _job.priority, _job.run_at, _job.created_at, _job.started_at, _job.failures,
      CASE WHEN _job.mode = 1 THEN -1 ELSE _job.failures - 1 END, CASE WHEN _job.mode <> 1 THEN _job.error END,
      _job.options, _job.lease_ttl, _job.expires_at, _job.route, _job.payload);
  END IF;
  PERFORM seriatim.keep_name(_job, o_queue, o_seq, o_created_at, _now);
  IF _job.throttle IS NOT NULL THEN
    -- Under a name that no job has. Pushes to the key wait for each other at its lane.
    INSERT INTO seriatim.idempotency AS i (queue, key, name, of_queue, seq, created_at, until)
    VALUES (_job.queue, _job.key, '', o_queue, o_seq, o_created_at, seriatim.later(_now, _job.throttle))
    ON CONFLICT (queue, key, name) DO UPDATE SET of_queue = excluded.of_queue, seq = excluded.seq,
      created_at = excluded.created_at, until = excluded.until;
  END IF;
END $$;

-- Writes which job the idempotency key of a job of a batch stands for.
CREATE FUNCTION seriatim.keep_name(_job record, _queue int, _seq bigint, _created_at bigint, _now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF _job.name IS NOT NULL THEN
    UPDATE seriatim.idempotency
    SET of_queue = _queue, seq = _seq, created_at = _created_at, until = seriatim.later(_now, _job.idempotency_ttl)
    WHERE queue = _job.scope AND key = coalesce(_job.scope_key, '') AND name = _job.name;
  END IF;
END $$;
