-- Queues: creating, declaring, and changing their mode.

-- Adds a queue and returns its number. The caller has locked the table.
CREATE FUNCTION seriatim.create_queue(_p jsonb, _declared boolean) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  -- The number of a deleted queue is reused.
  _number int := (SELECT n FROM generate_series(1, (_p->>'queues_max')::int) n
    WHERE NOT EXISTS (SELECT FROM seriatim.queue q WHERE q.number = n) ORDER BY n LIMIT 1);
BEGIN
  IF _number IS NULL THEN
    RAISE EXCEPTION 'too many queues' USING ERRCODE = 'SR006';
  END IF;
  INSERT INTO seriatim.queue (number, name, mode, merge, earliest, take, retain, retain_dead,
    retain_dead_max, idempotency_ttl, lease_max, definition, declared, quiet, max_wait, max_jobs, max_bytes,
    shares, grouped, counted, throttle, refuses)
  VALUES (_number, _p->>'name', (_p->>'mode')::smallint, (_p->>'merge')::smallint,
    (_p->>'earliest')::boolean, (_p->>'take')::int, (_p->>'retain')::bigint,
    (_p->>'retain_dead')::bigint, (_p->>'retain_dead_max')::bigint,
    (_p->>'idempotency_ttl')::bigint, (_p->>'lease_max')::bigint, _p->>'definition', _declared,
    (_p->>'quiet')::bigint, (_p->>'max_wait')::bigint, (_p->>'max_jobs')::int, (_p->>'max_bytes')::bigint,
    _p->'shares', coalesce((_p->>'grouped')::boolean, false), seriatim.counted_in(_p),
    (_p->>'throttle')::bigint, (_p->>'refuses')::boolean);
  RETURN _number;
END $$;

-- The groups of a declaration whose running turns are counted.
CREATE FUNCTION seriatim.counted_in(_p jsonb) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN _p ? 'counted' THEN ARRAY(SELECT n::bigint FROM jsonb_array_elements_text(_p->'counted') n) END
$$;

