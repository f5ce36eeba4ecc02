-- Claims of queues with groups or limits. The rule is that of `stores/sharing.rs`.
--
-- `queue.shares` says what each gets: `limit` of the whole queue, `each` group and the `named` ones, by number. A limit has
-- `running` turns at most, and with a rate the `interval` between two of them and the `room` of its burst, in ns. `round`: groups
-- take turns, now or when it last had some; `visits`: most groups that a claim visits; `rates` differs if the rates do.
-- `beside`: most lanes of a claim that may go beside others, of which at most `doors` do.

-- The claims of such a queue come one after another: each sees what the ones before it took. An advisory lock, as nobody else
-- writes what it guards.
CREATE FUNCTION seriatim.share_claims(_queue int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('shares seriatim.'), _queue);
END $$;

-- Whether a claim of so many lanes is so far below the limit that others may go on beside it. Then it has a door until it ends,
-- and nothing of it has to be written in `share`. The rule, and why no limit is exceeded: `Beside` in `stores/sharing.rs`. Near the
-- limit it gives the door back.
CREATE FUNCTION seriatim.goes_beside(_q seriatim.queue, _lanes_max int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  _most bigint := (_q.shares->>'beside')::bigint;
  _doors bigint := (_q.shares->>'doors')::bigint;
BEGIN
  IF _q.shares ? 'round' OR NOT coalesce(_lanes_max <= _most, false) THEN
    RETURN false;
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtext('shares seriatim.'), _q.number);
  PERFORM seriatim.open_door(_q.number, _doors::int);
  IF seriatim.running_turns(_q.number) + (_doors - 1) * _most + _lanes_max > (_q.shares->'limit'->>'running')::bigint THEN
    RAISE lock_not_available;
  END IF;
  RETURN true;
EXCEPTION WHEN lock_not_available THEN
  RETURN false;
END $$;

