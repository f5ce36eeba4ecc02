-- Settling turns. Fates: 0 done, 1 bury, 2 cancel, 3 expire, 4 drop, 5 keep.

-- A settlement whose token is current, with data of its lane and queue.
CREATE TYPE seriatim.ending AS (
  place int, lane bigint, mode smallint, merge smallint, retain bigint, claimed_at bigint,
  rest smallint, owner bigint, due_kind smallint, due_in bigint, retry_count int, crashes int,
  error text, counted boolean, hold boolean, batch bigint
);

-- The fate of one closed job, with all data needed for it: joining the arrays of a batch with each other takes
-- quadratic time. owned: the settlement names the job.
CREATE TYPE seriatim.fated AS (
  place int, lane bigint, seq bigint, score float8, created_at bigint, fate smallint, why text,
  cancelled boolean, merge smallint, retain bigint, claimed_at bigint, counted boolean, owned boolean,
  due_kind smallint, due_in bigint, retry_count int, crashes int
);

CREATE FUNCTION seriatim.due_after(_was bigint, _now bigint, _kind smallint, _in bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE _kind WHEN 0 THEN _was WHEN 1 THEN _now ELSE seriatim.later(_now, _in) END
$$;

-- A flagged job ends cancelled, whatever the outcome, unless it is done. _except: fates by `place:seq`.
CREATE FUNCTION seriatim.fates_of(_endings seriatim.ending[], _except jsonb) RETURNS seriatim.fated[]
LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT coalesce(array_agg(ROW((f.e).place, f.lane, f.seq, f.score, f.created_at,
        CASE WHEN f.cancelled THEN 2 ELSE f.fate END,
        CASE WHEN f.cancelled THEN 'canceled' WHEN f.fate = 3 THEN 'expired'
          WHEN f.fate IN (1, 2) OR f.owned THEN (f.e).error END,
        f.cancelled, (f.e).merge, (f.e).retain, (f.e).claimed_at, (f.e).counted, f.owned,
        (f.e).due_kind, (f.e).due_in, (f.e).retry_count, (f.e).crashes)::seriatim.fated), '{}')
    FROM (
      SELECT x.*, x.flagged AND x.fate <> 0 AS cancelled
      FROM (
        SELECT e, i.lane, i.seq, i.score, i.created_at, i.flagged,
          (e).mode <> 1 AND coalesce((e).owner = i.seq, false) AS owned,
          coalesce((_except->>format('%s:%s', (e).place, i.seq))::smallint, (e).rest) AS fate
        FROM unnest(_endings) e
        CROSS JOIN LATERAL (SELECT * FROM seriatim.item o
          WHERE o.closed AND CASE WHEN o.closed THEN o.lane END = (e).lane OFFSET 0) i) x
    ) f);
END $$;

-- Moves ended jobs from item to ended. Each counts as an attempt.
CREATE FUNCTION seriatim.end_jobs(_fates seriatim.fated[], _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.ended
    SELECT i.seq, i.queue, l.key, CASE f.fate WHEN 0 THEN 2 WHEN 1 THEN 3 ELSE 4 END, _now,
      CASE WHEN f.fate <> 1 THEN seriatim.later(_now, f.retain) END,
      i.digest, i.task, i.score, i.priority, i.run_at, i.created_at,
      coalesce(i.started_at, f.claimed_at), i.attempts + 1, i.retry_count, i.crashes,
      CASE WHEN f.fate = 0 THEN i.error ELSE coalesce(f.why, i.error) END,
      i.options, i.lease_ttl, i.expires_at, i.route, i.flagged AND f.fate <> 1, i.payload
    FROM unnest(_fates) f
    CROSS JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = f.seq OFFSET 0) i
    CROSS JOIN LATERAL (SELECT n.key FROM seriatim.lane n WHERE n.number = i.lane OFFSET 0) l
    WHERE f.fate = 1 OR f.fate IN (0, 2, 3) AND f.retain > 0;
  DELETE FROM seriatim.alias WHERE of_seq = ANY (ARRAY(SELECT f.seq FROM unnest(_fates) f
    WHERE f.fate = 4 OR f.fate IN (0, 2, 3) AND f.retain = 0));
  DELETE FROM seriatim.item WHERE seq = ANY (ARRAY(SELECT f.seq FROM unnest(_fates) f WHERE f.fate <> 5));
END $$;

