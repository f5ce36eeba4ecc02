-- Lanes of queues with a window: when they are due. The rule is that of `model/window.rs`.

-- Whether so many jobs wait in an unclaimed lane that they are due at once. NULL is no limit.
CREATE FUNCTION seriatim.is_full(_lane bigint, _jobs int, _bytes bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF _jobs IS NULL AND _bytes IS NULL THEN
    RETURN false;
  END IF;
  RETURN (SELECT coalesce(count(*) >= _jobs, false) OR coalesce(sum(octet_length(i.payload)) >= _bytes, false)
    FROM seriatim.item i WHERE i.lane = _lane AND NOT i.closed);
END $$;

-- When a lane is due whose turn has ended, with all its jobs. The end of a turn counts as a push.
CREATE FUNCTION seriatim.after_turn(_lane bigint, _due bigint, _next bigint, _q seriatim.queue, _now bigint)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  _new bigint := least(_next, seriatim.later(_now, _q.quiet));
BEGIN
  IF _next IS NULL THEN
    RETURN _due;
  ELSIF _q.quiet IS NOT NULL AND _new > _now AND seriatim.is_full(_lane, _q.max_jobs, _q.max_bytes) THEN
    RETURN _now;
  END IF;
  RETURN _new;
END $$;

-- When a lane is due, and the latest, after jobs with these times were pushed to it. A new lane is due at -1.
CREATE FUNCTION seriatim.after_pushes(_lane bigint, _claimed boolean, _due bigint, _next bigint, _q seriatim.queue,
  _times bigint[], _now bigint, OUT o_due bigint, OUT o_next bigint) LANGUAGE plpgsql STABLE AS $$
DECLARE
  _at bigint;
BEGIN
  o_due := _due;
  o_next := _next;
  IF _claimed THEN
    o_next := coalesce(_next, seriatim.later(_now, _q.max_wait));
    RETURN;
  END IF;
  FOREACH _at IN ARRAY _times LOOP
    IF o_due < 0 THEN
      o_due := _at;
      o_next := greatest(_at, seriatim.later(_now, _q.max_wait));
    ELSIF o_due > _now AND least(_at, o_next) > o_due + _q.quiet / 8 AND o_next IS NOT NULL THEN
      o_due := least(_at, o_next);
    END IF;
  END LOOP;
  IF o_due > _now AND o_next IS NOT NULL AND seriatim.is_full(_lane, _q.max_jobs, _q.max_bytes) THEN
    o_due := _now;
    o_next := NULL;
  END IF;
END $$;

-- Updates due times for pushes, after the jobs were added and before arrive(), which then changes no due time. Most pushes
-- change nothing. Places the lanes that are full.
CREATE FUNCTION seriatim.collect(_lanes bigint[], _run_at bigint[], _status smallint[], _now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  _full bigint[];
BEGIN
  WITH moved AS (
    UPDATE seriatim.lane l
    SET due = m.o_due, next_due = m.o_next, at = CASE WHEN l.wake IS NULL THEN l.at ELSE m.o_due END,
      wake = CASE WHEN l.wake IS NULL THEN NULL ELSE m.o_due END
    FROM (
      SELECT w.lane, array_agg(w.run_at ORDER BY w.place) AS times
      FROM unnest(_lanes, _run_at, _status) WITH ORDINALITY w (lane, run_at, status, place)
      WHERE w.status < 2 AND w.lane IS NOT NULL
      GROUP BY w.lane
    ) g
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.* FROM seriatim.lane n WHERE n.number = g.lane OFFSET 0) n
    JOIN seriatim.queue q ON q.number = n.queue AND q.quiet IS NOT NULL
    CROSS JOIN LATERAL seriatim.after_pushes(n.number, n.claimed, n.due, n.next_due, q, g.times, _now) m
    WHERE l.ctid = n.row AND (n.due, n.next_due) IS DISTINCT FROM (m.o_due, m.o_next)
    RETURNING l.number, l.claimed, l.due
  )
  SELECT array_agg(number) INTO _full FROM moved WHERE NOT claimed AND due <= _now;
  IF _full IS NOT NULL THEN
    PERFORM seriatim.place(_full, _now);
  END IF;
END $$;
