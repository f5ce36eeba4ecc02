-- Functions that the other scripts use.

-- The server's clock. clock_timestamp, not now(): time must go on during a long transaction.
CREATE FUNCTION seriatim.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Adds a duration to a time, limited to the last time that every store can represent (2^53 - 1).
CREATE FUNCTION seriatim.later(_at bigint, _length bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT least(_at + _length, 9007199254740991)
$$;

-- Changes with each start and crash of a server, and with each failover: then the last tokens may be lost. A session may not
-- notice either, if a pooler or proxy keeps it.
CREATE FUNCTION seriatim.server_mark() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || ' ' || extract(epoch FROM pg_postmaster_start_time())
    -- Set anew when a process of the server crashed, and with it all sessions.
    || ' ' || coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), 0)
$$;

-- Raises the token sequence to the clock, because a failover to an asynchronous standby can lose the last tokens.
-- Reading and setting the sequence are two steps: whoever draws tokens holds this lock shared, so that nothing is
-- drawn between them and the sequence cannot step back.
CREATE FUNCTION seriatim.reseed() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _now bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('seriatim.'), 0);
  _now := seriatim.clock();
  IF (SELECT last_value < _now FROM seriatim.token) THEN
    PERFORM setval('seriatim.token', _now);
  END IF;
  INSERT INTO seriatim.seeded (mark) VALUES (seriatim.server_mark())
  ON CONFLICT (one) DO UPDATE SET mark = excluded.mark;
END $$;

-- A shared lock for drawing tokens, held until the transaction ends: see reseed(). Before, it raises them if this is
-- another server than the last time.
CREATE FUNCTION seriatim.draw_tokens() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM seriatim.seeded WHERE mark = seriatim.server_mark()) THEN
    PERFORM seriatim.reseed();
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtext('seriatim.'), 0);
END $$;

-- A shared lock for operations that depend on a queue's mode or existence. Changing the mode or deleting the queue
-- takes it exclusively.
CREATE FUNCTION seriatim.share_queue(_queue int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtext('seriatim.'), _queue);
END $$;

