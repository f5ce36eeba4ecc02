-- Pushing.

-- The numbers of the routes of a batch, in its order.
CREATE FUNCTION seriatim.routes_for(_node text[], _group text[]) RETURNS int[] LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.route (node, consumer_group)
    SELECT DISTINCT coalesce(w.node, '') AS n, coalesce(w.grp, '') AS g
    FROM unnest(_node, _group) w (node, grp)
    WHERE (w.node IS NOT NULL OR w.grp IS NOT NULL) AND NOT EXISTS (
      SELECT FROM seriatim.route r
      WHERE r.node = coalesce(w.node, '') AND r.consumer_group = coalesce(w.grp, ''))
    ORDER BY n, g
  ON CONFLICT DO NOTHING;
  -- A new statement: it sees what a concurrent push inserted first.
  RETURN (
    SELECT array_agg(coalesce(r.number, 0) ORDER BY place)
    FROM unnest(_node, _group) WITH ORDINALITY w (node, grp, place)
    LEFT JOIN seriatim.route r
      ON r.node = coalesce(w.node, '') AND r.consumer_group = coalesce(w.grp, ''));
END $$;

-- Opens the lanes that are missing and locks all of them, in order. The upsert is what makes a
-- push and the settle of the same lane wait for each other: a push that looked first whether
-- something is claimed, and then wrote, would strand its job. Returns the lane of each job, NULL
-- without a key; and which lanes are new.
CREATE FUNCTION seriatim.open_lanes(_queue int[], _key text[], _route int[],
  OUT o_lanes bigint[], OUT o_new bigint[]) LANGUAGE plpgsql AS $$
BEGIN
  WITH job AS (
    SELECT * FROM unnest(_queue, _key, _route) WITH ORDINALITY w (queue, key, route, place)
  ), fresh AS MATERIALIZED (
    -- Numbered by first appearance: among equals, lanes are claimed by age.
    SELECT f.*, nextval('seriatim.seq') AS number FROM (
      SELECT queue, key, min(place) AS place, (array_agg(route ORDER BY place))[1] AS route
      FROM job WHERE key IS NOT NULL GROUP BY queue, key ORDER BY 3) f
  ), opened AS (
    INSERT INTO seriatim.lane AS l (number, queue, key, due, route)
      SELECT number, queue, key, 0, route FROM fresh ORDER BY queue, key
    ON CONFLICT (queue, key) WHERE key IS NOT NULL DO UPDATE SET token = l.token
    RETURNING l.queue, l.key, l.number
  )
  SELECT array_agg(o.number ORDER BY j.place),
    array_agg(DISTINCT f.number) FILTER (WHERE f.number = o.number)
  INTO o_lanes, o_new
  FROM job j
  LEFT JOIN opened o ON o.queue = j.queue AND o.key = j.key
  LEFT JOIN fresh f ON f.queue = j.queue AND f.key = j.key;
END $$;