-- Takes one of the doors, if need be after another claim.
CREATE FUNCTION seriatim.open_door(_queue int, _doors int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _first int := pg_backend_pid() % _doors;
BEGIN
  FOR _i IN 0 .. _doors - 1 LOOP
    IF pg_try_advisory_xact_lock(hashtext(format('door %s seriatim.', (_first + _i) % _doors)), _queue) THEN
      RETURN;
    END IF;
  END LOOP;
  PERFORM pg_advisory_xact_lock(hashtext(format('door %s seriatim.', _first)), _queue);
END $$;

-- The claimed lanes of a queue.
CREATE FUNCTION seriatim.running_turns(_queue int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _running bigint;
  _rows bigint;
BEGIN
  SELECT coalesce(sum(claimed), 0), count(*) INTO _running, _rows FROM seriatim.tally WHERE queue = _queue;
  IF _rows > 1000 THEN
    -- The next claim reads less.
    PERFORM seriatim.fold(10000);
  END IF;
  RETURN _running;
END $$;

-- How many turns may start now. If none: when the rate lets one start, or NULL while as many run as may.
CREATE FUNCTION seriatim.free_turns(_limit jsonb, _running bigint, _paced bigint, _now bigint,
  OUT o_free bigint, OUT o_until bigint) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  _interval bigint := (_limit->>'interval')::bigint;
  _room bigint;
BEGIN
  o_free := CASE WHEN _limit ? 'running' THEN greatest((_limit->>'running')::bigint - _running, 0) ELSE 4294967295 END;
  IF o_free > 0 AND _interval IS NOT NULL THEN
    _room := (_limit->>'room')::bigint - greatest(_paced - _now * 1000, 0);
    o_free := least(o_free, greatest(_room / _interval, 0));
    IF o_free = 0 THEN
      o_until := (_now * 1000 + _interval - _room + 999) / 1000;
    END IF;
  END IF;
END $$;

-- The pace of a rate after so many turns have started.
CREATE FUNCTION seriatim.paced_after(_limit jsonb, _paced bigint, _turns bigint, _now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN _turns > 0 AND _limit ? 'interval'
    THEN greatest(_paced, _now * 1000) + (_limit->>'interval')::bigint * _turns ELSE _paced END
$$;

-- The first group from this one on that has ready lanes.
CREATE FUNCTION seriatim.group_from(_queue int, _from bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT seriatim.group_of_class(class) FROM seriatim.ready
    WHERE queue = _queue AND class >= seriatim.first_class(_from) ORDER BY class LIMIT 1);
END $$;

-- The same in the round: behind the last group comes the first one.
CREATE FUNCTION seriatim.next_group(_queue int, _from bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce(seriatim.group_from(_queue, _from), CASE WHEN _from > 0 THEN seriatim.group_from(_queue, 0) END);
END $$;

-- Whether one of these routes, which are all of a group, has a ready lane.
CREATE FUNCTION seriatim.any_ready(_queue int, _routes bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (r * 2), (r * 2 + 1)) c (class)
    CROSS JOIN LATERAL (SELECT FROM seriatim.ready l WHERE l.queue = _queue AND l.class = c.class LIMIT 1) x);
END $$;

-- Whether the caller may take a ready lane of a group behind this place.
CREATE FUNCTION seriatim.any_behind(_queue int, _group bigint, _routes bigint[], _priority smallint, _at bigint,
  _number bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (0), (1)) c (crashed)
    CROSS JOIN LATERAL (SELECT FROM seriatim.ready l
      WHERE l.queue = _queue AND l.class = seriatim.route_in(_group, r) * 2 + c.crashed
        AND (l.priority, l.at, l.number) > (_priority, _at, _number)
      ORDER BY priority, at, number LIMIT 1) x);
END $$;

-- Whether the caller may take any ready lane of a queue, whatever the limits.
CREATE FUNCTION seriatim.any_left(_queue int, _routes bigint[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  _class bigint := -1;
BEGIN
  LOOP
    SELECT class INTO _class FROM seriatim.ready WHERE queue = _queue AND class > _class ORDER BY class LIMIT 1;
    IF NOT FOUND THEN
      RETURN false;
    ELSIF seriatim.bound_of(_class / 2) = ANY (_routes) THEN
      RETURN true;
    END IF;
  END LOOP;
END $$;

-- Locks the first lanes of a group and takes them out of `ready`. o_light: see lock_ready(). o_crashed: how many of them have
-- crashes. o_bytes: what they take of _room. o_cut: there was no room for more. o_priority, o_at, o_number: the place of the last one.
CREATE FUNCTION seriatim.take_lanes(_q seriatim.queue, _routes bigint[], _lanes_max int, _crashed_max int, _own boolean,
  _room bigint, _jobs_max int, _bytes_max bigint, _job_bytes int, _now bigint,
  OUT o_lanes bigint[], OUT o_light boolean, OUT o_crashed int, OUT o_bytes bigint, OUT o_cut boolean,
  OUT o_priority smallint, OUT o_at bigint, OUT o_number bigint) LANGUAGE plpgsql AS $$
DECLARE
  _spots tid[];
  _locked int;
  _found int;
BEGIN
  IF _q.mode = 0 THEN
    SELECT l.o_lanes, l.o_spots, l.o_light, l.o_priority, l.o_at, l.o_number
    INTO o_lanes, _spots, o_light, o_priority, o_at, o_number FROM seriatim.lock_light(_q.number, _routes, _lanes_max, _crashed_max, _own) l;
  ELSE
    SELECT l.o_lanes, l.o_spots, l.o_light, l.o_priority, l.o_at, l.o_number
    INTO o_lanes, _spots, o_light, o_priority, o_at, o_number FROM seriatim.lock_ready(_q.number, _routes, _lanes_max, _crashed_max, _own) l;
  END IF;
  _locked := coalesce(cardinality(o_lanes), 0);
  IF _room IS NOT NULL AND _locked > 0 THEN
    SELECT f.o_lanes, f.o_bytes INTO o_lanes, o_bytes
    FROM seriatim.fitting(_q, o_lanes, _now, _jobs_max, _bytes_max, _room, _job_bytes) f;
  END IF;
  o_lanes := coalesce(o_lanes, '{}');
  o_light := coalesce(o_light, false);
  o_cut := cardinality(o_lanes) < _locked;
  o_bytes := coalesce(o_bytes, 0);
  o_crashed := 0;
  IF o_lanes = '{}' THEN
    RETURN;
  END IF;
  WITH gone AS (
    DELETE FROM seriatim.ready WHERE ctid = ANY (_spots[:cardinality(o_lanes)])
      AND CASE WHEN number IN (SELECT unnest(o_lanes)) THEN true END
    RETURNING class)
  SELECT count(*), count(*) FILTER (WHERE class % 2 = 1) INTO _found, o_crashed FROM gone;
  IF _found < cardinality(o_lanes) THEN
    -- As in take_ready().
    o_crashed := (SELECT count(*) FROM seriatim.lane WHERE number = ANY (o_lanes) AND class % 2 = 1);
    PERFORM seriatim.take_ready(o_lanes, '{}');
  END IF;
END $$;

-- Adds what a group uses now.
CREATE FUNCTION seriatim.use_share(_queue int, _group bigint, _running bigint, _paced bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO seriatim.share AS s (queue, grp, running, paced) VALUES (_queue, _group, _running, _paced)
  ON CONFLICT (queue, grp) DO UPDATE SET running = s.running + excluded.running, paced = excluded.paced;
END $$;

-- Takes lanes of one group within its limit: see take_lanes(). o_until: when its rate lets a turn start. o_leaves: lanes were
-- left because of their crashes, or because others have locked them.
CREATE FUNCTION seriatim.give(_q seriatim.queue, _group bigint, _share jsonb, _routes bigint[], _most bigint, _crashed_max int,
  _own boolean, _room bigint, _jobs_max int, _bytes_max bigint, _job_bytes int, _now bigint,
  OUT o_lanes bigint[], OUT o_light boolean, OUT o_crashed int, OUT o_bytes bigint, OUT o_cut boolean,
  OUT o_until bigint, OUT o_leaves boolean, OUT o_priority smallint, OUT o_at bigint, OUT o_number bigint) LANGUAGE plpgsql AS $$
DECLARE
  _of bigint[] := ARRAY(SELECT seriatim.route_in(_group, r) FROM unnest(_routes) r);
  _counted boolean := _share ? 'running';
  _limited boolean := _counted OR _share ? 'interval';
  _running bigint;
  _paced bigint;
BEGIN
  o_lanes := '{}';
  o_leaves := false;
  IF _limited THEN
    SELECT coalesce(max(running), 0), coalesce(max(paced), 0) INTO _running, _paced
    FROM seriatim.share WHERE queue = _q.number AND grp = _group;
    SELECT least(_most, f.o_free), f.o_until INTO _most, o_until FROM seriatim.free_turns(_share, _running, _paced, _now) f;
    IF _most = 0 THEN
      o_until := CASE WHEN o_until IS NOT NULL AND seriatim.any_ready(_q.number, _of) THEN o_until END;
      RETURN;
    END IF;
  END IF;
  SELECT t.o_lanes, t.o_light, t.o_crashed, t.o_bytes, t.o_cut, t.o_priority, t.o_at, t.o_number
  INTO o_lanes, o_light, o_crashed, o_bytes, o_cut, o_priority, o_at, o_number
  FROM seriatim.take_lanes(_q, _of, _most::int, _crashed_max, _own OR _counted, _room, _jobs_max, _bytes_max, _job_bytes, _now) t;
  o_leaves := cardinality(o_lanes) < _most AND NOT o_cut AND seriatim.any_ready(_q.number, _of);
  IF _limited AND o_lanes <> '{}' THEN
    PERFORM seriatim.use_share(_q.number, _group, CASE WHEN _counted THEN cardinality(o_lanes) ELSE 0 END,
      seriatim.paced_after(_share, _paced, cardinality(o_lanes), _now));
  END IF;
END $$;

-- The groups with ready lanes in the order of their turns, from this one on. NULL if they are many.
CREATE FUNCTION seriatim.ring(_queue int, _from bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  _all bigint[] := '{}';
  _group bigint := seriatim.next_group(_queue, _from);
BEGIN
  WHILE _group IS NOT NULL AND _group IS DISTINCT FROM _all[1] LOOP
    IF cardinality(_all) = 100 THEN
      RETURN NULL;
    END IF;
    _all := _all || _group;
    _group := seriatim.next_group(_queue, _group + 1);
  END LOOP;
  RETURN _all;
END $$;

-- Whether any of these groups has ready lanes with crashes.
CREATE FUNCTION seriatim.any_crashed(_queue int, _groups bigint[], _routes bigint[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT FROM unnest(_groups) g CROSS JOIN unnest(_routes) r
    CROSS JOIN LATERAL (SELECT FROM seriatim.ready l
      WHERE l.queue = _queue AND l.class = seriatim.route_in(g, r) * 2 + 1 LIMIT 1) x);
END $$;

-- How many lanes each of these groups can give, at most so many each. NULL: its limit lets it give none now.
CREATE FUNCTION seriatim.can_give(_queue int, _groups bigint[], _shares jsonb[], _routes bigint[], _most bigint, _now bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  _all bigint[];
  _weights bigint;
BEGIN
  _all := ARRAY(SELECT f.o_free FROM unnest(_groups, _shares) WITH ORDINALITY g (grp, share, place)
    LEFT JOIN LATERAL (SELECT * FROM seriatim.share s
      WHERE (g.share ? 'running' OR g.share ? 'interval') AND s.queue = _queue AND s.grp = g.grp OFFSET 0) s ON true
    CROSS JOIN LATERAL seriatim.free_turns(g.share, coalesce(s.running, 0), coalesce(s.paced, 0), _now) f
    ORDER BY g.place);
  _weights := (SELECT sum((s->>'weight')::bigint) FROM unnest(_all, _shares) g (free, s) WHERE free > 0);
  RETURN ARRAY(
    SELECT CASE WHEN g.free > 0 THEN (
      SELECT least(count(*), g.free) FROM (
        SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (0), (1)) c (crashed)
        CROSS JOIN LATERAL (SELECT FROM seriatim.ready l
          WHERE l.queue = _queue AND l.class = seriatim.route_in(g.grp, r) * 2 + c.crashed
          LIMIT _most / _weights * (g.share->>'weight')::bigint) x
        LIMIT _most / _weights * (g.share->>'weight')::bigint) y) END
    FROM unnest(_groups, _shares, _all) WITH ORDINALITY g (grp, share, free, place) ORDER BY g.place);
END $$;

-- Whole rounds at once, with at most so many lanes: as many as in which each group gives all of its turn, so that each is asked once
-- for all of its turns. Takes nothing if there is less than one, or if lanes with crashes matter. o_next: where the round is then.
-- o_nothing_since: the first group behind the last one that gave. o_soonest: when a rate lets a turn start.
CREATE FUNCTION seriatim.whole_rounds(_q seriatim.queue, _from bigint, _routes bigint[], _most bigint, _crashed_max int, _own boolean,
  _jobs_max int, _bytes_max bigint, _job_bytes int, _now bigint,
  OUT o_lanes bigint[], OUT o_light bigint[], OUT o_next bigint, OUT o_nothing_since bigint, OUT o_leaves boolean,
  OUT o_soonest bigint) LANGUAGE plpgsql AS $$
DECLARE
  _ring bigint[] := seriatim.ring(_q.number, _from);
  _shares jsonb[] := ARRAY(SELECT coalesce(_q.shares->'named'->g::text, _q.shares->'each') FROM unnest(_ring) g);
  _weights bigint[] := ARRAY(SELECT (s->>'weight')::bigint FROM unnest(_shares) s);
  _can bigint[];
  _rounds bigint := 0;
  _given record;
  _all bigint[] := '{}';
  _ends int[] := '{0}';
BEGIN
  o_lanes := '{}';
  o_light := '{}';
  o_leaves := false;
  IF _ring <> '{}' AND (_crashed_max >= _most OR NOT seriatim.any_crashed(_q.number, _ring, _routes)) THEN
    _can := seriatim.can_give(_q.number, _ring, _shares, _routes, _most, _now);
    _rounds := coalesce((SELECT least(min(can / weight), _most / sum(weight)::bigint)
      FROM unnest(_can, _weights) w (can, weight) WHERE can > 0), 0);
  END IF;
  IF _rounds = 0 THEN
    RETURN;
  END IF;
  FOR _i IN 1 .. cardinality(_ring) LOOP
    IF _can[_i] > 0 THEN
      o_next := _ring[_i] + 1;
      SELECT * INTO _given FROM seriatim.give(_q, _ring[_i], _shares[_i], _routes, _rounds * _weights[_i], _crashed_max, _own, NULL,
        _jobs_max, _bytes_max, _job_bytes, _now);
      _all := _all || _given.o_lanes;
      o_leaves := o_leaves OR _given.o_leaves;
      o_nothing_since := NULL;
      IF _given.o_light THEN
        o_light := o_light || _given.o_lanes;
      END IF;
    ELSIF _rounds > 1 OR cardinality(_all) < _most THEN
      o_nothing_since := coalesce(o_nothing_since, _ring[_i]);
      IF _can[_i] IS NULL THEN
        SELECT least(o_soonest, g.o_until) INTO o_soonest FROM seriatim.give(_q, _ring[_i], _shares[_i], _routes, 0, _crashed_max,
          _own, NULL, _jobs_max, _bytes_max, _job_bytes, _now) g;
      END IF;
    END IF;
    _ends := _ends || cardinality(_all);
  END LOOP;
  -- A claim that is full comes to no further group: those behind the last one that gave are first in the next claim.
  IF cardinality(_all) < _most THEN
    o_next := _ring[cardinality(_ring)] + 1;
  END IF;
  -- Round by round, in one step: each append to an array copies it.
  o_lanes := ARRAY(
    SELECT l.lane FROM generate_subscripts(_ring, 1) g
    CROSS JOIN LATERAL unnest(_all[_ends[g] + 1 : _ends[g + 1]]) WITH ORDINALITY l (lane, nth)
    ORDER BY (l.nth - 1) / _weights[g], g, l.nth);
END $$;

-- Chooses the lanes of a claim, group by group, and takes them out of `ready`. o_light: the claim may be light; o_mixed: if it
-- may be so of some lanes only, those. o_more: more may be claimed now. o_soonest: when a rate lets a turn start. o_now: when they
-- were locked; a lane may have been freed after _now, so that is when its turn starts. _clock: the time is the server's, not the caller's.
CREATE FUNCTION seriatim.share_out(_q seriatim.queue, _routes bigint[], _lanes_max int, _crashed_max int, _own boolean,
  _room bigint, _jobs_max int, _bytes_max bigint, _job_bytes int, _now bigint, _clock boolean,
  OUT o_lanes bigint[], OUT o_light boolean, OUT o_mixed bigint[], OUT o_more boolean, OUT o_soonest bigint, OUT o_cut boolean,
  OUT o_now bigint)
LANGUAGE plpgsql AS $$
DECLARE
  _limit jsonb := _q.shares->'limit';
  _left int := _lanes_max;
  _whole seriatim.share := seriatim.whole_share(_q); -- of the queue
  _was seriatim.share := _whole;
  -- Without groups, all lanes are of group 0.
  _group bigint := 0;
  _share jsonb;
  _weight bigint;
  _most bigint;
  _free bigint;
  _until bigint;
  _given record;
  _turns int;
  -- The place of the last lane.
  _priority smallint;
  _at bigint;
  _number bigint;
  _by_rounds boolean := _room IS NULL AND _q.shares ? 'round';
  -- The first group of those that gave nothing since one did.
  _nothing_since bigint;
  _soonest bigint;
  _full boolean := true;
  _looks int := (_q.shares->>'visits')::int;
BEGIN
  o_lanes := '{}';
  o_mixed := '{}';
  o_cut := false;
  o_more := false;
  FOR _visit IN 1 .. _looks LOOP
    EXIT WHEN _left = 0 OR o_cut;
    SELECT f.o_free, f.o_until INTO _free, _until FROM seriatim.free_turns(_limit, _whole.running, _whole.paced, _now) f;
    IF _free = 0 THEN
      _full := false;
      _soonest := least(_soonest, _until);
      EXIT;
    END IF;
    IF _by_rounds AND _whole.given = 0 AND least(_left, _free) > 1 THEN
      SELECT * INTO _given FROM seriatim.whole_rounds(_q, _whole.next, _routes, least(_left, _free), _crashed_max, _own,
        _jobs_max, _bytes_max, _job_bytes, _now);
      _by_rounds := _given.o_lanes <> '{}';
      IF _by_rounds THEN
        _turns := cardinality(_given.o_lanes);
        o_lanes := o_lanes || _given.o_lanes;
        o_mixed := o_mixed || _given.o_light;
        o_more := o_more OR _given.o_leaves;
        _soonest := least(_soonest, _given.o_soonest);
        _left := _left - _turns;
        _whole.next := _given.o_next;
        _whole.running := _whole.running + _turns;
        _whole.paced := seriatim.paced_after(_limit, _whole.paced, _turns, _now);
        _nothing_since := _given.o_nothing_since;
        CONTINUE;
      END IF;
    END IF;
    IF _q.shares ? 'round' THEN
      _group := seriatim.next_group(_q.number, _whole.next);
    END IF;
    IF _group IS NULL OR _group = _nothing_since THEN
      _full := false;
      EXIT;
    END IF;
    IF _group <> _whole.next THEN
      _whole.next := _group;
      _whole.given := 0;
    END IF;
    _share := coalesce(_q.shares->'named'->_group::text, _q.shares->'each');
    -- A process of an earlier build writes more where lanes have no groups.
    _weight := least((_share->>'weight')::bigint, 1000);
    IF _whole.given >= _weight THEN
      -- It was reduced.
      _whole.next := _group + 1;
      _whole.given := 0;
      CONTINUE;
    END IF;
    _most := least(_left, _free, _weight - _whole.given);
    SELECT * INTO _given FROM seriatim.give(_q, _group, _share, _routes, _most, _crashed_max, _own, _room, _jobs_max, _bytes_max,
      _job_bytes, _now);
    _turns := cardinality(_given.o_lanes);
    _soonest := least(_soonest, _given.o_until);
    o_more := o_more OR _given.o_leaves;
    o_cut := coalesce(_given.o_cut, false);
    IF _turns > 0 THEN
      _priority := _given.o_priority;
      _at := _given.o_at;
      _number := _given.o_number;
      o_lanes := o_lanes || _given.o_lanes;
      IF _given.o_light THEN
        o_mixed := o_mixed || _given.o_lanes;
      END IF;
      _crashed_max := _crashed_max - _given.o_crashed;
      _room := _room - _given.o_bytes;
      _left := _left - _turns;
      _whole.running := _whole.running + _turns;
      _whole.paced := seriatim.paced_after(_limit, _whole.paced, _turns, _now);
      _whole.given := _whole.given + _turns;
      _nothing_since := NULL;
    ELSE
      _nothing_since := coalesce(_nothing_since, _group);
    END IF;
    IF _turns < _most OR _whole.given >= _weight THEN
      _whole.next := _group + 1;
      _whole.given := 0;
    END IF;
    -- So many groups that may start nothing: the others are looked at in a second, or when one of these may.
    IF _visit = _looks AND o_lanes = '{}' THEN
      _full := false;
      _soonest := least(_soonest, _now + 1000000);
    END IF;
  END LOOP;
  o_now := CASE WHEN _clock THEN seriatim.clock() ELSE _now END;
  IF o_now > _now AND o_lanes <> '{}' THEN
    _whole.paced := greatest(_whole.paced, seriatim.paced_after(_limit, 0, cardinality(o_lanes), o_now));
    PERFORM seriatim.pace_groups(_q, o_lanes, o_now);
  END IF;
  PERFORM seriatim.keep_round(_q, _was, _whole);
  -- Mostly there are more lanes like the last one. In front of it, the index has all that this call took.
  o_more := o_more OR _full AND (seriatim.any_behind(_q.number, _group, _routes, _priority, _at, _number)
    OR seriatim.any_left(_q.number, _routes));
  o_soonest := CASE WHEN NOT _full THEN _soonest END;
  o_light := o_lanes <> '{}' AND cardinality(o_mixed) = cardinality(o_lanes);
  o_mixed := CASE WHEN NOT o_light THEN nullif(o_mixed, '{}') END;
  o_lanes := nullif(o_lanes, '{}');
END $$;

-- What a whole queue uses of its limit, and where the round is. What its groups use has no turns that have ended, then.
CREATE FUNCTION seriatim.whole_share(_q seriatim.queue) RETURNS seriatim.share LANGUAGE plpgsql AS $$
DECLARE
  _whole seriatim.share;
BEGIN
  IF _q.counted IS NOT NULL THEN
    PERFORM seriatim.take_back(_q.number);
  END IF;
  SELECT _q.number, -1, coalesce(max(running), 0), coalesce(max(paced), 0), coalesce(max(next), 0), coalesce(max(given), 0)
  INTO _whole FROM seriatim.share WHERE queue = _q.number AND grp = -1;
  IF _q.shares->'limit' ? 'running' THEN
    _whole.running := seriatim.running_turns(_q.number);
  END IF;
  RETURN _whole;
END $$;

-- The turns of these lanes start now, and not when their groups counted them.
CREATE FUNCTION seriatim.pace_groups(_q seriatim.queue, _lanes bigint[], _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (_q.shares->'each' ? 'interval'
    OR EXISTS (SELECT FROM jsonb_each(coalesce(_q.shares->'named', '{}')) n WHERE n.value ? 'interval')) THEN
    RETURN;
  END IF;
  UPDATE seriatim.share s SET paced = greatest(s.paced, seriatim.paced_after(g.share, 0, g.turns, _now))
  FROM (
    SELECT c.grp, count(*) AS turns, coalesce(_q.shares->'named'->c.grp::text, _q.shares->'each') AS share
    FROM (SELECT seriatim.group_of_class(class) AS grp FROM seriatim.lane WHERE number = ANY (_lanes)) c GROUP BY c.grp) g
  WHERE s.queue = _q.number AND s.grp = g.grp AND g.share ? 'interval';
END $$;

-- Writes the row of the whole queue, if it changed. Without groups there is no round.
CREATE FUNCTION seriatim.keep_round(_q seriatim.queue, _was seriatim.share, _now seriatim.share) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF _was.paced <> _now.paced OR _q.shares ? 'round' AND (_was.next, _was.given) <> (_now.next, _now.given) THEN
    INSERT INTO seriatim.share (queue, grp, paced, next, given) VALUES (_q.number, -1, _now.paced, _now.next, _now.given)
    ON CONFLICT (queue, grp) DO UPDATE SET paced = excluded.paced, next = excluded.next, given = excluded.given;
  END IF;
END $$;

-- Takes ended turns off what groups use.
CREATE FUNCTION seriatim.take_back(_queue int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH gone AS (
    DELETE FROM seriatim.freed WHERE ctid = ANY (ARRAY(SELECT ctid FROM seriatim.freed WHERE queue = _queue))
    RETURNING grp, turns
  )
  UPDATE seriatim.share s SET running = greatest(s.running - g.turns, 0)
  FROM (SELECT grp, sum(turns) AS turns FROM gone GROUP BY grp) g
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.share n WHERE n.queue = _queue AND n.grp = g.grp OFFSET 0) n
  WHERE s.ctid = n.row;
END $$;

-- Counts the running turns of each group again, after other groups are counted. The caller has locked the queue and its claimed
-- lanes: there are no claims and settles, and what they wrote into `freed` is visible.
CREATE FUNCTION seriatim.count_groups(_old seriatim.queue) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _counted bigint[] := (SELECT counted FROM seriatim.queue WHERE number = _old.number);
  _mode smallint := (SELECT mode FROM seriatim.queue WHERE number = _old.number);
  _lanes bigint[];
BEGIN
  _lanes := ARRAY(SELECT number FROM seriatim.claimed_lane WHERE queue = _old.number);
  PERFORM seriatim.unfold(_lanes);
  UPDATE seriatim.lane l SET grp = seriatim.counted_group(_counted, seriatim.first_class(seriatim.group_of(r.route)))
  FROM (SELECT n.ctid AS row, n.* FROM seriatim.lane n WHERE n.number = ANY (_lanes) AND n.claimed OFFSET 0) n
  CROSS JOIN LATERAL (SELECT CASE WHEN n.payload IS NOT NULL OR _mode <> 3 THEN n.route
    ELSE (SELECT max(i.route) FROM seriatim.owned(n.number, _mode, n.taken, n.joined) i) END AS route OFFSET 0) r
  WHERE l.ctid = n.row;
  DELETE FROM seriatim.freed WHERE queue = _old.number;
  UPDATE seriatim.share SET running = 0 WHERE queue = _old.number AND running <> 0;
  INSERT INTO seriatim.share AS s (queue, grp, running)
    SELECT _old.number, l.grp, count(*) FROM seriatim.lane l WHERE l.number = ANY (_lanes) AND l.grp IS NOT NULL GROUP BY l.grp
  ON CONFLICT (queue, grp) DO UPDATE SET running = excluded.running;
END $$;

-- When a claim of such a queue may next find something: now, or when a rate lets a turn start, or a lane is due.
CREATE FUNCTION seriatim.next_shared(_queue int, _now bigint, _more boolean, _soonest bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN CASE WHEN _more THEN _now
    ELSE least(_soonest, seriatim.next_wake(_queue)) END;
END $$;

-- Claims lanes of which some (_light) get a light claim, and the others another one. Returns the turns in the order of the lanes.
CREATE FUNCTION seriatim.hold_mixed(_q seriatim.queue, _lanes bigint[], _light bigint[], _node text, _own boolean, _ttl bigint,
  _now bigint, _jobs_max int, _bytes_max bigint) RETURNS SETOF seriatim.taken LANGUAGE plpgsql AS $$
DECLARE
  _heavy bigint[] := seriatim.without(_lanes, _light);
  _token bigint := nextval('seriatim.token');
  _other bigint := nextval('seriatim.token');
BEGIN
  PERFORM seriatim.list_batch(_token, _node, _own, _ttl, _now, _q.number, _light);
  PERFORM seriatim.list_batch(_other, _node, _own, _ttl, _now, NULL, _heavy);
  INSERT INTO seriatim.tally (queue, claimed) VALUES (_q.number, cardinality(_lanes));
  RETURN QUERY SELECT t.* FROM (
      SELECT l.number AS lane, l.queue, _q.name, l.key, _token, l.retry_count, l.crashes, l.error, _now, l.number AS seq,
        l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, 1, l.options
      FROM seriatim.lane l WHERE l.number = ANY (_light)
      UNION ALL
      SELECT h.* FROM seriatim.hold(_q, _heavy, _other, _node, _own, _ttl, _now, _jobs_max, _bytes_max) h) t
    ORDER BY array_position(_lanes, t.lane), t.score, t.seq;
END $$;