-- The shares of a queue that is declared with these. If it ever had groups, lanes and dead jobs of some may be left, which get
-- turns too.
CREATE FUNCTION seriatim.shares_after(_old jsonb, _new jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN _old ? 'round' THEN coalesce(_new, _old - 'limit' - 'named' || '{"each": {"weight": 1000}}')
    || jsonb_build_object('round', true) ELSE _new END
$$;

-- The numbers of queues that are pushed to, in the given order, created if missing. Until this transaction ends, their
-- modes cannot change and they cannot be deleted.
CREATE FUNCTION seriatim.queues_for(_queues jsonb) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
  _p jsonb;
  _numbers int[];
  _found bigint;
  _closing text;
BEGIN
  LOOP
    SELECT array_agg(q.number ORDER BY place) INTO _numbers
    FROM jsonb_array_elements(_queues) WITH ORDINALITY w (p, place)
    LEFT JOIN seriatim.queue q ON q.name = p->>'name';
    IF array_position(_numbers, NULL) IS NOT NULL THEN
      LOCK TABLE seriatim.queue IN SHARE ROW EXCLUSIVE MODE;
      FOR _p IN SELECT p FROM jsonb_array_elements(_queues) WITH ORDINALITY w (p, place) ORDER BY place
      LOOP
        IF NOT EXISTS (SELECT FROM seriatim.queue WHERE name = _p->>'name') THEN
          PERFORM seriatim.create_queue(_p, false);
        END IF;
      END LOOP;
      CONTINUE;
    END IF;
    PERFORM seriatim.share_queue(n.number) FROM (SELECT unnest(_numbers) AS number ORDER BY 1) n;
    -- A statement after the locks: a queue may have been deleted meanwhile, and its number reused.
    SELECT count(q.number), min(q.name) FILTER (WHERE q.closing) INTO _found, _closing
    FROM jsonb_array_elements(_queues) WITH ORDINALITY w (p, place)
    JOIN seriatim.queue q ON q.name = p->>'name' AND q.number = _numbers[place];
    IF _closing IS NOT NULL THEN
      RAISE EXCEPTION 'the queue is being deleted' USING ERRCODE = 'SR010', DETAIL = _closing;
    END IF;
    EXIT WHEN _found = cardinality(_numbers);
  END LOOP;
  RETURN _numbers;
END $$;

-- Declares queues. With `keep`, one that is declared stays as it is.
CREATE FUNCTION seriatim.declare(_now bigint, _queues jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _at bigint := coalesce(_now, seriatim.clock());
  _p jsonb;
  _place bigint;
  _old seriatim.queue;
  _shares jsonb;
  _counted bigint[];
BEGIN
  LOCK TABLE seriatim.queue IN SHARE ROW EXCLUSIVE MODE;
  FOR _p, _place IN
    -- In the order in which pushes lock queues.
    SELECT p, place FROM jsonb_array_elements(_queues) WITH ORDINALITY w (p, place)
    ORDER BY (SELECT number FROM seriatim.queue WHERE name = p->>'name'), place
  LOOP
    SELECT * INTO _old FROM seriatim.queue WHERE name = _p->>'name';
    IF NOT FOUND THEN
      PERFORM seriatim.create_queue(_p, true);
      CONTINUE;
    END IF;
    CONTINUE WHEN _old.declared AND (_p->>'keep')::boolean;
    IF _old.closing THEN
      RAISE EXCEPTION 'the queue is being deleted' USING ERRCODE = 'SR010', DETAIL = _old.name;
    END IF;
    IF _old.mode <> (_p->>'mode')::smallint OR _old.merge <> (_p->>'merge')::smallint THEN
      PERFORM seriatim.may_change(_old, _p, _place);
    END IF;
    _shares := seriatim.shares_after(_old.shares, _p->'shares');
    _counted := seriatim.counted_in(_p);
    IF _counted IS DISTINCT FROM _old.counted THEN
      PERFORM seriatim.lock_alone(_old, 'claimed');
    ELSIF _shares IS DISTINCT FROM _old.shares THEN
      -- Claims under way know the old limits.
      PERFORM seriatim.lock_alone(_old, 'claims');
    END IF;
    UPDATE seriatim.queue SET mode = (_p->>'mode')::smallint, merge = (_p->>'merge')::smallint,
      earliest = (_p->>'earliest')::boolean, take = (_p->>'take')::int,
      retain = (_p->>'retain')::bigint, retain_dead = (_p->>'retain_dead')::bigint,
      retain_dead_max = (_p->>'retain_dead_max')::bigint,
      idempotency_ttl = (_p->>'idempotency_ttl')::bigint, lease_max = (_p->>'lease_max')::bigint,
      quiet = (_p->>'quiet')::bigint, max_wait = (_p->>'max_wait')::bigint,
      max_jobs = (_p->>'max_jobs')::int, max_bytes = (_p->>'max_bytes')::bigint,
      window_from = CASE WHEN _old.quiet IS NULL THEN nextval('seriatim.seq') ELSE _old.window_from END,
      throttle = (_p->>'throttle')::bigint, refuses = (_p->>'refuses')::boolean,
      definition = _p->>'definition', declared = true,
      shares = _shares, grouped = coalesce((_p->>'grouped')::boolean, false), counted = _counted
    WHERE number = _old.number;
    IF _counted IS DISTINCT FROM _old.counted THEN
      PERFORM seriatim.count_groups(_old);
    END IF;
    IF _shares->>'rates' IS DISTINCT FROM _old.shares->>'rates' THEN
      UPDATE seriatim.share SET paced = 0 WHERE queue = _old.number;
    END IF;
    IF _old.mode <> (_p->>'mode')::smallint OR _old.merge <> (_p->>'merge')::smallint THEN
      PERFORM seriatim.push_again(_old.number, _at);
    END IF;
  END LOOP;
END $$;

-- Refuses to change mode or merge of a non-empty queue, unless a push created it and nothing runs.
CREATE FUNCTION seriatim.may_change(_old seriatim.queue, _p jsonb, _place bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  _convertible boolean := NOT _old.declared AND _old.mode <> 0 AND (_p->>'mode')::smallint <> 0;
  _runs boolean;
BEGIN
  PERFORM seriatim.lock_alone(_old, 'all');
  PERFORM seriatim.unpack(ARRAY(SELECT number FROM seriatim.lane WHERE queue = _old.number AND number > 0));
  SELECT bool_or(claimed) INTO _runs FROM seriatim.lane WHERE queue = _old.number AND number > 0;
  -- NULL: it is empty.
  IF _runs OR NOT _runs AND NOT _convertible THEN
    RAISE EXCEPTION 'the queue is not empty' USING ERRCODE = 'SR002',
      DETAIL = format('%s %s %s %s %s', _place - 1, _old.mode, _old.merge, _old.declared::int, _runs::int);
  END IF;
END $$;

-- Gives the lanes of a queue the state that they would have if their jobs had been pushed under its present mode, in
-- order of arrival; paused ones stay paused. The caller has locked all of them, and none is claimed.
CREATE FUNCTION seriatim.push_again(_queue int, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _q seriatim.queue;
  _lanes bigint[] := ARRAY(SELECT number FROM seriatim.lane WHERE queue = _queue AND number > 0);
BEGIN
  SELECT * INTO _q FROM seriatim.queue WHERE number = _queue;
  PERFORM seriatim.count_as_untried(_lanes);
  UPDATE seriatim.lane l
  SET held = false, retry_count = -1, crashes = 0, error = NULL, next_due = NULL, progress = NULL,
    route = greatest(l.route, f.route),
    due = CASE WHEN _q.earliest THEN f.earliest ELSE f.run_at END
  FROM (
    SELECT DISTINCT ON (lane) lane, route, run_at, min(run_at) OVER (PARTITION BY lane) AS earliest
    FROM seriatim.item WHERE queue = _queue ORDER BY lane, seq
  ) f
  WHERE f.lane = l.number;
  -- The score of a job without its own: when it came, but 0 in `fifo`.
  UPDATE seriatim.item
  SET loose = _q.mode = 3,
    score = CASE WHEN _q.mode = 2 AND score = created_at / 1e6::float8 THEN 0 ELSE score END
  WHERE queue = _queue;
  IF _q.mode = 1 AND _q.merge <> 2 THEN
    PERFORM seriatim.unite(g.first, i.seq, _q.merge)
    FROM (SELECT lane, digest, min(seq) AS first FROM seriatim.item WHERE queue = _queue
      GROUP BY lane, digest HAVING count(*) > 1) g
    JOIN seriatim.item i ON i.lane = g.lane AND i.digest = g.digest AND i.seq <> g.first;
    UPDATE seriatim.item SET merging = true WHERE queue = _queue;
  END IF;
  PERFORM seriatim.place(_lanes, _now);
END $$;