-- Ends the claims. Jobs still closed in a lane are kept ones.
CREATE FUNCTION seriatim.free_lanes(_endings seriatim.ending[], _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.lane l
  SET claimed = false, batch = NULL, holder = NULL, own_lease = NULL, ttl = NULL, until = NULL, claimed_at = NULL,
    beat_at = NULL, progress = CASE WHEN e.kept THEN l.progress END, next_due = NULL,
    held = l.held OR e.hold AND e.kept AND (e.owner IS NULL OR e.owner_kept),
    due = CASE WHEN e.mode <> 1 THEN l.due WHEN NOT e.kept THEN coalesce(l.next_due, l.due)
      ELSE seriatim.due_after(l.due, _now, e.due_kind, e.due_in) END,
    retry_count = CASE WHEN e.mode = 1 AND e.kept THEN e.retry_count ELSE -1 END,
    crashes = CASE WHEN e.mode = 1 AND e.kept THEN e.crashes ELSE 0 END,
    error = CASE WHEN e.mode = 1 AND e.kept THEN e.error END
  FROM (
    SELECT s.*,
      EXISTS (SELECT FROM seriatim.item i WHERE i.closed AND CASE WHEN i.closed THEN i.lane END = s.lane) AS kept,
      EXISTS (SELECT FROM seriatim.item i WHERE i.seq = s.owner AND i.lane = s.lane AND i.closed)
        AS owner_kept
    FROM unnest(_endings) s
  ) e
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = e.lane OFFSET 0) n
  WHERE l.ctid = n.row;
END $$;

-- Opens kept jobs. If an equal job arrived meanwhile, they merge first: at most one of them may be open.
CREATE FUNCTION seriatim.keep_jobs(_fates seriatim.fated[], _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM unnest(_fates) f WHERE f.fate = 5) THEN
    RETURN;
  END IF;
  UPDATE seriatim.item i
  SET attempts = i.attempts + CASE WHEN f.counted THEN 1 ELSE 0 END,
    started_at = coalesce(i.started_at, f.claimed_at),
    retry_count = CASE WHEN f.owned THEN f.retry_count ELSE i.retry_count END,
    crashes = CASE WHEN f.owned THEN f.crashes ELSE i.crashes END,
    error = CASE WHEN f.owned THEN f.why ELSE i.error END,
    run_at = CASE WHEN f.owned THEN seriatim.due_after(i.run_at, _now, f.due_kind, f.due_in)
      ELSE i.run_at END
  FROM unnest(_fates) f
  CROSS JOIN LATERAL (SELECT o.ctid AS row FROM seriatim.item o WHERE o.seq = f.seq OFFSET 0) o
  WHERE i.ctid = o.row AND f.fate = 5;
  PERFORM seriatim.unite(k.seq, o.seq, f.merge)
  FROM unnest(_fates) f
  CROSS JOIN LATERAL (SELECT * FROM seriatim.item n WHERE n.seq = f.seq AND n.merging OFFSET 0) k
  CROSS JOIN LATERAL (SELECT i.seq FROM seriatim.item i
    WHERE i.lane = k.lane AND i.digest = k.digest AND i.merging AND NOT i.closed OFFSET 0) o
  WHERE f.fate = 5;
  UPDATE seriatim.item SET closed = false
  WHERE seq = ANY (ARRAY(SELECT f.seq FROM unnest(_fates) f WHERE f.fate = 5));
END $$;