-- Refuses jobs that are bound elsewhere than what waits in their lane, where that is the lane's.
CREATE FUNCTION seriatim.check_routes(_lanes bigint[], _route int[], _idempotency text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  _bad record;
BEGIN
  SELECT w.place, l.key INTO _bad
  FROM unnest(_lanes, _route, _idempotency) WITH ORDINALITY w (lane, route, name, place)
  JOIN seriatim.lane l ON l.number = w.lane AND l.route <> w.route
  JOIN seriatim.queue q ON q.number = l.queue AND q.mode IN (1, 2)
  WHERE NOT EXISTS (SELECT FROM seriatim.idempotency i
    WHERE i.queue = l.queue AND i.key = l.key AND i.name = w.name)
  ORDER BY w.place LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'another node or group' USING ERRCODE = 'SR003', DETAIL = _bad.place - 1;
  END IF;
END $$;

CREATE FUNCTION seriatim.check_keys(_queue int[], _key text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _bad record;
BEGIN
  SELECT w.place, q.mode INTO _bad
  FROM unnest(_queue, _key) WITH ORDINALITY w (queue, key, place)
  JOIN seriatim.queue q ON q.number = w.queue
  WHERE (q.mode <> 0) <> (w.key IS NOT NULL)
  ORDER BY w.place LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'key and mode' USING ERRCODE = 'SR001',
      DETAIL = format('%s %s', _bad.place - 1, _bad.mode);
  END IF;
END $$;

-- Takes the idempotency keys of a batch, in order, so that two pushes of one key wait for each
-- other also where there is no lane that makes them.
CREATE FUNCTION seriatim.take_names(_queue int[], _key text[], _name text[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
  INSERT INTO seriatim.idempotency AS i (queue, key, name, seq, created_at, until)
    SELECT DISTINCT w.queue, coalesce(w.key, '') AS k, w.name, 0, 0, 0
    FROM unnest(_queue, _key, _name) w (queue, key, name)
    WHERE w.name IS NOT NULL
    ORDER BY w.queue, k, w.name
  ON CONFLICT (queue, key, name) DO UPDATE SET until = i.until
$$;

-- The first job of an idempotency key, if it is remembered.
CREATE FUNCTION seriatim.remembered(_queue int, _key text, _name text, _now bigint,
  OUT o_seq bigint, OUT o_created_at bigint) LANGUAGE sql VOLATILE AS $$
  SELECT i.seq, i.created_at FROM seriatim.idempotency i
  WHERE i.queue = _queue AND i.key = coalesce(_key, '') AND i.name = _name AND i.seq <> 0
    AND (i.until > _now
      OR EXISTS (SELECT FROM seriatim.item j WHERE j.seq = i.seq)
      OR EXISTS (SELECT FROM seriatim.ended j WHERE j.seq = i.seq)
      OR EXISTS (SELECT FROM seriatim.alias j WHERE j.seq = i.seq))
$$;

-- What arrivals do to the due times of accumulate lanes. One write for each lane, whatever the
-- batch: the versions of a row that one transaction writes again and again all have to be walked.
CREATE FUNCTION seriatim.arrive(_lanes bigint[], _new bigint[], _run_at bigint[], _status smallint[])
RETURNS void LANGUAGE sql VOLATILE AS $$
  UPDATE seriatim.lane l
  SET next_due = CASE
      WHEN NOT l.claimed THEN l.next_due
      WHEN q.earliest THEN least(l.next_due, a.earliest)
      ELSE coalesce(l.next_due, a.first) END,
    due = CASE
      WHEN l.claimed THEN l.due
      WHEN l.number = ANY (_new) AND NOT q.earliest THEN a.first
      WHEN l.number = ANY (_new) THEN a.earliest
      WHEN q.earliest THEN least(l.due, a.earliest)
      ELSE l.due END
  FROM (
    SELECT w.lane, (array_agg(w.run_at ORDER BY w.place))[1] AS first, min(w.run_at) AS earliest
    FROM unnest(_lanes, _run_at, _status) WITH ORDINALITY w (lane, run_at, status, place)
    WHERE w.status < 2
    GROUP BY w.lane
  ) a, seriatim.queue q
  WHERE l.number = a.lane AND q.number = l.queue AND q.mode = 1
$$;

-- The arrays hold one entry for each job; _queue counts places in _queues. Answers in their order;
-- status: 0 queued, 1 merged, 2 duplicate.
CREATE FUNCTION seriatim.push(_now bigint, _queues text, _queue int[], _key text[], _task text[],
  _digest bytea[], _score float8[], _priority smallint[], _at bigint[], _delay bigint[],
  _options text[], _lease_ttl bigint[], _expires_at bigint[], _name text[], _node text[],
  _group text[], _payload bytea[])
RETURNS TABLE (o_status smallint, o_queue int, o_created_at bigint, o_seq bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _known int[] := seriatim.queues_for(_queues::jsonb);
  _numbers int[];
  _routes int[];
  _lanes bigint[];
  _new bigint[];
  _seqs bigint[];
  _run_at bigint[];
  _states smallint[] := '{}';
  _named boolean := EXISTS (SELECT FROM unnest(_name) n WHERE n IS NOT NULL);
  _job record;
BEGIN
  _numbers := ARRAY(SELECT _known[p] FROM unnest(_queue) WITH ORDINALITY w (p, o) ORDER BY o);
  PERFORM seriatim.check_keys(_numbers, _key);
  _routes := seriatim.routes_for(_node, _group);
  SELECT * INTO _lanes, _new FROM seriatim.open_lanes(_numbers, _key, _routes);
  PERFORM seriatim.check_routes(_lanes, _routes, _name);
  IF _named THEN
    PERFORM seriatim.take_names(_numbers, _key, _name);
  END IF;
  _seqs := ARRAY(SELECT nextval('seriatim.seq') FROM generate_subscripts(_queue, 1));
  _run_at := ARRAY(SELECT coalesce(w.at, seriatim.later(_t, w.delay))
    FROM unnest(_at, _delay) WITH ORDINALITY w (at, delay, o) ORDER BY o);
  -- Without a key the lane is the job's own and has its number.
  _lanes := ARRAY(SELECT coalesce(w.lane, w.seq)
    FROM unnest(_lanes, _seqs) WITH ORDINALITY w (lane, seq, o) ORDER BY o);
  FOR _job IN
    SELECT w.*, q.mode, q.merge, q.idempotency_ttl, q.mode = 1 AND q.merge <> 2 AS merging,
      coalesce(w.own_score, CASE WHEN q.mode = 2 THEN 0 ELSE _t / 1e6::float8 END) AS score
    FROM unnest(_numbers, _lanes, _seqs, _key, _task, _digest, _score, _priority, _run_at, _options,
        _lease_ttl, _expires_at, _name, _routes, _payload)
      WITH ORDINALITY AS w (queue, lane, seq, key, task, digest, own_score, priority, run_at, options,
        lease_ttl, expires_at, name, route, payload, place)
    JOIN seriatim.queue q ON q.number = w.queue
    ORDER BY w.place
  LOOP
    SELECT * INTO o_status, o_seq, o_created_at FROM seriatim.push_one(_job, _t);
    o_queue := _job.queue;
    _states := _states || o_status;
    RETURN NEXT;
  END LOOP;
  PERFORM seriatim.arrive(_lanes, _new, _run_at, _states);
  PERFORM seriatim.place(ARRAY(SELECT DISTINCT unnest(_lanes)), _t);
END $$;

-- One job of a batch, whose lane the caller holds.
CREATE FUNCTION seriatim.push_one(_job record, _now bigint,
  OUT o_status smallint, OUT o_seq bigint, OUT o_created_at bigint) LANGUAGE plpgsql AS $$
DECLARE
  _equal record;
BEGIN
  IF _job.name IS NOT NULL THEN
    SELECT * INTO o_seq, o_created_at
    FROM seriatim.remembered(_job.queue, _job.key, _job.name, _now);
    IF o_seq IS NOT NULL THEN
      o_status := 2;
      RETURN;
    END IF;
  END IF;
  o_status := 0;
  o_seq := _job.seq;
  o_created_at := _now;
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
    INSERT INTO seriatim.item (seq, queue, lane, merging, digest, task, score, priority, run_at,
      created_at, options, lease_ttl, expires_at, route, payload)
    VALUES (_job.seq, _job.queue, _job.lane, _job.merging, _job.digest, _job.task,
      _job.score, _job.priority, _job.run_at, _now, _job.options, _job.lease_ttl, _job.expires_at,
      _job.route, _job.payload);
  END IF;
  IF _job.name IS NOT NULL THEN
    UPDATE seriatim.idempotency
    SET seq = o_seq, created_at = o_created_at, until = seriatim.later(_now, _job.idempotency_ttl)
    WHERE queue = _job.queue AND key = coalesce(_job.key, '') AND name = _job.name;
  END IF;
END $$;