-- Locks a queue for its change: what depends on it has ended, or waits until this ends. _what: 'claims' of it, or all of the 'queue';
-- with it its 'claimed' lanes, or 'all', in the common order. In line only for a short time, as in lock_in_line(): what keeps a
-- lock longer is a transaction of a user, and who waits in line keeps others waiting. Then the caller repeats all of its call.
CREATE FUNCTION seriatim.lock_alone(_q seriatim.queue, _what text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _was text := current_setting('lock_timeout');
BEGIN
  PERFORM set_config('lock_timeout', '200ms', true);
  IF _what = 'claims' THEN
    PERFORM seriatim.end_claims(_q.number);
  ELSE
    PERFORM pg_advisory_xact_lock(hashtext('seriatim.'), _q.number);
  END IF;
  -- Statements after that lock: they see what was committed before.
  IF _what = 'claimed' THEN
    PERFORM seriatim.lock_rows(ARRAY(SELECT number FROM seriatim.claimed_lane WHERE queue = _q.number));
  ELSIF _what = 'all' THEN
    PERFORM seriatim.lock_rows(ARRAY(SELECT number FROM seriatim.lane WHERE queue = _q.number AND number > 0));
  END IF;
  PERFORM set_config('lock_timeout', _was, true);
EXCEPTION WHEN lock_not_available THEN
  RAISE EXCEPTION 'a transaction keeps the queue locked' USING ERRCODE = 'SR027', DETAIL = _q.name;
END $$;

-- A shared lock for what claims lanes of a queue, before it reads whether that is paused: a pause waits for it. Not the lock of
-- share_queue(), which users' transactions hold as long as they like.
CREATE FUNCTION seriatim.begin_claim(_queue int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtext('claims seriatim.'), _queue);
END $$;

-- Waits for the claims of a queue that are under way. Those that begin meanwhile wait until this ends.
CREATE FUNCTION seriatim.end_claims(_queue int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('claims seriatim.'), _queue);
END $$;

-- A user's transaction has its own isolation level. Above read committed, these functions would not see what was
-- committed before each statement.
CREATE FUNCTION seriatim.check_isolation() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'not read committed' USING ERRCODE = 'SR007';
  END IF;
END $$;

-- The group of a route and of a class. The bits are those of `stores/route.rs`.
CREATE FUNCTION seriatim.group_of(_route bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT _route >> 20 $$;
CREATE FUNCTION seriatim.group_of_class(_class bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT _class >> 21 $$;
CREATE FUNCTION seriatim.first_class(_group bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT _group << 21 $$;
-- The part of a route that is a row of `route`, and the whole.
CREATE FUNCTION seriatim.bound_of(_route bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT _route & 1048575 $$;
CREATE FUNCTION seriatim.route_in(_group bigint, _bound bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT _group << 20 | _bound
$$;

-- The group of a class, if its running turns are counted: see `queue.counted`.
CREATE FUNCTION seriatim.counted_group(_counted bigint[], _class bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN _counted IS NULL THEN NULL WHEN _counted = '{}' OR _class >> 21 = ANY (_counted) THEN _class >> 21 END
$$;

-- Locks lanes in the order common to all functions, and unfolds light claims. Read the lanes and their jobs in a later
-- statement: this one's snapshot is older than its locks.
CREATE FUNCTION seriatim.lock_lanes(_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM seriatim.lock_rows(_lanes);
  PERFORM seriatim.unfold(_lanes);
END $$;

CREATE FUNCTION seriatim.lock_rows(_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM seriatim.lane WHERE number = ANY (_lanes)
    ORDER BY CASE WHEN key IS NOT NULL THEN queue END, key, number FOR UPDATE;
END $$;

-- Writes the light claims of these lanes, which the caller has locked, into the lanes' rows. Those that wait are kept
-- from claims until the caller's transaction ends.
CREATE FUNCTION seriatim.unfold(_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _queues int[];
  _low bigint;
  _high bigint;
BEGIN
  SELECT array_agg(DISTINCT queue), min(number), max(number) INTO _queues, _low, _high
  FROM seriatim.lane WHERE number = ANY (_lanes) AND token = 0 AND payload IS NOT NULL;
  IF _queues IS NULL THEN
    RETURN;
  END IF;
  -- Waits for claims under way: the next statement sees them.
  PERFORM FROM seriatim.lane l
    CROSS JOIN LATERAL (SELECT FROM seriatim.ready r
      WHERE r.queue = l.queue AND r.class = l.class AND r.priority = l.priority AND r.at = l.at AND r.number = l.number
      FOR UPDATE) r
    WHERE l.number = ANY (_lanes) AND l.token = 0 AND l.payload IS NOT NULL;
  UPDATE seriatim.lane l
  SET token = b.token, batch = b.token, claimed = true, holder = b.node, own_lease = b.own, ttl = b.ttl,
    until = b.until, claimed_at = b.claimed_at, beat_at = b.claimed_at, class = NULL, at = NULL
  FROM (SELECT u.number, x.* FROM seriatim.batch x CROSS JOIN LATERAL unnest(x.lanes) u (number)
    WHERE x.light AND coalesce(x.queue = ANY (_queues) AND x.low <= _high AND x.high >= _low, true)
      AND CASE WHEN u.number IN (SELECT unnest(_lanes)) THEN true END OFFSET 0) b
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = b.number AND n.token = 0 OFFSET 0) n
  WHERE l.ctid = n.row;
END $$;

-- Replaces up to _rows_max rows of tally by their sums, and more if there are many queues: one session at a time. True if
-- there may be more to replace.
CREATE FUNCTION seriatim.fold(_rows_max int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  -- A sum is left for each queue. With fewer rows, sums would be replaced for ever.
  _most bigint := greatest(_rows_max, 4 * (SELECT count(*) FROM seriatim.queue));
  _gone bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('tally seriatim.'), 0) THEN
    RETURN false;
  END IF;
  WITH gone AS (
    DELETE FROM seriatim.tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM seriatim.tally LIMIT _most))
    RETURNING *
  ), sums AS (
    INSERT INTO seriatim.tally (queue, lanes, jobs, claimed, dead, processed, failed, retrying)
      SELECT queue, sum(lanes), sum(jobs), sum(claimed), sum(dead), sum(processed), sum(failed), sum(retrying) FROM gone
      GROUP BY queue
  )
  SELECT count(*) INTO _gone FROM gone;
  RETURN _gone = _most;
END $$;

-- What a lane adds to `tally.retrying` when its retry_count changes.
CREATE FUNCTION seriatim.turned(_was int, _is int) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT (_is >= 0)::int - (_was >= 0)::int
$$;

-- For who sets retry_count to -1 in these unclaimed lanes, before it does.
CREATE FUNCTION seriatim.count_as_untried(_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.tally (queue, retrying)
    SELECT queue, -count(*) FROM seriatim.lane WHERE number = ANY (_lanes) AND NOT claimed AND retry_count + 0 >= 0
    GROUP BY queue;
END $$;

-- The number of a queue. An error if it does not exist.
CREATE FUNCTION seriatim.queue_number(_name text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  _number int;
BEGIN
  SELECT number INTO _number FROM seriatim.queue WHERE name = _name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no such queue' USING ERRCODE = 'SR005', DETAIL = _name;
  END IF;
  RETURN _number;
END $$;

-- A queue, locked as share_queue() does. An error if it does not exist.
CREATE FUNCTION seriatim.shared_queue(_name text, _claims boolean DEFAULT false) RETURNS seriatim.queue LANGUAGE plpgsql AS $$
DECLARE
  _q seriatim.queue;
  _number int;
BEGIN
  LOOP
    _number := seriatim.queue_number(_name);
    PERFORM seriatim.share_queue(_number);
    IF _claims THEN
      PERFORM seriatim.begin_claim(_number);
    END IF;
    -- A statement after the locks: the queue may have been deleted meanwhile, and created again with another number.
    SELECT * INTO _q FROM seriatim.queue WHERE name = _name AND number = _number;
    EXIT WHEN FOUND;
  END LOOP;
  RETURN _q;
END $$;

-- A lease, limited to the queue's lease_max. Not called (STRICT) for a job without its own lease.
CREATE FUNCTION seriatim.capped(_queue int, _length bigint) RETURNS bigint LANGUAGE sql STABLE STRICT AS $$
  SELECT least(_length, lease_max) FROM seriatim.queue WHERE number = _queue
$$;

-- The jobs with these ids. An id is number, queue and millisecond of arrival, and all three must match. Unknown ids
-- are left out.
CREATE FUNCTION seriatim.resolve(_seq bigint[], _queue int[], _millis bigint[])
RETURNS TABLE (o_place bigint, o_seq bigint) LANGUAGE sql VOLATILE AS $$
  SELECT w.place, k.seq
  FROM unnest(_seq, _queue, _millis) WITH ORDINALITY AS w (seq, queue, millis, place)
  CROSS JOIN LATERAL (
    SELECT i.seq, i.queue, i.created_at FROM seriatim.item i WHERE i.seq = w.seq
    UNION ALL SELECT l.number, l.queue, l.created_at FROM seriatim.lane l
      WHERE l.number = w.seq AND l.payload IS NOT NULL
    UNION ALL SELECT e.seq, e.queue, e.created_at FROM seriatim.ended e WHERE e.seq = w.seq
    UNION ALL SELECT a.of_seq, a.queue, a.created_at FROM seriatim.alias a WHERE a.seq = w.seq
  ) k
  WHERE k.queue = w.queue AND greatest(k.created_at, 0) / 1000 = w.millis
$$;

-- Until when pushes may put off a lane whose job is packed in it; NULL if it was opened without a window.
CREATE FUNCTION seriatim.packed_until(_number bigint, _queue int, _due bigint, _created_at bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT greatest(_due, seriatim.later(_created_at, q.max_wait)) FROM seriatim.queue q
  WHERE q.number = _queue AND q.quiet IS NOT NULL AND _number > coalesce(q.window_from, 0)
$$;

-- Gives each job of these lanes its own row and marks those that a claim owns, also a light one. Rare operations use that
-- form; only push, claim and the settle of done jobs use the compact ones. The caller has locked the lanes.
CREATE FUNCTION seriatim.unpack(_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM seriatim.lane
      WHERE number = ANY (_lanes) AND (payload IS NOT NULL OR taken IS NOT NULL)) THEN
    RETURN;
  END IF;
  PERFORM seriatim.unfold(_lanes);
  INSERT INTO seriatim.item (seq, queue, lane, closed, merging, loose, digest, task, score, priority,
      run_at, created_at, options, lease_ttl, route, payload)
    SELECT l.number, l.queue, l.number, l.claimed, q.mode = 1 AND q.merge <> 2, q.mode = 3, l.digest,
      l.task, l.score, l.priority, l.packed_run_at, l.created_at, l.options, l.lease_ttl, l.route,
      l.payload
    FROM seriatim.lane l JOIN seriatim.queue q ON q.number = l.queue
    WHERE l.number = ANY (_lanes) AND l.payload IS NOT NULL;
  UPDATE seriatim.item i SET closed = true
  FROM (SELECT * FROM seriatim.lane WHERE number = ANY (_lanes) AND taken IS NOT NULL OFFSET 0) l
  CROSS JOIN LATERAL (SELECT x.mode FROM seriatim.queue x WHERE x.number = l.queue OFFSET 0) q
  CROSS JOIN LATERAL seriatim.owned(l.number, q.mode, l.taken, l.joined) x
  CROSS JOIN LATERAL (SELECT o.ctid AS row FROM seriatim.item o WHERE o.seq = x.seq AND NOT o.closed OFFSET 0) o
  WHERE i.ctid = o.row;
  UPDATE seriatim.ready r SET light = false
  FROM (SELECT * FROM seriatim.lane WHERE number = ANY (_lanes) AND payload IS NOT NULL AND class IS NOT NULL OFFSET 0) l
  CROSS JOIN LATERAL (SELECT x.ctid AS row FROM seriatim.ready x
    WHERE x.queue = l.queue AND x.class = l.class AND x.priority = l.priority AND x.at = l.at AND x.number = l.number
      AND x.light OFFSET 0) x
  WHERE r.ctid = x.row;
  -- The score stays that of its first job. Its job opened a window, also if the job was due: it may be put off later.
  UPDATE seriatim.lane l SET next_due = CASE WHEN l.payload IS NULL OR l.claimed THEN l.next_due
      ELSE seriatim.packed_until(l.number, l.queue, l.due, l.created_at) END,
    taken = NULL, joined = NULL, packed_run_at = NULL, digest = NULL, task = NULL, created_at = NULL, options = NULL, lease_ttl = NULL, payload = NULL
  WHERE number = ANY (_lanes) AND (payload IS NOT NULL OR taken IS NOT NULL);
END $$;

-- The change of a lane's position. Without a class it is not ready.
CREATE TYPE seriatim.move AS (
  queue int, number bigint, was_class bigint, was_priority smallint, was_at bigint, class bigint, priority smallint, at bigint
);

-- Carries moves out in `ready`, for those who have locked the lanes and written their positions.
CREATE FUNCTION seriatim.move_ready(_moves seriatim.move[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM seriatim.ready r
  USING unnest(_moves) m
  CROSS JOIN LATERAL (SELECT x.ctid AS row FROM seriatim.ready x
    WHERE x.queue = m.queue AND x.class = m.was_class AND x.priority = m.was_priority AND x.at = m.was_at
      AND x.number = m.number OFFSET 0) x
  WHERE r.ctid = x.row;
  INSERT INTO seriatim.ready (queue, class, priority, at, number)
    SELECT m.queue, m.class, m.priority, m.at, m.number FROM unnest(_moves) m WHERE m.class IS NOT NULL;
END $$;

-- Puts unclaimed lanes at their positions and removes empty ones. The caller has locked their rows. _done also ends
-- their claims, which have no jobs left. Returns whether one of them now waits.
CREATE FUNCTION seriatim.place(_lanes bigint[], _now bigint, _done boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  _moves seriatim.move[];
  _wait boolean;
BEGIN
  IF coalesce(cardinality(_lanes), 0) = 0 THEN
    RETURN false;
  END IF;
  WITH gone AS (
    DELETE FROM seriatim.lane l
    WHERE l.number = ANY (_lanes) AND (_done OR NOT l.claimed) AND l.payload IS NULL
      AND NOT EXISTS (SELECT FROM seriatim.item i WHERE i.lane = l.number OFFSET 0)
    RETURNING l.queue, l.number, l.class, l.priority, l.at, l.retry_count
  ), due AS (
    UPDATE seriatim.lane l SET class = l.route * 2, wake = NULL
    WHERE l.number = ANY (_lanes) AND NOT l.claimed AND l.payload IS NOT NULL
      AND l.class IS NULL AND l.due <= _now
    RETURNING l.queue, l.number, l.class, l.priority, l.at
  ), placed AS (
  UPDATE seriatim.lane l
  SET class = CASE WHEN NOT p.stopped AND p.due <= _now THEN p.class END,
    at = CASE WHEN NOT p.stopped THEN p.due END,
    wake = CASE WHEN p.stopped THEN NULL WHEN p.due <= _now THEN p.next_run_at ELSE p.due END,
    priority = p.priority, due = p.due, score = p.score,
    retry_count = p.retry_count, crashes = p.crashes, error = p.error,
    claimed = false, batch = NULL, holder = NULL, own_lease = NULL, ttl = NULL, until = NULL, claimed_at = NULL, grp = NULL,
    beat_at = NULL, next_due = CASE WHEN _done AND p.at_once THEN NULL ELSE l.next_due END, taken = NULL, joined = NULL,
    progress = CASE WHEN _done THEN NULL ELSE l.progress END
  FROM (
    SELECT n.row, n.class AS was_class, n.priority AS was_priority, n.at AS was_at, n.held OR n.paused AS stopped,
      h.next_run_at, h.score,
      CASE WHEN q.mode <> 1 THEN h.run_at WHEN NOT _done THEN n.due
        WHEN q.quiet IS NULL THEN coalesce(n.next_due, n.due)
        ELSE seriatim.after_turn(n.number, n.due, n.next_due, q, _now) END AS due, q.quiet IS NULL AS at_once,
      CASE WHEN q.mode = 1 THEN h.priority_min ELSE h.priority END AS priority,
      s.retry_count, s.crashes, s.error, seriatim.turned(n.retry_count, s.retry_count) AS turned,
      CASE WHEN q.mode IN (1, 2) THEN n.route ELSE h.route END * 2
        + CASE WHEN s.crashes > 0 THEN 1 ELSE 0 END AS class
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT x.ctid AS row, x.* FROM seriatim.lane x WHERE x.number = w.number OFFSET 0) n
    JOIN seriatim.queue q ON q.number = n.queue AND (_done OR NOT n.claimed) AND n.payload IS NULL
    CROSS JOIN LATERAL seriatim.head(n.number, q.mode, _now) h
    CROSS JOIN LATERAL (
      SELECT CASE WHEN q.mode <> 1 THEN h.retry_count WHEN _done THEN -1 ELSE n.retry_count END,
        CASE WHEN q.mode <> 1 THEN h.crashes WHEN _done THEN 0 ELSE n.crashes END,
        CASE WHEN q.mode <> 1 THEN h.error WHEN _done THEN NULL ELSE n.error END
    ) s (retry_count, crashes, error)
  ) p
  WHERE l.ctid = p.row
    -- Most pushes to a waiting lane do not change its position.
    AND (_done OR p.stopped OR l.class IS NULL OR p.due > _now
      OR (l.class, l.at, l.priority, l.due, l.retry_count, l.crashes, l.error, l.wake, l.score) IS DISTINCT FROM
        (p.class, p.due, p.priority, p.due, p.retry_count, p.crashes, p.error, p.next_run_at, p.score))
  RETURNING l.queue, l.number, p.was_class, p.was_priority, p.was_at, l.class, l.priority, l.at, p.turned
  ), counted AS (
    INSERT INTO seriatim.tally (queue, lanes, retrying)
      SELECT queue, -sum(gone), sum(turned) FROM (
        SELECT queue, 1 AS gone, seriatim.turned(retry_count, -1) AS turned FROM gone
        UNION ALL SELECT queue, 0, turned FROM placed WHERE turned <> 0) c
      GROUP BY queue
  )
  SELECT array_agg(m.moved), EXISTS (SELECT FROM due) OR EXISTS (SELECT FROM placed) INTO _moves, _wait FROM (
    SELECT ROW(queue, number, class, priority, at, NULL, NULL, NULL)::seriatim.move AS moved
    FROM gone WHERE class IS NOT NULL
    UNION ALL
    SELECT ROW(queue, number, NULL, NULL, NULL, class, priority, at)::seriatim.move FROM due
    UNION ALL
    SELECT ROW(queue, number, was_class, was_priority, was_at, class, priority, at)::seriatim.move FROM placed
    WHERE (was_class, was_priority, was_at) IS DISTINCT FROM (class, priority, at)
      AND (was_class IS NOT NULL OR class IS NOT NULL)) m;
  IF _moves IS NOT NULL THEN
    PERFORM seriatim.move_ready(_moves);
  END IF;
  RETURN _wait;
END $$;

-- The same for lanes that waiting jobs have left. If all that arrived during a turn has, the next job to arrive says when
-- the lane is due.
CREATE FUNCTION seriatim.place_left(_lanes bigint[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.lane l SET next_due = NULL
  WHERE l.number = ANY (_lanes) AND l.claimed AND l.next_due IS NOT NULL
    AND NOT EXISTS (SELECT FROM seriatim.item i WHERE i.lane = l.number AND NOT i.closed OFFSET 0);
  PERFORM seriatim.place(_lanes, _now);
END $$;

-- When the next scheduled lane of a queue is due. Not min(): in a table that was almost empty, a plan may read all.
CREATE FUNCTION seriatim.next_wake(_queue int) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT wake FROM seriatim.lane WHERE queue = _queue AND wake IS NOT NULL ORDER BY wake LIMIT 1
$$;

-- When the first lane of a queue is or was due: the index has it for each group of ready ones.
CREATE FUNCTION seriatim.first_due(_queue int) RETURNS bigint LANGUAGE sql STABLE AS $$
  WITH RECURSIVE first AS (
    (SELECT class, priority, at FROM seriatim.ready WHERE queue = _queue ORDER BY class, priority, at LIMIT 1)
    UNION ALL
    SELECT n.class, n.priority, n.at FROM first r CROSS JOIN LATERAL (
      SELECT class, priority, at FROM seriatim.ready
      WHERE queue = _queue AND (class, priority) > (r.class, r.priority)
      ORDER BY class, priority, at LIMIT 1) n
  )
  SELECT least((SELECT min(at) FROM first), seriatim.next_wake(_queue))
$$;

-- The lowest number of the waiting jobs of a lane in accumulate. Most have the default, which is in no index: then the
-- first job tells.
CREATE FUNCTION seriatim.priority_of(_lane bigint) RETURNS smallint LANGUAGE plpgsql STABLE AS $$
DECLARE
  _other smallint := (SELECT priority FROM seriatim.item
    WHERE NOT closed AND NOT loose AND priority <> 100 AND CASE WHEN priority <> 100 THEN lane END = _lane
    ORDER BY priority LIMIT 1);
BEGIN
  IF _other < 100 THEN
    RETURN _other;
  END IF;
  RETURN coalesce((SELECT priority FROM seriatim.item WHERE lane = _lane AND NOT closed AND priority = 100
    ORDER BY score, seq LIMIT 1), _other);
END $$;

-- The job that defines a lane's position, and in exclusive when another job may replace it.
CREATE FUNCTION seriatim.head(_lane bigint, _mode smallint, _now bigint)
RETURNS TABLE (run_at bigint, priority smallint, retry_count int, crashes int, error text, route bigint,
  priority_min smallint, next_run_at bigint, score float8)
LANGUAGE sql STABLE AS $$
  SELECT h.run_at, h.priority, h.retry_count, h.crashes, h.error, h.route,
    CASE WHEN _mode = 1 THEN seriatim.priority_of(_lane) END,
    CASE WHEN _mode = 3 THEN (SELECT min(i.run_at) FROM seriatim.item i
      WHERE i.lane = _lane AND i.loose AND NOT i.closed AND i.run_at > _now) END, h.score
  FROM (
    (SELECT i.*, 0 AS rank FROM seriatim.item i
      WHERE _mode <> 3 AND i.lane = _lane AND NOT i.closed
      ORDER BY i.score, i.seq LIMIT 1)
    UNION ALL
    (SELECT i.*, 1 FROM seriatim.item i
      WHERE _mode = 3 AND i.lane = _lane AND i.loose AND NOT i.closed AND i.run_at <= _now
      ORDER BY i.priority, i.run_at, i.seq LIMIT 1)
    UNION ALL
    (SELECT i.*, 2 FROM seriatim.item i
      WHERE _mode = 3 AND i.lane = _lane AND i.loose AND NOT i.closed AND i.run_at > _now
      ORDER BY i.run_at, i.seq LIMIT 1)
  ) h ORDER BY h.rank LIMIT 1
$$;

-- Merges two jobs with equal payloads under the older id; the other id becomes an alias. The caller has locked their
-- lane.
CREATE FUNCTION seriatim.unite(_one bigint, _other bigint, _merge smallint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  _older bigint := least(_one, _other);
  _newer bigint := greatest(_one, _other);
BEGIN
  UPDATE seriatim.job_batch SET pending = pending - 1
  WHERE id = (SELECT seriatim.batch_in(options) FROM seriatim.item WHERE seq = _newer) AND ended_at IS NULL;
  UPDATE seriatim.item o
  SET score = CASE _merge WHEN 0 THEN least(o.score, n.score) WHEN 1 THEN greatest(o.score, n.score)
      ELSE o.score END,
    priority = least(o.priority, n.priority), attempts = greatest(o.attempts, n.attempts)
  FROM seriatim.item n WHERE o.seq = _older AND n.seq = _newer;
  UPDATE seriatim.alias SET of_seq = _older WHERE of_seq = _newer;
  INSERT INTO seriatim.alias (seq, queue, created_at, of_seq)
    SELECT seq, queue, created_at, _older FROM seriatim.item WHERE seq = _newer;
  WITH gone AS (DELETE FROM seriatim.item WHERE seq = _newer RETURNING queue)
  INSERT INTO seriatim.tally (queue, jobs) SELECT queue, -1 FROM gone;
END $$;

-- Records the end of waiting jobs, or forgets them immediately. The caller has locked their lanes.
CREATE FUNCTION seriatim.cancel_open(_jobs bigint[], _error text, _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.ended
    SELECT i.seq, i.queue, l.key, 4, _now, seriatim.later(_now, q.retain), i.digest, i.task, i.score,
      i.priority, i.run_at, i.created_at, i.started_at, i.attempts, i.retry_count, i.crashes, _error,
      i.options, i.lease_ttl, i.expires_at, i.route, i.flagged, i.payload
    FROM (SELECT * FROM seriatim.item WHERE seq = ANY (_jobs) OFFSET 0) i
    CROSS JOIN LATERAL (SELECT x.key FROM seriatim.lane x WHERE x.number = i.lane OFFSET 0) l
    JOIN seriatim.queue q ON q.number = i.queue
    WHERE q.retain > 0;
  PERFORM seriatim.forget(ARRAY(
    SELECT i.seq FROM (SELECT * FROM seriatim.item WHERE seq = ANY (_jobs) OFFSET 0) i
    JOIN seriatim.queue q ON q.number = i.queue
    WHERE q.retain = 0));
  PERFORM seriatim.drop_items(_jobs);
END $$;

-- Deletes jobs that have not ended, and counts them.
CREATE FUNCTION seriatim.drop_items(_jobs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS (DELETE FROM seriatim.item WHERE seq = ANY (_jobs) RETURNING queue)
  INSERT INTO seriatim.tally (queue, jobs) SELECT queue, -count(*) FROM gone GROUP BY queue;
END $$;

-- Removes all traces of these jobs and their aliases.
CREATE FUNCTION seriatim.forget(_jobs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM seriatim.alias WHERE of_seq = ANY (_jobs);
  PERFORM seriatim.drop_items(_jobs);
  WITH gone AS (DELETE FROM seriatim.ended WHERE seq = ANY (_jobs) RETURNING queue, state)
  INSERT INTO seriatim.tally (queue, dead) SELECT queue, -count(*) FROM gone WHERE state = 3 GROUP BY queue;
END $$;
