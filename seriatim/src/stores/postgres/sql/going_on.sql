-- Lanes that go on: a settle claims their next turns.

-- The lanes of one queue that may go on, and the claim. `best`: the best priority of the lanes that were ready before.
CREATE TYPE seriatim.going_on AS (
  q seriatim.queue, routes bigint[], best smallint, node text, own boolean, ttl bigint, lanes bigint[],
  lanes_max int, jobs_max int, bytes_max bigint
);

-- Reads them before anything is locked or written. Nothing fails because of them: what a claim would refuse does not
-- go on.
CREATE FUNCTION seriatim.lanes_going_on(_claims jsonb, _lane bigint[]) RETURNS seriatim.going_on[]
LANGUAGE plpgsql AS $$
DECLARE
  _all seriatim.going_on[] := '{}';
  _one seriatim.going_on;
  _q seriatim.queue;
  _c jsonb;
BEGIN
  -- In the order in which pushes lock queues.
  FOR _c IN SELECT c FROM jsonb_array_elements(_claims) WITH ORDINALITY w (c, place) ORDER BY (c->>'number')::int, place LOOP
    PERFORM seriatim.share_queue((_c->>'number')::int);
    -- A statement after the lock: it may have been changed or deleted before.
    SELECT * INTO _q FROM seriatim.queue WHERE number = (_c->>'number')::int AND name = _c->>'queue';
    CONTINUE WHEN NOT FOUND OR _q.paused OR _q.shares IS NOT NULL
      OR (_c->>'declared')::boolean AND NOT _q.declared OR (_c->>'ttl')::bigint > _q.lease_max
      OR seriatim.refused_as(_c->>'node', (_c->>'ticket')::bigint) IS NOT NULL;
    _one.q := seriatim.in_series(_q, (_c->>'series')::int, NULL);
    _one.routes := seriatim.routes_of(_c->>'node_name', ARRAY(SELECT jsonb_array_elements_text(_c->'groups')));
    _one.best := (SELECT min(x.priority) FROM unnest(_one.routes) r CROSS JOIN LATERAL (
      SELECT priority FROM seriatim.ready WHERE queue = _q.number AND class = r * 2
      ORDER BY priority, at, number LIMIT 1) x);
    _one.node := _c->>'node';
    _one.own := (_c->>'own')::boolean;
    _one.ttl := (_c->>'ttl')::bigint;
    _one.lanes := _lane;
    IF jsonb_array_length(_c->'places') < cardinality(_lane) THEN
      _one.lanes := ARRAY(SELECT _lane[place::int] FROM jsonb_array_elements_text(_c->'places') place);
    END IF;
    _one.lanes_max := (_c->>'lanes_max')::int;
    _one.jobs_max := (_c->>'jobs_max')::int;
    _one.bytes_max := (_c->>'bytes_max')::bigint;
    _all := _all || _one;
  END LOOP;
  IF _all <> '{}' THEN
    PERFORM seriatim.draw_tokens();
  END IF;
  RETURN _all;
END $$;

-- Claims the next turns of those of `_done` that may go on, under these tokens, one for each claim. The lanes are
-- locked, and have no position and no jobs of their last turns. Returns the turns; the rows of `batch` list the lanes.
CREATE FUNCTION seriatim.go_on(_all seriatim.going_on[], _tokens bigint[], _done bigint[], _now bigint)
RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
DECLARE
  _one seriatim.going_on;
  _lanes bigint[];
