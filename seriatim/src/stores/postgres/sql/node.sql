-- Nodes.

-- Extends own leases of locked lanes. As the rescue skips those too, it must not find the leases expired afterwards.
CREATE FUNCTION seriatim.extend_locked(_lane bigint[], _queue int[], _token bigint[], _extend bigint[], _free bigint[],
  _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.extension AS e (lane, token, until)
    SELECT DISTINCT ON (l.number) l.number, l.token,
      greatest(l.until, seriatim.later(_now, seriatim.capped(l.queue, w.extend)))
    FROM unnest(_lane, _queue, _token, _extend) w (lane, queue, token, extend)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.lane OFFSET 0) l
    WHERE w.extend IS NOT NULL AND l.queue = w.queue AND l.token = w.token AND l.claimed
      AND CASE WHEN w.lane IN (SELECT unnest(_free)) THEN false ELSE true END
    ORDER BY l.number
  ON CONFLICT (lane) DO UPDATE SET token = excluded.token,
    until = CASE WHEN e.token = excluded.token THEN greatest(e.until, excluded.until) ELSE excluded.until END;
END $$;

-- Returns one row: o_lost has places in _lane; the notices have one entry per flagged job.
CREATE FUNCTION seriatim.heartbeat(_now bigint, _node text, _info text, _lease bigint, _lane bigint[],
  _queue int[], _token bigint[], _progress text[], _extend bigint[],
  OUT o_alive boolean, OUT o_command smallint, OUT o_lost int[], OUT o_lane bigint[],
  OUT o_queue int[], OUT o_token bigint[], OUT o_seq bigint[], OUT o_created_at bigint[])
LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _free bigint[];
  _named bigint[];
BEGIN
  INSERT INTO seriatim.node AS n (id, info, lease, beat_at, dead_at)
  VALUES (_node, _info, _lease, _t, CASE WHEN _lease = 0 THEN _t END)
  ON CONFLICT (id) DO UPDATE SET
    info = CASE WHEN n.dead_at IS NULL THEN excluded.info ELSE n.info END,
    lease = CASE WHEN n.dead_at IS NULL THEN excluded.lease ELSE n.lease END,
    beat_at = CASE WHEN n.dead_at IS NULL THEN greatest(n.beat_at, _t) ELSE n.beat_at END,
    dead_at = coalesce(n.dead_at, excluded.dead_at)
  RETURNING n.dead_at IS NULL, n.command INTO o_alive, o_command;
  -- Lanes that a user's open transaction has locked are left to the next heartbeat, except for own leases.
  _free := ARRAY(SELECT number FROM seriatim.lane WHERE number = ANY (_lane) FOR UPDATE SKIP LOCKED);
  PERFORM seriatim.unfold(_free);
  IF cardinality(_free) < cardinality(_lane) THEN
    PERFORM seriatim.extend_locked(_lane, _queue, _token, _extend, _free, _t);
  END IF;
  WITH beat AS (
    UPDATE seriatim.lane l
    SET beat_at = _t, progress = coalesce(w.progress, l.progress),
      until = CASE WHEN w.extend IS NULL THEN l.until
        ELSE greatest(l.until, seriatim.later(_t, seriatim.capped(l.queue, w.extend))) END
    FROM (SELECT * FROM unnest(_lane, _queue, _token, _progress, _extend) w (lane, queue, token, progress, extend)
      WHERE CASE WHEN lane IN (SELECT unnest(_free)) THEN true END OFFSET 0) w
    CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = w.lane OFFSET 0) n
    WHERE l.ctid = n.row AND l.queue = w.queue AND l.token = w.token AND l.claimed
    RETURNING l.number)
  SELECT coalesce(array_agg(number), '{}') INTO _named FROM beat;
  SELECT coalesce(array_agg(w.place ORDER BY w.place), '{}') INTO o_lost
  FROM unnest(_lane, _queue, _token) WITH ORDINALITY w (lane, queue, token, place)
  WHERE NOT EXISTS (SELECT FROM seriatim.lane l
    WHERE l.number = w.lane AND l.queue = w.queue AND (l.token = w.token AND l.claimed OR l.token = 0 AND EXISTS (
      SELECT FROM seriatim.batch b WHERE b.token = w.token AND b.light AND w.lane = ANY (b.lanes) OFFSET 0)) OFFSET 0);
  SELECT array_agg(n.lane), array_agg(n.queue), array_agg(n.token), array_agg(n.seq),
    array_agg(n.created_at)
  INTO o_lane, o_queue, o_token, o_seq, o_created_at
  FROM (
    SELECT l.number AS lane, l.queue, l.token, i.seq, i.created_at
    -- Join from the few flagged jobs to their lanes, never the reverse.
    FROM (SELECT * FROM seriatim.item WHERE flagged AND closed OFFSET 0) i
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = i.lane OFFSET 0) l
    WHERE l.claimed AND (l.holder = _node OR l.number = ANY (_named))
    ORDER BY l.number, i.score, i.seq) n;
END $$;

CREATE FUNCTION seriatim.lead(_now bigint, _role text, _node text, _ttl bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  -- LEAD_MAX in `model/limits.rs`: what is further ahead is from before the clock was set back.
  _longest bigint := seriatim.later(_t, greatest(_ttl, 120000000));
BEGIN
  INSERT INTO seriatim.leader AS l (role, node, until) VALUES (_role, _node, seriatim.later(_t, _ttl))
  ON CONFLICT (role) DO UPDATE SET node = excluded.node, until = excluded.until
    WHERE l.node = excluded.node OR l.until <= _t;
  IF FOUND THEN
    RETURN true;
  END IF;
  UPDATE seriatim.leader SET until = _longest WHERE role = _role AND until > _longest;
  RETURN false;
END $$;