-- Counts done jobs and failed turns, by the rule of Settlement::has_failed. _cancels: places of settlements whose
-- handler cancelled a job.
CREATE FUNCTION seriatim.count_turns(_fates seriatim.fated[], _cancels int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.tally AS t (queue, slot, processed, failed)
    SELECT l.queue, pg_backend_pid() % 32, sum(e.done), count(*) FILTER (WHERE e.failed)
    FROM (
      SELECT f.lane, count(*) FILTER (WHERE f.fate = 0) AS done,
        bool_or(f.fate IN (1, 4) OR f.fate = 5 AND f.counted AND f.place <> ALL (_cancels)) AS failed
      FROM unnest(_fates) f GROUP BY f.lane) e
    CROSS JOIN LATERAL (SELECT n.queue FROM seriatim.lane n WHERE n.number = e.lane OFFSET 0) l
    WHERE e.done > 0 OR e.failed
    GROUP BY l.queue ORDER BY l.queue
  ON CONFLICT (queue, slot) DO UPDATE
    SET processed = t.processed + excluded.processed, failed = t.failed + excluded.failed;
END $$;

-- Ends turns with all jobs done in the compact forms: a packed lane, or a claim that owns its jobs by one number. The
-- caller has locked the lanes that have a key. Returns the places.
CREATE FUNCTION seriatim.settle_done(_now bigint, _lane bigint[], _queue int[], _token bigint[],
  _rest smallint[], _x_place int[], _going_on seriatim.going_on[],
  OUT o_places int[], OUT o_batches bigint[], OUT o_went bigint[], OUT o_wait boolean) LANGUAGE plpgsql AS $$
DECLARE
  _queues int[]; -- one entry per done job
  _more int[];
  _numbers bigint[];
  -- The turns that end as done altogether.
  _lanes bigint[] := _lane;
  _of int[] := _queue;
  _tokens bigint[] := _token;
  -- Those of light claims.
  _light bigint[];
  _light_of int[];
  _light_tokens bigint[];
  _kept boolean := EXISTS (SELECT FROM seriatim.queue WHERE number = ANY (_queue) AND retain > 0);
BEGIN
  o_went := '{}';
  IF _x_place <> '{}' OR 0 <> ANY (_rest) THEN
    SELECT array_agg(lane), array_agg(queue), array_agg(token) INTO _lanes, _of, _tokens
    FROM unnest(_lane, _queue, _token, _rest) WITH ORDINALITY u (lane, queue, token, rest, place)
    WHERE rest = 0 AND place <> ALL (_x_place);
  END IF;
  SELECT array_agg(w.lane), array_agg(w.queue), array_agg(w.token) INTO _light, _light_of, _light_tokens
  FROM unnest(_lanes, _of, _tokens) w (lane, queue, token)
  WHERE CASE WHEN (w.lane, w.token) IN (
    SELECT u.number, b.token FROM seriatim.batch b CROSS JOIN LATERAL unnest(b.lanes) u (number)
    WHERE b.token = ANY (ARRAY(SELECT DISTINCT unnest(_tokens))) AND b.light) THEN true END;
  IF _kept AND _light IS NOT NULL THEN
    PERFORM seriatim.lock_lanes(_light);
    _light := NULL;
  END IF;
  IF _kept THEN
    INSERT INTO seriatim.ended
      SELECT g.number, g.queue, g.key, 2, _now, seriatim.later(_now, q.retain), g.digest, g.task,
        g.score, g.priority, g.packed_run_at, g.created_at, g.claimed_at, 1, -1, 0, NULL, g.options,
        g.lease_ttl, NULL, g.route, false, g.payload
      FROM (SELECT * FROM seriatim.lane l
        WHERE l.number = ANY (_lanes) AND l.claimed AND l.payload IS NOT NULL
          AND CASE WHEN (l.number, l.queue, l.token) IN (SELECT * FROM unnest(_lanes, _of, _tokens)) THEN true END
        ORDER BY number FOR UPDATE) g
      JOIN seriatim.queue q ON q.number = g.queue AND q.retain > 0;
  END IF;
  WITH gone AS (
    -- In the CASE, the list of turns becomes a hash table that each lane is looked up in.
    DELETE FROM seriatim.lane l
    WHERE l.number = ANY (_lanes) AND l.payload IS NOT NULL
      AND CASE WHEN l.claimed THEN (l.number, l.queue, l.token) IN (SELECT * FROM unnest(_lanes, _of, _tokens))
        WHEN l.token = 0 THEN (l.number, l.queue) IN (SELECT * FROM unnest(_light, _light_of)) END
    RETURNING l.number, l.queue, l.token, l.batch
  )
  SELECT coalesce(array_agg(g.number), '{}'), coalesce(array_agg(g.queue), '{}'), array_agg(g.token), array_agg(g.batch)
  INTO _numbers, _queues, _tokens, o_batches FROM gone g;
  IF cardinality(_light) = cardinality(_lanes) AND cardinality(_numbers) = cardinality(_lanes) THEN
    o_batches := _light_tokens;
  ELSIF _light IS NOT NULL THEN
    o_batches := o_batches || ARRAY(SELECT w.token FROM unnest(_light, _light_tokens) w (lane, token)
      WHERE CASE WHEN w.lane IN (SELECT unnest(_numbers)) THEN true END);
  END IF;
  o_places := CASE WHEN cardinality(_numbers) = cardinality(_lane) THEN ARRAY(SELECT generate_subscripts(_lane, 1))
    ELSE ARRAY(SELECT min(u.place)::int FROM unnest(_lane, _token) WITH ORDINALITY u (lane, token, place)
      WHERE CASE WHEN u.lane IN (SELECT unnest(_numbers)) THEN (u.lane, u.token) IN (
        SELECT * FROM unnest(_numbers, _tokens) UNION ALL SELECT * FROM unnest(_light, _light_tokens)) END
      GROUP BY u.lane) END;
  IF cardinality(o_places) < cardinality(_lane) THEN
    WITH turn AS MATERIALIZED (
      SELECT DISTINCT ON (w.lane) w.place::int, l.*, q.mode, q.retain
      FROM unnest(_lane, _queue, _token, _rest) WITH ORDINALITY w (lane, queue, token, rest, place)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.lane OFFSET 0) l
      JOIN seriatim.queue q ON q.number = l.queue
      WHERE l.queue = w.queue AND l.token = w.token AND l.claimed AND l.taken IS NOT NULL
        AND l.key IS NOT NULL AND w.rest = 0 AND (_x_place = '{}' OR w.place <> ALL (_x_place))
      ORDER BY w.lane, w.place
    ), gone_all AS (
      DELETE FROM seriatim.item i USING turn t
      CROSS JOIN LATERAL (SELECT o.ctid AS row FROM seriatim.item o
        WHERE o.lane = CASE WHEN t.mode = 1 THEN t.number END AND o.seq <= t.taken OFFSET 0) o
      WHERE i.ctid = o.row
      RETURNING i.*, t.key, t.claimed_at, t.retain
    ), gone_one AS (
      DELETE FROM seriatim.item i USING turn t
      CROSS JOIN LATERAL (SELECT o.ctid AS row FROM seriatim.item o WHERE o.seq = t.taken OFFSET 0) o
      WHERE t.mode <> 1 AND i.ctid = o.row
      RETURNING i.*, t.key, t.claimed_at, t.retain
    ), gone AS (
      SELECT * FROM gone_all UNION ALL SELECT * FROM gone_one
    ), ended AS (
      INSERT INTO seriatim.ended
        SELECT g.seq, g.queue, g.key, 2, _now, seriatim.later(_now, g.retain), g.digest, g.task,
          g.score, g.priority, g.run_at, g.created_at, coalesce(g.started_at, g.claimed_at),
          g.attempts + 1, g.retry_count, g.crashes, g.error, g.options, g.lease_ttl, g.expires_at,
          g.route, false, g.payload
        FROM gone g WHERE _kept AND g.retain > 0
    ), forgotten AS (
      DELETE FROM seriatim.alias
      WHERE of_seq = ANY (ARRAY(SELECT g.seq FROM gone g WHERE g.retain = 0))
    )
    SELECT array_agg(t.place), array_agg(t.number), o_batches || array_agg(t.batch),
      _queues || ARRAY(SELECT g.queue FROM gone g)
    INTO _more, _numbers, o_batches, _queues FROM turn t;
    IF _more IS NOT NULL THEN
      o_went := seriatim.go_on(_going_on, _numbers, _now);
      o_wait := seriatim.place(seriatim.without(_numbers, o_went), _now, true);
      o_places := o_places || _more;
    END IF;
  END IF;
  INSERT INTO seriatim.tally AS t (queue, slot, processed, failed)
    SELECT q, pg_backend_pid() % 32, count(*), 0 FROM unnest(_queues) q GROUP BY q ORDER BY q
  ON CONFLICT (queue, slot) DO UPDATE SET processed = t.processed + excluded.processed;