BEGIN
  FOR _place IN 1 .. cardinality(_all) LOOP
    _one := _all[_place];
    -- Not sooner, as a pause would wait for those that hold the lanes.
    PERFORM seriatim.begin_claim((_one.q).number);
    -- A limit may have come meanwhile, too.
    CONTINUE WHEN (SELECT paused OR shares IS NOT NULL FROM seriatim.queue WHERE number = (_one.q).number);
    _lanes := ARRAY(SELECT number FROM unnest(_one.lanes) number
      WHERE CASE WHEN number IN (SELECT unnest(_done)) THEN true END);
    IF (_one.q).mode = 2 AND (_one.q).take <= 1 THEN
      _lanes := _lanes[:_one.lanes_max];
      RETURN QUERY SELECT t.* FROM seriatim.hold_one(_one.q, _lanes, _tokens[_place], _one.node, _one.own, _one.ttl,
        _now, _one.routes, _one.best) t;
      CONTINUE;
    END IF;
    _lanes := seriatim.ready_again(_one, _lanes, _now);
    CONTINUE WHEN _lanes = '{}';
    PERFORM seriatim.list_batch(_tokens[_place], _one.node, _one.own, _one.ttl, _now, NULL, _lanes);
    INSERT INTO seriatim.tally (queue, claimed) VALUES ((_one.q).number, cardinality(_lanes));
    RETURN QUERY SELECT t.* FROM seriatim.hold(_one.q, _lanes, _tokens[_place], _one.node, _one.own, _one.ttl, _now,
      _one.jobs_max, _one.bytes_max) t;
  END LOOP;
END $$;

-- Those of these lanes that may go on, with the state that a claim finds.
CREATE FUNCTION seriatim.ready_again(_one seriatim.going_on, _lanes bigint[], _now bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
  _lanes := ARRAY(
    SELECT w.number FROM unnest(_lanes) WITH ORDINALITY w (number, place)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
    CROSS JOIN LATERAL seriatim.head(l.number, (_one.q).mode, _now) h
    WHERE l.queue = (_one.q).number AND NOT l.held AND NOT l.paused AND l.payload IS NULL
      AND CASE WHEN (_one.q).mode <> 1 THEN h.run_at WHEN (_one.q).quiet IS NULL THEN coalesce(l.next_due, l.due)
        ELSE seriatim.after_turn(l.number, l.due, l.next_due, _one.q, _now) END <= _now
      AND ((_one.q).mode = 1 OR h.crashes = 0)
      AND coalesce(CASE WHEN (_one.q).mode = 1 THEN h.priority_min ELSE h.priority END <= _one.best, true)
      AND CASE WHEN (_one.q).mode IN (1, 2) THEN l.route ELSE h.route END = ANY (_one.routes)
    ORDER BY w.place LIMIT _one.lanes_max);
  WITH ready AS (UPDATE seriatim.lane l
  SET due = CASE WHEN (_one.q).mode <> 1 THEN h.run_at WHEN (_one.q).quiet IS NULL THEN coalesce(l.next_due, l.due)
      ELSE seriatim.after_turn(l.number, l.due, l.next_due, _one.q, _now) END, next_due = NULL,
    priority = CASE WHEN (_one.q).mode = 1 THEN h.priority_min ELSE h.priority END,
    retry_count = CASE WHEN (_one.q).mode = 1 THEN -1 ELSE h.retry_count END,
    crashes = 0, error = CASE WHEN (_one.q).mode = 1 THEN NULL ELSE h.error END, progress = NULL
  FROM unnest(_lanes) w (number)
  CROSS JOIN LATERAL (SELECT n.ctid AS row, n.retry_count FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) n
  CROSS JOIN LATERAL seriatim.head(w.number, (_one.q).mode, _now) h
  WHERE l.ctid = n.row
  RETURNING l.queue, seriatim.turned(n.retry_count, l.retry_count) AS turned)
  INSERT INTO seriatim.tally (queue, retrying) SELECT queue, sum(turned) FROM ready WHERE turned <> 0 GROUP BY queue;
  RETURN _lanes;
END $$;

-- These lanes without those.
CREATE FUNCTION seriatim.without(_lanes bigint[], _those bigint[]) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF _those = '{}' THEN
    RETURN _lanes;
  END IF;
  RETURN ARRAY(SELECT number FROM unnest(_lanes) number
    WHERE CASE WHEN number IN (SELECT unnest(_those)) THEN false ELSE true END);
END $$;
