-- Removing expired rows. Locked rows are skipped and swept another time.

-- Ends waiting jobs that were never attempted after their expiry time. Jobs of locked lanes and batches are passed by, up to
-- ten pages of them.
CREATE FUNCTION seriatim.sweep_expired(_now bigint, _rows_max int,
  OUT o_seq bigint[], OUT o_queue int[], OUT o_created_at bigint[], OUT o_more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  _page bigint[] := '{}';
  _at bigint := -1;
  _found bigint[] := '{}';
  _lanes bigint[] := '{}';
  _left text[];
  _free bigint[];
  _in_use text[];
BEGIN
  FOR _n IN 1..10 LOOP
    _page := ARRAY(SELECT seq FROM seriatim.item
      WHERE (expires_at, seq) > (_at, coalesce(_page[_rows_max], 0)) AND expires_at <= _now AND NOT closed
        AND attempts = 0
      ORDER BY expires_at, seq LIMIT _rows_max + 1);
    o_more := cardinality(_page) > _rows_max;
    _lanes := _lanes || ARRAY(SELECT number FROM seriatim.lane
      WHERE number = ANY (ARRAY(SELECT lane FROM seriatim.item WHERE seq = ANY (_page[:_rows_max])))
        AND number <> ALL (_lanes)
      ORDER BY queue, key, number FOR UPDATE SKIP LOCKED);
    _free := ARRAY(SELECT seq FROM seriatim.item
      WHERE seq = ANY (_page[:_rows_max]) AND lane = ANY (_lanes) ORDER BY expires_at, seq);
    _in_use := seriatim.batches_in_use(seriatim.batches_of(_free), _now);
    IF _in_use <> '{}' THEN
      _free := ARRAY(SELECT seq FROM seriatim.item
        WHERE seq = ANY (_free) AND coalesce(seriatim.batch_in(options) <> ALL (_in_use), true) ORDER BY expires_at, seq);
    END IF;
    _found := _found || _free;
    EXIT WHEN NOT o_more OR cardinality(_found) >= _rows_max;
    _at := (SELECT expires_at FROM seriatim.item WHERE seq = _page[_rows_max]);
  END LOOP;
  -- If all are locked, the next sweep is soon enough.
  o_more := _found <> '{}' AND (o_more OR cardinality(_found) > _rows_max);
  PERFORM seriatim.unpack(_lanes);
  SELECT coalesce(array_agg(seq), '{}'), coalesce(array_agg(queue), '{}'),
    coalesce(array_agg(created_at), '{}')
  INTO o_seq, o_queue, o_created_at FROM seriatim.item
  WHERE seq = ANY (_found[:_rows_max]) AND NOT closed AND expires_at <= _now AND attempts = 0;
  _left := seriatim.batches_of(o_seq);
  PERFORM seriatim.cancel_open(o_seq, 'expired', _now);
  PERFORM seriatim.place_left(_lanes, _now);
  PERFORM seriatim.leave_job_batches(_left, 2, _now);
END $$;

-- Forgets finished jobs after their retention.
CREATE FUNCTION seriatim.sweep_done(_now bigint, _rows_max int, OUT o_count bigint, OUT o_more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  _found bigint[] := ARRAY(SELECT seq FROM seriatim.ended
    WHERE until <= _now ORDER BY until LIMIT _rows_max + 1 FOR UPDATE SKIP LOCKED);
BEGIN
  o_more := cardinality(_found) > _rows_max;
  PERFORM seriatim.forget(_found[:_rows_max]);
  o_count := least(cardinality(_found), _rows_max);
END $$;

-- The first dead jobs of a queue, of those that died by _until: oldest first, and among those of one time the lowest number.
CREATE FUNCTION seriatim.oldest_dead(_queue int, _until bigint, _rows_max bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  _jobs bigint[];
  _last bigint;
BEGIN
  -- Backwards, the index has the highest number of a time first. So of the last time all are left out here.
  SELECT max(o.last), array_agg(o.seq ORDER BY o.ended_at, o.seq) FILTER (WHERE o.ended_at < o.last) INTO _last, _jobs
  FROM (SELECT w.*, max(w.ended_at) OVER () AS last FROM (
    SELECT ended_at, seq FROM seriatim.ended WHERE queue IS NOT NULL
      AND (queue, state, -ended_at) >= (_queue, 3::smallint, -_until) AND (queue, state) <= (_queue, 3::smallint)
    ORDER BY queue DESC, state DESC, -ended_at DESC, seq DESC LIMIT _rows_max) w) o;
  IF _last IS NULL THEN
    RETURN '{}';
  END IF;
  RETURN _jobs || ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL
    AND (queue, state, -ended_at) >= (_queue, 3::smallint, -_last) AND (queue, state, -ended_at) <= (_queue, 3::smallint, -_last)
    ORDER BY queue, state, -ended_at, seq LIMIT _rows_max - coalesce(cardinality(_jobs), 0));
END $$;

-- Deletes dead jobs after their retention, and the oldest above their queue's limit.
CREATE FUNCTION seriatim.sweep_dead(_now bigint, _rows_max int,
  OUT o_seq bigint[], OUT o_queue int[], OUT o_created_at bigint[], OUT o_more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  _q record;
  _found bigint[] := '{}';
  _left int;
  _old bigint[];
  _over bigint[];
BEGIN
  FOR _q IN
    SELECT q.number, q.retain_dead, (t.dead - q.retain_dead_max)::bigint AS over
    FROM seriatim.queue q
    JOIN (SELECT queue, sum(dead) AS dead FROM seriatim.tally GROUP BY queue) t ON t.queue = q.number AND t.dead > 0
    ORDER BY q.number
  LOOP
    _left := _rows_max + 1 - cardinality(_found);
    _old := seriatim.oldest_dead(_q.number, _now - _q.retain_dead, _left);
    _over := '{}';
    IF _q.over > cardinality(_old) THEN
      _over := seriatim.oldest_dead(_q.number, seriatim.last_number(), least(_q.over, _left));
    END IF;
    -- Each is the beginning of the other.
    _found := _found || CASE WHEN cardinality(_over) > cardinality(_old) THEN _over ELSE _old END;
    EXIT WHEN cardinality(_found) > _rows_max;
  END LOOP;
  o_more := cardinality(_found) > _rows_max;
  SELECT coalesce(array_agg(d.seq), '{}'), coalesce(array_agg(d.queue), '{}'),
    coalesce(array_agg(d.created_at), '{}')
  INTO o_seq, o_queue, o_created_at
  FROM (SELECT e.seq, e.queue, e.created_at FROM seriatim.ended e
    WHERE e.seq = ANY (_found[:_rows_max]) AND e.state = 3 FOR UPDATE SKIP LOCKED) d;
  PERFORM seriatim.forget(o_seq);
END $$;

-- Deletes expired idempotency keys without a stored job. Those of stored jobs stay, so each sweep looks at the next
-- ones, about _rows_max: all that expired with one push are looked at together. Answers whether there are probably more to
-- delete: most of these were deleted.
CREATE FUNCTION seriatim.forget_names(_now bigint, _rows_max int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _from bigint;
  _to bigint;
  _deleted bigint;
BEGIN
  INSERT INTO seriatim.looked (until) SELECT -1 WHERE NOT EXISTS (SELECT FROM seriatim.looked) ON CONFLICT DO NOTHING;
  SELECT until INTO _from FROM seriatim.looked FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  _to := (SELECT until FROM seriatim.idempotency WHERE until > _from AND until <= _now
    ORDER BY until OFFSET _rows_max LIMIT 1);
  DELETE FROM seriatim.idempotency d
  USING (
    SELECT i.ctid AS row FROM seriatim.idempotency i
    WHERE i.until > _from AND i.until <= coalesce(_to, _now) AND NOT seriatim.has_job(i.seq)
    FOR UPDATE OF i SKIP LOCKED
  ) x
  WHERE d.ctid = x.row;
  GET DIAGNOSTICS _deleted = ROW_COUNT;
  UPDATE seriatim.looked SET until = coalesce(_to, -1) WHERE until <> coalesce(_to, -1);
  RETURN _to IS NOT NULL AND 2 * _deleted > _rows_max;
END $$;

-- Deletes nodes that died more than _node_shown ago, expired extensions, groups that use nothing of their limits, and batches
-- without a claimed lane, which leave_batches() could not count.
CREATE FUNCTION seriatim.sweep_rest(_now bigint, _rows_max int, _node_shown bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM seriatim.node WHERE id IN (
    SELECT id FROM seriatim.node WHERE seriatim.later(dead_at, _node_shown) <= _now AND dead_at IS NOT NULL
    LIMIT _rows_max FOR UPDATE SKIP LOCKED);
  DELETE FROM seriatim.extension WHERE lane IN (
    SELECT lane FROM seriatim.extension WHERE until < _now LIMIT _rows_max FOR UPDATE SKIP LOCKED);
  DELETE FROM seriatim.share WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM seriatim.share WHERE grp >= 0 AND running = 0 AND paced <= _now * 1000
    LIMIT _rows_max FOR UPDATE SKIP LOCKED));
  DELETE FROM seriatim.batch WHERE token IN (
    SELECT b.token FROM seriatim.batch b
    WHERE NOT EXISTS (SELECT FROM unnest(b.lanes) u (number)
      CROSS JOIN LATERAL (SELECT FROM seriatim.lane l
        WHERE l.number = u.number AND (l.batch = b.token OR b.light AND l.token = 0) OFFSET 0) l)
    LIMIT _rows_max FOR UPDATE OF b SKIP LOCKED);
END $$;

CREATE FUNCTION seriatim.sweep(_now bigint, _rows_max int, _node_shown bigint, _batch_kept bigint,
  OUT o_expired bigint[], OUT o_expired_queue int[], OUT o_expired_created_at bigint[],
  OUT o_dead bigint[], OUT o_dead_queue int[], OUT o_dead_created_at bigint[],
  OUT o_completed bigint, OUT o_more boolean) LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _expired_more boolean;
  _done_more boolean;
  _dead_more boolean;
  _fold_more boolean;
  _names_more boolean;
  _batches bigint;
BEGIN
  SELECT * INTO o_expired, o_expired_queue, o_expired_created_at, _expired_more
  FROM seriatim.sweep_expired(_t, _rows_max);
  SELECT * INTO o_completed, _done_more FROM seriatim.sweep_done(_t, _rows_max);
  SELECT * INTO o_dead, o_dead_queue, o_dead_created_at, _dead_more
  FROM seriatim.sweep_dead(_t, _rows_max);
  _names_more := seriatim.forget_names(_t, _rows_max);
  PERFORM seriatim.sweep_rest(_t, _rows_max, _node_shown);
  DELETE FROM seriatim.job_batch WHERE id IN (
    SELECT id FROM seriatim.job_batch WHERE ended_at <= _t - _batch_kept LIMIT _rows_max FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS _batches = ROW_COUNT;
  _fold_more := seriatim.fold(10000);
  o_more := _expired_more OR _done_more OR _dead_more OR _fold_more OR _names_more OR _batches = _rows_max;
END $$;
