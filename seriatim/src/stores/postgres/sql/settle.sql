-- Settling turns. Fates: 0 done, 1 bury, 2 cancel, 3 expire, 4 drop, 5 keep.

-- A settlement whose token is current, with data of its lane and queue.
CREATE TYPE seriatim.ending AS (
  place int, lane bigint, mode smallint, merge smallint, retain bigint, claimed_at bigint,
  rest smallint, owner bigint, due_kind smallint, due_in bigint, retry_count int, crashes int,
  error text, counted boolean, hold boolean, alone boolean, batch bigint, windowed boolean, result text,
  grp bigint, shared boolean
);

-- The fate of one closed job, with all data needed for it: joining the arrays of a batch with each other takes
-- quadratic time. owned: the settlement names the job.
CREATE TYPE seriatim.fated AS (
  place int, lane bigint, seq bigint, score float8, created_at bigint, fate smallint, why text,
  cancelled boolean, merge smallint, retain bigint, claimed_at bigint, counted boolean, owned boolean,
  due_kind smallint, due_in bigint, retry_count int, crashes int, batch text
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
        CASE WHEN f.cancelled THEN 'canceled' WHEN f.fate = 0 THEN (f.e).result WHEN f.fate = 3 THEN 'expired'
          WHEN f.fate IN (1, 2) OR f.owned THEN (f.e).error END,
        f.cancelled, (f.e).merge, (f.e).retain, CASE WHEN f.started OR f.cancelled OR f.fate <> 5 THEN (f.e).claimed_at END, (f.e).counted AND f.started, f.owned,
        (f.e).due_kind, (f.e).due_in, (f.e).retry_count, (f.e).crashes, f.batch)::seriatim.fated), '{}')
    FROM (
      SELECT x.*, x.flagged AND x.fate <> 0 AS cancelled, x.owned OR NOT (x.e).alone AS started
      FROM (
        SELECT e, i.lane, i.seq, i.score, i.created_at, i.flagged, seriatim.batch_in(i.options) AS batch,
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
  WITH stored AS (INSERT INTO seriatim.ended
    SELECT i.seq, i.queue, l.key, CASE f.fate WHEN 0 THEN 2 WHEN 1 THEN 3 ELSE 4 END, _now,
      CASE WHEN f.fate <> 1 THEN seriatim.later(_now, f.retain) END,
      i.digest, i.task, i.score, i.priority, i.run_at, i.created_at,
      coalesce(i.started_at, f.claimed_at), i.attempts + 1,
      CASE WHEN f.owned THEN f.retry_count ELSE i.retry_count END,
      CASE WHEN f.owned THEN f.crashes ELSE i.crashes END,
      coalesce(f.why, i.error),
      i.options, i.lease_ttl, i.expires_at, i.route, i.flagged AND f.fate <> 1, i.payload
    FROM unnest(_fates) f
    CROSS JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = f.seq OFFSET 0) i
    CROSS JOIN LATERAL (SELECT n.key FROM seriatim.lane n WHERE n.number = i.lane OFFSET 0) l
    WHERE f.fate = 1 OR f.fate IN (0, 2, 3) AND f.retain > 0
    RETURNING queue, state)
  INSERT INTO seriatim.tally (queue, dead) SELECT queue, count(*) FROM stored WHERE state = 3 GROUP BY queue;
  DELETE FROM seriatim.alias WHERE of_seq = ANY (ARRAY(SELECT f.seq FROM unnest(_fates) f
    WHERE f.fate = 4 OR f.fate IN (0, 2, 3) AND f.retain = 0));
  PERFORM seriatim.drop_items(ARRAY(SELECT f.seq FROM unnest(_fates) f WHERE f.fate <> 5));
END $$;

-- Counts jobs that leave their batches: those of _done, and by their fates. Returns the queues to be woken. With _skip, it fails
-- as lock_not_available if another transaction keeps a batch locked. Then behind_batches() tells which turns to leave out.
CREATE FUNCTION seriatim.leave_fated(_done seriatim.leaving[], _fates seriatim.fated[], _now bigint, _skip boolean)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  _left seriatim.leaving[] := _done || ARRAY(
    SELECT ROW(f.batch, CASE WHEN f.fate IN (1, 4) THEN 1 WHEN f.fate = 0 THEN 0 ELSE 2 END, 1)::seriatim.leaving
    FROM unnest(_fates) f WHERE f.batch IS NOT NULL AND f.fate <> 5);
  _was text := current_setting('lock_timeout');
  _called text[];
BEGIN
  IF _left = '{}' THEN
    RETURN _called;
  END IF;
  IF _skip THEN
    PERFORM set_config('lock_timeout', '200ms', true);
  END IF;
  _called := seriatim.leave_job_batches(_left, _now);
  PERFORM set_config('lock_timeout', _was, true);
  RETURN _called;
END $$;

-- Ends the claims. Jobs still closed in a lane are kept ones.
CREATE FUNCTION seriatim.free_lanes(_endings seriatim.ending[], _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  WITH freed AS (UPDATE seriatim.lane l
  SET claimed = false, batch = NULL, holder = NULL, own_lease = NULL, ttl = NULL, until = NULL, claimed_at = NULL,
    grp = NULL, beat_at = NULL, progress = CASE WHEN e.kept THEN l.progress END,
    next_due = CASE WHEN e.windowed AND NOT e.kept THEN l.next_due END,
    held = l.held OR e.hold AND e.kept AND (e.owner IS NULL OR e.owner_kept),
    due = CASE WHEN e.mode <> 1 THEN l.due
      WHEN e.windowed AND NOT e.kept THEN seriatim.after_turn(l.number, l.due, l.next_due,
        (SELECT q FROM seriatim.queue q WHERE q.number = l.queue), _now)
      WHEN NOT e.kept THEN coalesce(l.next_due, l.due) ELSE seriatim.due_after(l.due, _now, e.due_kind, e.due_in) END,
    retry_count = CASE WHEN e.mode = 1 AND e.kept THEN e.retry_count ELSE -1 END,
    crashes = CASE WHEN e.mode = 1 AND e.kept THEN e.crashes ELSE 0 END,
    error = CASE WHEN e.mode = 1 AND e.kept THEN e.error END
  FROM (
    SELECT s.*,
      EXISTS (SELECT FROM seriatim.item i WHERE i.closed AND CASE WHEN i.closed THEN i.lane END = s.lane
        OFFSET 0) AS kept,
      EXISTS (SELECT FROM seriatim.item i WHERE i.seq = s.owner AND i.lane = s.lane AND i.closed OFFSET 0)
        AS owner_kept
    FROM unnest(_endings) s
  ) e
  CROSS JOIN LATERAL (SELECT n.ctid AS row, n.retry_count FROM seriatim.lane n WHERE n.number = e.lane OFFSET 0) n
  WHERE l.ctid = n.row
  RETURNING l.queue, e.grp, seriatim.turned(n.retry_count, l.retry_count) AS turned
  ), counted AS (
    INSERT INTO seriatim.freed (queue, grp, turns)
      SELECT queue, grp, count(*) FROM freed WHERE grp IS NOT NULL GROUP BY queue, grp)
  INSERT INTO seriatim.tally (queue, claimed, retrying) SELECT queue, -count(*), sum(turned) FROM freed GROUP BY queue;
END $$;

-- Opens kept jobs. If an equal job arrived meanwhile, they merge first: at most one of them may be open. One of the two leaves
-- their batch then: with _skip, it fails as leave_fated() does.
CREATE FUNCTION seriatim.keep_jobs(_fates seriatim.fated[], _now bigint, _skip boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  _was text := current_setting('lock_timeout');
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
  IF _skip THEN
    PERFORM set_config('lock_timeout', '200ms', true);
  END IF;
  PERFORM seriatim.unite(k.seq, o.seq, f.merge)
  FROM unnest(_fates) f
  CROSS JOIN LATERAL (SELECT * FROM seriatim.item n WHERE n.seq = f.seq AND n.merging OFFSET 0) k
  CROSS JOIN LATERAL (SELECT i.seq FROM seriatim.item i
    WHERE i.lane = k.lane AND i.digest = k.digest AND i.merging AND NOT i.closed OFFSET 0) o
  WHERE f.fate = 5;
  PERFORM set_config('lock_timeout', _was, true);
  UPDATE seriatim.item SET closed = false
  WHERE seq = ANY (ARRAY(SELECT f.seq FROM unnest(_fates) f WHERE f.fate = 5));
END $$;

-- Counts done jobs and failed turns, by the rule of Settlement::has_failed. _cancels: places of settlements whose
-- handler cancelled a job.
CREATE FUNCTION seriatim.count_turns(_fates seriatim.fated[], _cancels int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.tally (queue, processed, failed)
    SELECT l.queue, sum(e.done), count(*) FILTER (WHERE e.failed)
    FROM (
      SELECT f.lane, count(*) FILTER (WHERE f.fate = 0) AS done,
        bool_or(f.fate IN (1, 4) OR f.fate = 5 AND f.counted AND f.place <> ALL (_cancels)) AS failed
      FROM unnest(_fates) f GROUP BY f.lane) e
    CROSS JOIN LATERAL (SELECT n.queue FROM seriatim.lane n WHERE n.number = e.lane OFFSET 0) l
    WHERE e.done > 0 OR e.failed
    GROUP BY l.queue;
END $$;

-- Stores done jobs that are packed lanes, if their queue retains them.
CREATE FUNCTION seriatim.retain_packed(_lanes bigint[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.ended
    SELECT l.number, l.queue, l.key, 2, _now, seriatim.later(_now, q.retain), l.digest, l.task,
      l.score, l.priority, l.packed_run_at, l.created_at, l.claimed_at, 1, -1, 0, NULL, l.options,
      l.lease_ttl, NULL, l.route, false, l.payload
    FROM (SELECT * FROM seriatim.lane WHERE number = ANY (_lanes) OFFSET 0) l
    JOIN seriatim.queue q ON q.number = l.queue AND q.retain > 0;
END $$;

-- Those of these turns whose claims are light, each once.
CREATE FUNCTION seriatim.light_turns(_lane bigint[], _token bigint[], OUT o_lanes bigint[], OUT o_tokens bigint[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT array_agg(u.number), array_agg(b.token) INTO o_lanes, o_tokens
  FROM seriatim.batch b CROSS JOIN LATERAL unnest(b.lanes) u (number)
  WHERE b.token = ANY (ARRAY(SELECT DISTINCT unnest(_token))) AND b.light
    AND CASE WHEN (u.number, b.token) IN (SELECT * FROM unnest(_lane, _token)) THEN true END;
END $$;

-- Notes that a turn of each of these groups has ended.
CREATE FUNCTION seriatim.free_groups(_queues int[], _groups bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.freed (queue, grp, turns)
    SELECT w.queue, w.grp, count(*) FROM unnest(_queues, _groups) w (queue, grp) GROUP BY w.queue, w.grp;
END $$;

-- Ends turns of lanes without keys: each is a packed lane.
CREATE FUNCTION seriatim.end_keyless(_now bigint, _lane bigint[], _queue int[], _token bigint[],
  OUT o_lanes bigint[], OUT o_tokens bigint[], OUT o_batches seriatim.leaving[]) LANGUAGE plpgsql AS $$
DECLARE
  _queues int[];
  _light bigint[];
  _light_tokens bigint[];
  -- Of the counted turns.
  _counted int[];
  _groups bigint[];
BEGIN
  SELECT l.o_lanes, l.o_tokens INTO _light, _light_tokens FROM seriatim.light_turns(_lane, _token) l;
  IF EXISTS (SELECT FROM seriatim.queue WHERE number = ANY (_queue) AND retain > 0) THEN
    PERFORM seriatim.lock_lanes(_lane);
    _light := NULL;
    PERFORM seriatim.retain_packed(ARRAY(SELECT number FROM seriatim.lane l
      WHERE l.number = ANY (_lane) AND l.claimed AND l.payload IS NOT NULL
        AND CASE WHEN (l.number, l.queue, l.token) IN (SELECT * FROM unnest(_lane, _queue, _token)) THEN true END), _now);
  END IF;
  WITH gone AS (
    -- In the CASE, the list of turns becomes a hash table that each lane is looked up in.
    DELETE FROM seriatim.lane l
    WHERE l.number = ANY (_lane) AND l.payload IS NOT NULL
      AND CASE WHEN l.claimed THEN (l.number, l.queue, l.token) IN (SELECT * FROM unnest(_lane, _queue, _token))
        WHEN l.token = 0 THEN (l.number, l.queue) IN (SELECT * FROM unnest(_lane, _queue))
          AND l.number IN (SELECT unnest(_light)) END
    RETURNING l.number, l.queue, l.token, l.grp, l.options
  )
  -- The options of a push are mostly equal: they are read once.
  , alike AS (SELECT options, count(*) AS jobs FROM gone WHERE options IS NOT NULL GROUP BY options)
  SELECT coalesce(array_agg(g.number), '{}'), coalesce(array_agg(g.token), '{}'), array_agg(g.queue),
    array_agg(g.queue) FILTER (WHERE g.grp IS NOT NULL), array_agg(g.grp) FILTER (WHERE g.grp IS NOT NULL),
    (SELECT array_agg(ROW(seriatim.batch_in(options), 0, jobs)::seriatim.leaving) FROM alike
      WHERE seriatim.batch_in(options) IS NOT NULL)
  INTO o_lanes, o_tokens, _queues, _counted, _groups, o_batches FROM gone g;
  IF _groups IS NOT NULL THEN
    PERFORM seriatim.free_groups(_counted, _groups);
  END IF;
  INSERT INTO seriatim.tally (queue, lanes, jobs, claimed, processed)
    SELECT q, -count(*), -count(*), -count(*), count(*) FROM unnest(_queues) q GROUP BY q;
  IF cardinality(_light) = cardinality(_lane) AND cardinality(o_lanes) = cardinality(_lane) THEN
    o_lanes := _light;
    o_tokens := _light_tokens;
  ELSIF _light IS NOT NULL THEN
    SELECT array_agg(w.lane), array_agg(w.token) INTO o_lanes, o_tokens FROM (
      SELECT * FROM unnest(o_lanes, o_tokens) g (lane, token) WHERE token > 0
      UNION ALL
      SELECT * FROM unnest(_light, _light_tokens) x (lane, token)
      WHERE CASE WHEN (lane, 0) IN (SELECT * FROM unnest(o_lanes, o_tokens)) THEN true END) w;
  END IF;
END $$;

-- Locks lanes, and returns those with a key that another transaction keeps locked. Short locks are waited for, in the
-- common order and in the queue of those who want the row: otherwise pushes could pass by for ever, or wait for this.
-- Longer ones are those of users.
CREATE FUNCTION seriatim.lock_in_line(_lanes bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  _was text := current_setting('lock_timeout');
  _free bigint[];
BEGIN
  PERFORM set_config('lock_timeout', '200ms', true);
  PERFORM seriatim.lock_rows(_lanes);
  PERFORM set_config('lock_timeout', _was, true);
  RETURN '{}';
EXCEPTION WHEN lock_not_available THEN
  _free := ARRAY(SELECT number FROM seriatim.lane WHERE number = ANY (_lanes) AND key IS NOT NULL FOR UPDATE SKIP LOCKED);
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE number = ANY (_lanes) AND key IS NOT NULL
    AND CASE WHEN number IN (SELECT unnest(_free)) THEN false ELSE true END);
END $$;

-- Ends turns of lanes with keys, in the compact forms: a packed lane, or a claim that owns its jobs by one number.
-- Locks the lanes; with _skip it leaves out those that another transaction keeps locked (o_busy). o_freed: those to be
-- placed. They are still claimed, and have no job of their claim left.
CREATE FUNCTION seriatim.end_keyed(_now bigint, _lane bigint[], _queue int[], _token bigint[], _others int[],
  _skip boolean,
  OUT o_lanes bigint[], OUT o_tokens bigint[], OUT o_freed bigint[], OUT o_busy bigint[], OUT o_batches seriatim.leaving[])
LANGUAGE plpgsql AS $$
DECLARE
  -- The queues of the turns, of those that are packed lanes, and of the jobs of the others.
  _queues int[];
  _packed_queues int[];
  _job_queues int[] := '{}';
  _joined bigint[]; -- lanes whose turns have several jobs that are not marked
  _number int;
  _turns bigint;
  _lanes bigint;
  _jobs bigint;
  _packed bigint[];
  _seqs bigint[];
  _whole bigint[];
  _last bigint[];
  _accumulate int[];
  _kept boolean;
  -- Lanes that were never claimed, or are under light claims, and those of these turns.
  _fresh bigint[];
  _fresh_queues int[];
  _light bigint[];
  _light_tokens bigint[];
  _light_queues int[];
  -- Of the counted turns.
  _counted int[];
  _groups bigint[];
  _left seriatim.leaving[]; -- batches of jobs with rows of their own
BEGIN
  SELECT coalesce(array_agg(number) FILTER (WHERE mode = 1), '{}'), bool_or(retain > 0) INTO _accumulate, _kept
  FROM seriatim.queue WHERE number = ANY (_others);
  IF NOT _skip THEN
    PERFORM seriatim.lock_rows(_lane);
  END IF;
  LOOP
    BEGIN
      SELECT coalesce(array_agg(l.number) FILTER (WHERE l.token > 0), '{}'),
        coalesce(array_agg(l.token) FILTER (WHERE l.token > 0), '{}'),
        coalesce(array_agg(l.queue) FILTER (WHERE l.token > 0), '{}'),
        coalesce(array_agg(l.queue) FILTER (WHERE l.packed AND l.token > 0), '{}'),
        coalesce(array_agg(l.number) FILTER (WHERE NOT l.packed), '{}'),
        array_agg(l.number) FILTER (WHERE l.packed AND l.token > 0),
        array_agg(l.taken) FILTER (WHERE NOT l.packed AND NOT l.whole),
        array_agg(l.number) FILTER (WHERE NOT l.packed AND l.whole),
        array_agg(l.taken) FILTER (WHERE NOT l.packed AND l.whole),
        coalesce(array_agg(l.number) FILTER (WHERE l.token = 0), '{}'), array_agg(l.queue) FILTER (WHERE l.token = 0),
        array_agg(l.queue) FILTER (WHERE l.grp IS NOT NULL), array_agg(l.grp) FILTER (WHERE l.grp IS NOT NULL),
        array_agg(l.number) FILTER (WHERE NOT l.packed AND l.joined)
      INTO o_lanes, o_tokens, _queues, _packed_queues, o_freed, _packed, _seqs, _whole, _last, _fresh, _fresh_queues,
        _counted, _groups, _joined
      FROM (SELECT l.number, l.token, l.queue, l.claimed, l.taken, l.grp, l.payload IS NOT NULL AS packed,
          l.joined IS NOT NULL AS joined,
          l.queue = ANY (_accumulate) AS whole
        FROM seriatim.lane l WHERE l.number = ANY (_lane) FOR UPDATE SKIP LOCKED) l
      WHERE CASE WHEN l.token = 0 THEN l.packed AND (l.number, l.queue) IN (SELECT * FROM unnest(_lane, _queue))
        WHEN l.claimed AND (l.packed OR l.taken IS NOT NULL)
        THEN (l.number, l.queue, l.token) IN (SELECT * FROM unnest(_lane, _queue, _token)) END;
      IF _skip AND o_busy IS NULL AND cardinality(o_lanes) + cardinality(_fresh) < cardinality(_lane) THEN
        -- Some may be locked. This gives the locks back: who waits with locks taken in another order is waited for.
        RAISE lock_not_available;
      END IF;
      EXIT;
    EXCEPTION WHEN lock_not_available THEN
      o_busy := seriatim.lock_in_line(_lane);
    END;
  END LOOP;
  IF _groups IS NOT NULL THEN
    PERFORM seriatim.free_groups(_counted, _groups);
  END IF;
  -- Statements after the locks: their snapshots include everything that a push committed before.
  IF _fresh <> '{}' THEN
    SELECT l.o_lanes, l.o_tokens INTO _light, _light_tokens FROM seriatim.light_turns(_lane, _token) l;
    SELECT array_agg(w.lane), array_agg(w.token), array_agg(w.queue) INTO _light, _light_tokens, _light_queues
    FROM unnest(_lane, _queue, _token) w (lane, queue, token)
    WHERE CASE WHEN (w.lane, w.token) IN (SELECT * FROM unnest(_light, _light_tokens))
      THEN (w.lane, w.queue) IN (SELECT * FROM unnest(_fresh, _fresh_queues)) END;
  END IF;
  IF _light IS NOT NULL THEN
    o_lanes := o_lanes || _light;
    o_tokens := o_tokens || _light_tokens;
    _queues := _queues || _light_queues;
    _packed_queues := _packed_queues || _light_queues;
    _packed := _packed || _light;
    IF _kept THEN
      PERFORM seriatim.unfold(_light);
    END IF;
  END IF;
  IF o_busy <> '{}' THEN
    o_busy := seriatim.without(o_busy, o_lanes);
  END IF;
  IF _packed IS NOT NULL THEN
    IF _kept THEN
      PERFORM seriatim.retain_packed(_packed, _now);
    END IF;
    WITH gone AS (DELETE FROM seriatim.lane WHERE number = ANY (_packed) RETURNING options)
    , alike AS (SELECT options, count(*) AS jobs FROM gone WHERE options IS NOT NULL GROUP BY options)
    SELECT array_agg(ROW(seriatim.batch_in(options), 0, jobs)::seriatim.leaving) INTO o_batches FROM alike
    WHERE seriatim.batch_in(options) IS NOT NULL;
  END IF;
  IF _whole IS NOT NULL THEN
    _seqs := _seqs || ARRAY(SELECT o.seq FROM unnest(_whole, _last) w (lane, last)
      CROSS JOIN LATERAL (SELECT i.seq FROM seriatim.item i WHERE i.lane = w.lane AND i.seq + 0 <= w.last OFFSET 0) o);
  END IF;
  IF _joined IS NOT NULL THEN
    _seqs := _seqs || ARRAY(SELECT u.seq FROM seriatim.lane l CROSS JOIN LATERAL unnest(l.joined) u (seq)
      WHERE l.number = ANY (_joined));
  END IF;
  IF _seqs IS NOT NULL THEN
    SELECT e.o_queues, e.o_batches INTO _job_queues, _left FROM seriatim.end_items(_seqs, _kept, _now) e;
    o_batches := o_batches || _left;
  END IF;
  FOREACH _number IN ARRAY _others LOOP
    _turns := cardinality(array_positions(_queues, _number));
    CONTINUE WHEN _turns = 0;
    _lanes := cardinality(array_positions(_packed_queues, _number));
    _jobs := _lanes + cardinality(array_positions(_job_queues, _number));
    INSERT INTO seriatim.tally (queue, lanes, jobs, claimed, processed)
      VALUES (_number, -_lanes, -_jobs, -_turns, _jobs);
  END LOOP;
END $$;

-- Ends done jobs. Returns the queue of each, and the batches of those that have one.
CREATE FUNCTION seriatim.end_items(_seqs bigint[], _kept boolean, _now bigint, OUT o_queues int[],
  OUT o_batches seriatim.leaving[])
LANGUAGE plpgsql AS $$
DECLARE
  _forgotten bigint[] := _seqs;
BEGIN
  IF _kept THEN
    INSERT INTO seriatim.ended
      SELECT i.seq, i.queue, l.key, 2, _now, seriatim.later(_now, q.retain), i.digest, i.task,
        i.score, i.priority, i.run_at, i.created_at, coalesce(i.started_at, l.claimed_at),
        i.attempts + 1, i.retry_count, i.crashes, i.error, i.options, i.lease_ttl, i.expires_at,
        i.route, false, i.payload
      FROM unnest(_seqs) w (seq)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = w.seq OFFSET 0) i
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = i.lane OFFSET 0) l
      JOIN seriatim.queue q ON q.number = i.queue AND q.retain > 0;
    _forgotten := ARRAY(SELECT i.seq FROM (SELECT * FROM seriatim.item WHERE seq = ANY (_seqs) OFFSET 0) i
      JOIN seriatim.queue q ON q.number = i.queue AND q.retain = 0);
  END IF;
  DELETE FROM seriatim.alias WHERE of_seq = ANY (_forgotten);
  WITH gone AS (DELETE FROM seriatim.item WHERE seq = ANY (_seqs) RETURNING queue, options)
  , alike AS (SELECT options, count(*) AS jobs FROM gone WHERE options IS NOT NULL GROUP BY options)
  SELECT array_agg(queue), (SELECT array_agg(ROW(seriatim.batch_in(options), 0, jobs)::seriatim.leaving) FROM alike
      WHERE seriatim.batch_in(options) IS NOT NULL)
  INTO o_queues, o_batches FROM gone;
END $$;

-- Ends turns with all jobs done, if their claims have a compact form. Returns their places (NULL: all) and tokens, the
-- lanes to be placed (see end_keyed()), whether a limit may have held others back, and the batches of the jobs that have one.
CREATE FUNCTION seriatim.settle_done(_now bigint, _lane bigint[], _queue int[], _token bigint[],
  _rest smallint[], _x_place int[], _skip boolean, OUT o_places int[], OUT o_tokens bigint[], OUT o_freed bigint[],
  OUT o_busy bigint[], OUT o_shared boolean, OUT o_batches seriatim.leaving[])
LANGUAGE plpgsql AS $$
DECLARE
  -- The turns that end as done altogether.
  _lanes bigint[] := _lane;
  _of int[] := _queue;
  _tokens bigint[] := _token;
  _parallel int[];
  _others int[];
  -- Those with a key.
  _keyed bigint[];
  _keyed_of int[];
  _keyed_tokens bigint[];
  _ended bigint[] := '{}';
  _more bigint[];
  _more_tokens bigint[];
  _more_batches seriatim.leaving[];
BEGIN
  o_tokens := '{}';
  o_freed := '{}';
  IF _x_place <> '{}' OR 0 <> ANY (_rest) THEN
    SELECT array_agg(lane), array_agg(queue), array_agg(token) INTO _lanes, _of, _tokens
    FROM unnest(_lane, _queue, _token, _rest) WITH ORDINALITY u (lane, queue, token, rest, place)
    WHERE rest = 0 AND place <> ALL (_x_place) AND token >= 0;
  END IF;
  SELECT coalesce(array_agg(number) FILTER (WHERE mode = 0), '{}'), coalesce(array_agg(number) FILTER (WHERE mode <> 0), '{}'),
    coalesce(bool_or(shares IS NOT NULL), false)
  INTO _parallel, _others, o_shared FROM seriatim.queue WHERE number = ANY (_of);
  IF _others <> '{}' THEN
    IF _parallel <> '{}' THEN
      SELECT array_agg(lane), array_agg(queue), array_agg(token) INTO _keyed, _keyed_of, _keyed_tokens
      FROM unnest(_lanes, _of, _tokens) u (lane, queue, token) WHERE queue = ANY (_others);
    ELSE
      _keyed := _lanes;
      _keyed_of := _of;
      _keyed_tokens := _tokens;
    END IF;
    SELECT o_lanes, k.o_tokens, k.o_freed, k.o_busy, k.o_batches INTO _ended, o_tokens, o_freed, o_busy, o_batches
    FROM seriatim.end_keyed(_now, _keyed, _keyed_of, _keyed_tokens, _others, _skip) k;
    IF _parallel <> '{}' THEN
      SELECT array_agg(lane), array_agg(queue), array_agg(token) INTO _lanes, _of, _tokens
      FROM unnest(_lanes, _of, _tokens) u (lane, queue, token) WHERE queue = ANY (_parallel);
    END IF;
  END IF;
  IF _parallel <> '{}' THEN
    SELECT * INTO _more, _more_tokens, _more_batches FROM seriatim.end_keyless(_now, _lanes, _of, _tokens);
    o_batches := o_batches || _more_batches;
    _ended := _ended || _more;
    o_tokens := o_tokens || _more_tokens;
  END IF;
  IF cardinality(_ended) < cardinality(_lane) THEN
    o_places := ARRAY(SELECT min(u.place)::int FROM unnest(_lane, _token) WITH ORDINALITY u (lane, token, place)
      WHERE CASE WHEN (u.lane, u.token) IN (SELECT * FROM unnest(_ended, o_tokens)) THEN true END GROUP BY u.lane);
  END IF;
END $$;

-- Locks the lanes of turns that do not end in the compact forms, gives their jobs rows, and returns those turns whose
-- tokens are current.
CREATE FUNCTION seriatim.endings_of(_left bigint[], _lane bigint[], _queue int[], _token bigint[], _rest smallint[],
  _owner bigint[], _due_kind smallint[], _due_in bigint[], _retry_count int[], _crashes int[], _error text[],
  _counted boolean[], _hold boolean[], _alone boolean[], _result text[]) RETURNS seriatim.ending[] LANGUAGE plpgsql AS $$
BEGIN
  PERFORM seriatim.lock_rows(_left);
  PERFORM seriatim.unpack(_left);
  RETURN (
    SELECT array_agg(ROW(i, l.number, q.mode, q.merge, q.retain, l.claimed_at, _rest[i], _owner[i], _due_kind[i], _due_in[i],
      _retry_count[i], _crashes[i], _error[i], _counted[i], _hold[i], _alone[i], l.batch, q.quiet IS NOT NULL, _result[i],
      l.grp, q.shares IS NOT NULL)::seriatim.ending)
    FROM (SELECT i, _lane[i] AS lane FROM generate_subscripts(_lane, 1) i
      WHERE CASE WHEN _lane[i] IN (SELECT unnest(_left)) THEN true END) w
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.lane OFFSET 0) l
    JOIN seriatim.queue q ON q.number = l.queue
    WHERE l.queue = _queue[i] AND l.token = _token[i] AND l.claimed);
END $$;

-- Shortens the turns of series of which only some jobs were started: done ones end here, and those that were not started
-- leave the claim as they are. So what a failure costs does not depend on how many jobs were claimed behind it. _except: fates
-- by `place:seq`. Returns the batches of jobs that have one. The lanes are locked.
CREATE FUNCTION seriatim.shorten_series(_lane bigint[], _queue int[], _token bigint[], _rest smallint[], _owner bigint[],
  _alone boolean[], _except jsonb, _now bigint) RETURNS seriatim.leaving[] LANGUAGE plpgsql AS $$
DECLARE
  _done bigint[];
  _queues int[];
  _batches seriatim.leaving[];
BEGIN
  WITH turn AS MATERIALIZED (
    SELECT w.place, w.owner, l.row, l.taken || l.joined AS jobs
    FROM unnest(_lane, _queue, _token, _rest, _owner, _alone) WITH ORDINALITY
      AS w (lane, queue, token, rest, owner, alone, place)
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.taken, n.joined FROM seriatim.lane n
      WHERE n.number = w.lane AND n.queue = w.queue AND n.token = w.token AND n.claimed AND n.joined IS NOT NULL OFFSET 0) l
    JOIN seriatim.queue q ON q.number = w.queue AND q.mode = 2 AND q.retain = 0
    WHERE w.alone AND w.rest = 5 AND w.owner IS NOT NULL
  ), job AS MATERIALIZED (
    SELECT t.row, u.seq, u.at, (_except->>format('%s:%s', t.place, u.seq))::smallint = 0 AS done,
      u.seq = t.owner OR i.flagged AS stays
    FROM turn t
    CROSS JOIN LATERAL unnest(t.jobs) WITH ORDINALITY u (seq, at)
    CROSS JOIN LATERAL (SELECT o.flagged FROM seriatim.item o WHERE o.seq = u.seq OFFSET 0) i
  ), shorter AS (
    UPDATE seriatim.lane l SET taken = t.jobs[1], joined = nullif(t.jobs[2:], '{}')
    FROM (SELECT row, array_agg(seq ORDER BY at) FILTER (WHERE NOT coalesce(done, NOT stays)) AS jobs FROM job GROUP BY row) t
    WHERE l.ctid = t.row
  )
  SELECT array_agg(seq) FILTER (WHERE done) INTO _done FROM job;
  IF _done IS NOT NULL THEN
    SELECT e.o_queues, e.o_batches INTO _queues, _batches FROM seriatim.end_items(_done, false, _now) e;
    INSERT INTO seriatim.tally (queue, jobs, processed) SELECT q, -count(*), count(*) FROM unnest(_queues) q GROUP BY q;
  END IF;
  RETURN _batches;
END $$;

-- The arrays have one entry per settlement, _result none if no turn has one; _x_… one per exception, whose _x_place is the
-- settlement's place. Returns
-- one row per settlement carried out (the others were stale), or one with place 0 for all, and one per job that ended
-- cancelled because it was flagged; with place -1 the jobs of the next turns of lanes that go on; one with place -2
-- if a settled lane now waits, or others may that a limit held back; with place -3 those (in o_seq) whose lanes another transaction has locked, with
-- _skip; and with place -4 the queues (in name) of callbacks of batches that have ended.
CREATE FUNCTION seriatim.settle(_now bigint, _lane bigint[], _queue int[], _token bigint[],
  _rest smallint[], _owner bigint[], _due_kind smallint[], _due_in bigint[], _retry_count int[],
  _crashes int[], _error text[], _counted boolean[], _hold boolean[], _alone boolean[], _x_place int[], _x_seq bigint[],
  _x_fate smallint[], _claims jsonb, _skip boolean, _result text[])
RETURNS TABLE (o_place int, o_seq bigint, o_created_at bigint, lane bigint, queue int, name text, key text,
  token bigint, retry_count int, crashes int, error text, claimed_at bigint, seq bigint,
  created_at bigint, task text, payload bytea, score float8, priority smallint, run_at bigint,
  attempt int, options text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _going_on seriatim.going_on[] := '{}';
  -- Places of the turns that have ended, and the tokens of their claims.
  _ended int[] := '{}';
  _tokens bigint[] := '{}';
  -- Lanes to be placed: with claims to be ended, and with ended ones.
  _freed bigint[] := '{}';
  _open bigint[] := '{}';
  _done bigint[]; -- those of them with all jobs done
  _new bigint[];
  _went bigint[];
  _wait boolean := false;
  _all boolean := false;
  _left bigint[] := _lane;
  _busy bigint[] := '{}';
  _mixed boolean := 0 <> ANY (_rest) OR _x_place <> '{}';
  _endings seriatim.ending[];
  _except jsonb; -- fates by `place:seq`
  _fates seriatim.fated[] := '{}';
  _batches seriatim.leaving[]; -- of jobs that are done in the compact forms
  _called text[];
BEGIN
  PERFORM seriatim.check_isolation();
  IF _claims IS NOT NULL THEN
    _going_on := seriatim.lanes_going_on(_claims, _lane);
  END IF;
  -- Before anything is written, in the common order. If all end as done, settle_done() locks them, in the same order.
  IF _mixed THEN
    IF _skip THEN
      _busy := seriatim.lock_in_line(_lane);
      IF _busy <> '{}' THEN
        -- Their turns are not settled, even if they become free now.
        _token := ARRAY(SELECT CASE WHEN lane IN (SELECT unnest(_busy)) THEN -1 ELSE token END
          FROM unnest(_lane, _token) WITH ORDINALITY w (lane, token, place) ORDER BY place);
      END IF;
    END IF;
    IF NOT _skip OR _busy <> '{}' THEN
      PERFORM seriatim.lock_rows(seriatim.without(_lane, _busy));
    END IF;
  END IF;
  IF 0 = ANY (_rest) THEN
    SELECT o_places, o_tokens, o_freed, _busy || o_busy, o_shared, o_batches INTO _ended, _tokens, _freed, _busy, _wait, _batches
    FROM seriatim.settle_done(_t, _lane, _queue, _token, _rest, _x_place, _skip AND NOT _mixed);
    _all := _ended IS NULL;
    IF _all THEN
      _left := '{}';
    ELSE
      _left := seriatim.without(ARRAY(
        SELECT lane FROM unnest(_lane) WITH ORDINALITY w (lane, place)
        WHERE CASE WHEN place IN (SELECT unnest(_ended)) THEN false ELSE true END), _freed);
    END IF;
  END IF;
  _left := seriatim.without(_left, _busy);
  IF _left <> '{}' THEN
    IF _x_place <> '{}' THEN
      _except := (SELECT jsonb_object_agg(format('%s:%s', x.place, x.seq), x.fate)
        FROM unnest(_x_place, _x_seq, _x_fate) x (place, seq, fate));
    END IF;
    IF true = ANY (_alone) THEN
      _batches := _batches || seriatim.shorten_series(_lane, _queue, _token, _rest, _owner, _alone, _except, _t);
    END IF;
    _endings := seriatim.endings_of(_left, _lane, _queue, _token, _rest, _owner, _due_kind, _due_in, _retry_count,
      _crashes, _error, _counted, _hold, _alone, _result);
  END IF;
  IF _endings IS NOT NULL THEN
    _fates := seriatim.fates_of(_endings, _except);
    PERFORM seriatim.end_jobs(_fates, _t);
    PERFORM seriatim.free_lanes(_endings, _t);
    PERFORM seriatim.keep_jobs(_fates, _t, _skip);
    -- Before place() removes the empty lanes.
    PERFORM seriatim.count_turns(_fates, ARRAY(
      SELECT x.place FROM unnest(_x_place, _x_fate) x (place, fate) WHERE x.fate = 2));
    SELECT _ended || array_agg(e.place), _tokens || array_agg(e.batch), array_agg(e.lane),
      array_agg(e.lane) FILTER (WHERE e.rest = 0 AND e.place <> ALL (_x_place)), _wait OR bool_or(e.shared)
    INTO _ended, _tokens, _open, _done, _wait FROM unnest(_endings) e;
  END IF;
  IF _all OR cardinality(_ended) = cardinality(_lane) THEN
    RETURN QUERY SELECT 0, NULL::bigint, NULL::bigint, (NULL::seriatim.taken).*;
  ELSE
    RETURN QUERY SELECT p, NULL::bigint, NULL::bigint, (NULL::seriatim.taken).* FROM unnest(_ended) p;
  END IF;
  IF _endings IS NOT NULL THEN
    RETURN QUERY SELECT f.place, f.seq, f.created_at, (NULL::seriatim.taken).* FROM unnest(_fates) f
      WHERE f.cancelled ORDER BY f.place, f.score, f.seq;
  END IF;
  IF _busy <> '{}' THEN
    RETURN QUERY SELECT -3, w.place, NULL::bigint, (NULL::seriatim.taken).*
      FROM unnest(_lane) WITH ORDINALITY w (lane, place) WHERE CASE WHEN w.lane IN (SELECT unnest(_busy)) THEN true END;
  END IF;
  IF _going_on <> '{}' AND (_freed <> '{}' OR _endings IS NOT NULL) THEN
    FOR _claim IN 1 .. cardinality(_going_on) LOOP
      _new[_claim] := nextval('seriatim.token');
    END LOOP;
    RETURN QUERY SELECT -1, NULL::bigint, NULL::bigint, t.* FROM seriatim.go_on(_going_on, _new, _freed || _done, _t) t;
    _went := ARRAY(SELECT unnest(lanes) FROM seriatim.batch WHERE token = ANY (_new));
    _freed := seriatim.without(_freed, _went);
    _open := seriatim.without(_open, _went);
  END IF;
  IF _freed <> '{}' THEN
    _wait := seriatim.place(_freed, _t, true) OR _wait;
  END IF;
  IF _open <> '{}' THEN
    _wait := seriatim.place(_open, _t) OR _wait;
  END IF;
  PERFORM seriatim.leave_batches(_tokens);
  IF _batches IS NOT NULL OR _endings IS NOT NULL THEN
    _called := seriatim.leave_fated(_batches, _fates, _t, _skip);
  END IF;
  IF _called <> '{}' THEN
    RETURN QUERY SELECT -4, NULL::bigint, NULL::bigint,
      (jsonb_populate_record(NULL::seriatim.taken, jsonb_build_object('name', q))).* FROM unnest(_called) q;
  END IF;
  IF _wait THEN
    RETURN QUERY SELECT -2, NULL::bigint, NULL::bigint, (NULL::seriatim.taken).*;
  END IF;
END $$;