END $$;

-- The arrays have one entry per settlement; _x_… one per exception, whose _x_place is the settlement's place. Returns
-- one row per settlement carried out (the others were stale), or one with place 0 for all, and one per job that ended
-- cancelled because it was flagged. Then, with place -2, whether a settled lane now waits,
-- and with place -1 the jobs of the next turns of lanes that go on.
CREATE FUNCTION seriatim.settle(_now bigint, _lane bigint[], _queue int[], _token bigint[],
  _rest smallint[], _owner bigint[], _due_kind smallint[], _due_in bigint[], _retry_count int[],
  _crashes int[], _error text[], _counted boolean[], _hold boolean[], _x_place int[], _x_seq bigint[],
  _x_fate smallint[], _claims jsonb)
RETURNS TABLE (o_place int, o_seq bigint, o_created_at bigint, turn seriatim.taken) LANGUAGE plpgsql AS $$
DECLARE
  _going_on seriatim.going_on[] := '{}';
  _went bigint[] := '{}';
  _on bigint[];
  _wait boolean;
  _t bigint := coalesce(_now, seriatim.clock());
  _endings seriatim.ending[];
  _fates seriatim.fated[];
  _ended int[];
  _batches bigint[];
  _keyed int[];
BEGIN
  PERFORM seriatim.check_isolation();
  IF _claims IS NOT NULL THEN
    _going_on := seriatim.lanes_going_on(_claims, _lane);
  END IF;
  -- Before anything is written, in the common order. If all end as done, settle_done() locks the lanes without a key
  -- (those of parallel queues) as it deletes them, in the same order.
  IF 0 <> ANY (_rest) OR _x_place <> '{}' THEN
    PERFORM seriatim.lock_rows(_lane);
  ELSE
    _keyed := ARRAY(SELECT number FROM seriatim.queue WHERE number = ANY (_queue) AND mode <> 0);
    IF _keyed <> '{}' THEN
      PERFORM seriatim.lock_rows(ARRAY(
        SELECT lane FROM unnest(_lane, _queue) w (lane, queue) WHERE w.queue = ANY (_keyed)));
    END IF;
  END IF;
  IF 0 = ANY (_rest) THEN
    SELECT * INTO _ended, _batches, _went, _wait
    FROM seriatim.settle_done(_t, _lane, _queue, _token, _rest, _x_place, _going_on);
    PERFORM seriatim.leave_batches(_batches);
    IF cardinality(_ended) = cardinality(_lane) THEN
      RETURN QUERY SELECT 0, NULL::bigint, NULL::bigint, NULL::seriatim.taken;
      RETURN QUERY SELECT -2, NULL::bigint, NULL::bigint, NULL::seriatim.taken WHERE _wait;
      RETURN QUERY SELECT -1, NULL::bigint, NULL::bigint, t FROM seriatim.turns_of(_went) t;
      RETURN;
    END IF;
    RETURN QUERY SELECT p, NULL::bigint, NULL::bigint, NULL::seriatim.taken FROM unnest(_ended) p;
  END IF;
  PERFORM seriatim.lock_lanes(_lane);
  PERFORM seriatim.unpack(_lane);
  SELECT array_agg(ROW(w.place, w.lane, q.mode, q.merge, q.retain, l.claimed_at, w.rest, w.owner,
    w.due_kind, w.due_in, w.retry_count, w.crashes, w.error, w.counted, w.hold, l.batch)::seriatim.ending)
  INTO _endings
  FROM (
    SELECT DISTINCT ON (lane) * FROM unnest(_lane, _queue, _token, _rest, _owner, _due_kind, _due_in,
        _retry_count, _crashes, _error, _counted, _hold)
      WITH ORDINALITY AS u (lane, queue, token, rest, owner, due_kind, due_in, retry_count, crashes,
        error, counted, hold, place)
    ORDER BY lane, place) w
  CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.lane OFFSET 0) l
  JOIN seriatim.queue q ON q.number = l.queue
  WHERE l.queue = w.queue AND l.token = w.token AND l.claimed;
  IF _endings IS NULL THEN
    RETURN QUERY SELECT -2, NULL::bigint, NULL::bigint, NULL::seriatim.taken WHERE _wait;
    RETURN QUERY SELECT -1, NULL::bigint, NULL::bigint, t FROM seriatim.turns_of(_went) t;
    RETURN;
  END IF;
  _fates := seriatim.fates_of(_endings, (
    SELECT jsonb_object_agg(format('%s:%s', x.place, x.seq), x.fate)
    FROM unnest(_x_place, _x_seq, _x_fate) x (place, seq, fate)));
  PERFORM seriatim.end_jobs(_fates, _t);
  PERFORM seriatim.free_lanes(_endings, _t);
  PERFORM seriatim.keep_jobs(_fates, _t);
  -- Before place() removes the empty lanes.
  PERFORM seriatim.count_turns(_fates, ARRAY(
    SELECT x.place FROM unnest(_x_place, _x_fate) x (place, fate) WHERE x.fate = 2));
  _on := seriatim.go_on(_going_on, ARRAY(
    SELECT e.lane FROM unnest(_endings) e WHERE e.rest = 0 AND e.place <> ALL (_x_place)), _t);
  _wait := seriatim.place(seriatim.without(ARRAY(SELECT lane FROM unnest(_endings)), _on), _t) OR _wait;
  PERFORM seriatim.leave_batches(ARRAY(SELECT batch FROM unnest(_endings)));
  RETURN QUERY SELECT e.place, NULL::bigint, NULL::bigint, NULL::seriatim.taken FROM unnest(_endings) e;
  RETURN QUERY SELECT f.place, f.seq, f.created_at, NULL::seriatim.taken FROM unnest(_fates) f
    WHERE f.cancelled ORDER BY f.place, f.score, f.seq;
  RETURN QUERY SELECT -2, NULL::bigint, NULL::bigint, NULL::seriatim.taken WHERE _wait;
  RETURN QUERY SELECT -1, NULL::bigint, NULL::bigint, t FROM seriatim.turns_of(_went || _on) t;
END $$;
