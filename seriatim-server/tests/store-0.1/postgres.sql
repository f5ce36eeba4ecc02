--
-- PostgreSQL database dump
--

\restrict iWxsZ3jrbhudeQotdsKoAeEslxZ2FzLD91XqlaePa1nbI6gwS6tegVcnnsZPLUM

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: seriatim; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA seriatim;


--
-- Name: ending; Type: TYPE; Schema: seriatim; Owner: -
--

CREATE TYPE seriatim.ending AS (
	place integer,
	lane bigint,
	mode smallint,
	merge smallint,
	retain bigint,
	claimed_at bigint,
	rest smallint,
	owner bigint,
	due_kind smallint,
	due_in bigint,
	retry_count integer,
	crashes integer,
	error text,
	counted boolean,
	hold boolean,
	batch bigint
);


--
-- Name: fated; Type: TYPE; Schema: seriatim; Owner: -
--

CREATE TYPE seriatim.fated AS (
	place integer,
	lane bigint,
	seq bigint,
	score double precision,
	created_at bigint,
	fate smallint,
	why text,
	cancelled boolean,
	merge smallint,
	retain bigint,
	claimed_at bigint,
	counted boolean,
	owned boolean,
	due_kind smallint,
	due_in bigint,
	retry_count integer,
	crashes integer
);


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: queue; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.queue (
    number integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    mode smallint NOT NULL,
    merge smallint NOT NULL,
    earliest boolean NOT NULL,
    take integer NOT NULL,
    retain bigint NOT NULL,
    retain_dead bigint NOT NULL,
    retain_dead_max bigint NOT NULL,
    idempotency_ttl bigint NOT NULL,
    lease_max bigint NOT NULL,
    definition text NOT NULL,
    declared boolean NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    closing boolean DEFAULT false NOT NULL
);


--
-- Name: going_on; Type: TYPE; Schema: seriatim; Owner: -
--

CREATE TYPE seriatim.going_on AS (
	q seriatim.queue,
	routes integer[],
	best smallint,
	node text,
	own boolean,
	ttl bigint,
	lanes bigint[],
	lanes_max integer,
	jobs_max integer,
	bytes_max bigint
);


--
-- Name: move; Type: TYPE; Schema: seriatim; Owner: -
--

CREATE TYPE seriatim.move AS (
	queue integer,
	number bigint,
	was_class integer,
	was_priority smallint,
	was_at bigint,
	class integer,
	priority smallint,
	at bigint
);


--
-- Name: taken; Type: TYPE; Schema: seriatim; Owner: -
--

CREATE TYPE seriatim.taken AS (
	lane bigint,
	queue integer,
	name text,
	key text,
	token bigint,
	retry_count integer,
	crashes integer,
	error text,
	claimed_at bigint,
	seq bigint,
	created_at bigint,
	task text,
	payload bytea,
	score double precision,
	priority smallint,
	run_at bigint,
	attempt integer,
	options text
);


--
-- Name: act(bigint, text, integer, text, bigint, integer, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.act(_now bigint, _name text, _which integer, _key text, _lane bigint, _action integer, _rows_max integer, OUT o_count bigint, OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _lanes bigint[];
BEGIN
  SELECT * INTO _q FROM seriatim.shared_queue(_name);
  _lanes := seriatim.select_lanes(_q, _which, _key, _lane, _rows_max + 1);
  o_more := cardinality(_lanes) > _rows_max;
  _lanes := ARRAY(SELECT number FROM seriatim.lane
    WHERE number = ANY (_lanes[:_rows_max]) AND (_action < 2 OR NOT claimed));
  o_count := cardinality(_lanes);
  IF _action = 0 THEN
    UPDATE seriatim.lane SET paused = true WHERE number = ANY (_lanes);
  ELSIF _action = 1 THEN
    UPDATE seriatim.lane SET paused = false, held = false WHERE number = ANY (_lanes);
  ELSIF _action = 2 THEN
    PERFORM seriatim.run_now(_lanes, _q.mode, _t);
  ELSIF _action = 3 THEN
    PERFORM seriatim.bury_failed(_lanes, _q.mode, _t);
  ELSE
    PERFORM seriatim.forget(ARRAY(SELECT i.seq FROM seriatim.item i
      WHERE i.lane = ANY (_lanes) AND (_q.mode = 1 OR _which <> 3 OR i.retry_count >= 0)));
  END IF;
  PERFORM seriatim.place(_lanes, _t);
END $$;


--
-- Name: amend(bigint, bigint, integer, bigint, integer, bigint, text, text); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.amend(_now bigint, _seq bigint, _queue integer, _millis bigint, _change integer, _at bigint, _node text, _options text) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _job bigint;
  _lane bigint;
  _mode smallint;
  _route int;
BEGIN
  SELECT o_seq INTO _job FROM seriatim.resolve(ARRAY[_seq], ARRAY[_queue], ARRAY[_millis]);
  PERFORM seriatim.lock_jobs(ARRAY[_job]);
  SELECT r.o_seq, i.lane, q.mode INTO _job, _lane, _mode
  FROM seriatim.resolve(ARRAY[_seq], ARRAY[_queue], ARRAY[_millis]) r
  CROSS JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = r.o_seq AND NOT o.closed OFFSET 0) i
  JOIN seriatim.queue q ON q.number = i.queue;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF _change = 0 AND _mode = 1 THEN
    UPDATE seriatim.lane SET due = _at WHERE number = _lane;
  ELSIF _change = 0 THEN
    UPDATE seriatim.item SET run_at = _at WHERE seq = _job;
  ELSIF _change = 1 THEN
    SELECT (seriatim.routes_for(ARRAY[_node], ARRAY[nullif(max(r.consumer_group), '')]))[1] INTO _route
    FROM seriatim.item i LEFT JOIN seriatim.route r ON r.number = i.route WHERE i.seq = _job;
    UPDATE seriatim.item SET route = _route, options = _options WHERE seq = _job;
    UPDATE seriatim.lane SET route = _route WHERE number = _lane;
  ELSE
    PERFORM seriatim.forget(ARRAY[_job]);
  END IF;
  PERFORM seriatim.place(ARRAY[_lane], _t);
  RETURN true;
END $$;


--
-- Name: arrive(bigint[], bigint[], smallint[], smallint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.arrive(_lanes bigint[], _run_at bigint[], _priority smallint[], _status smallint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _moves seriatim.move[];
BEGIN
  WITH arrived AS (
  UPDATE seriatim.lane l
  SET next_due = CASE
      WHEN NOT l.claimed THEN l.next_due
      WHEN a.rule THEN least(l.next_due, a.earliest)
      ELSE coalesce(l.next_due, a.first) END,
    due = CASE
      WHEN l.claimed THEN l.due
      WHEN l.due < 0 AND NOT a.rule THEN a.first
      WHEN l.due < 0 THEN a.earliest
      WHEN a.rule THEN least(l.due, a.earliest)
      ELSE l.due END,
    priority = CASE WHEN l.claimed THEN l.priority ELSE least(l.priority, a.priority) END
  FROM (
    SELECT g.*, q.earliest AS rule
    FROM (SELECT w.lane, (array_agg(w.run_at ORDER BY w.place))[1] AS first,
      min(w.run_at) AS earliest, min(w.priority) AS priority
    FROM unnest(_lanes, _run_at, _priority, _status) WITH ORDINALITY
      w (lane, run_at, priority, status, place)
    WHERE w.status < 2 AND w.lane IS NOT NULL
    GROUP BY w.lane) g
    CROSS JOIN LATERAL (SELECT n.queue FROM seriatim.lane n WHERE n.number = g.lane OFFSET 0) n
    JOIN seriatim.queue q ON q.number = n.queue AND q.mode = 1
  ) a
  CROSS JOIN LATERAL (SELECT n.ctid AS row, n.priority FROM seriatim.lane n WHERE n.number = a.lane OFFSET 0) n
  WHERE l.ctid = n.row AND (a.rule OR CASE WHEN l.claimed THEN l.next_due IS NULL
      ELSE l.due < 0 OR a.priority < l.priority END)
  RETURNING l.queue, l.number, l.class AS was_class, n.priority AS was_priority, l.at AS was_at, l.class, l.priority, l.at
  )
  SELECT array_agg(ROW(a.*)::seriatim.move) INTO _moves
  FROM arrived a WHERE class IS NOT NULL AND was_priority <> priority;
  IF _moves IS NOT NULL THEN
    PERFORM seriatim.move_ready(_moves);
  END IF;
END $$;


--
-- Name: bring_back(bigint, bigint, seriatim.queue, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.bring_back(_job bigint, _lane bigint, _q seriatim.queue, _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _merging boolean := _q.mode = 1 AND _q.merge <> 2;
  _equal bigint;
BEGIN
  -- Closed at first: an equal job may be open.
  INSERT INTO seriatim.item (seq, queue, lane, closed, merging, loose, digest, task, score, priority,
      run_at, created_at, started_at, attempts, options, lease_ttl, expires_at, route, payload)
    SELECT seq, queue, _lane, true, _merging, _q.mode = 3, digest, task, score, priority, _now, created_at,
      started_at, attempts, options, lease_ttl, expires_at, route, payload
    FROM seriatim.ended WHERE seq = _job;
  DELETE FROM seriatim.ended WHERE seq = _job;
  IF _merging THEN
    SELECT o.seq INTO _equal FROM seriatim.item o JOIN seriatim.item i ON i.seq = _job
    WHERE o.lane = _lane AND o.digest = i.digest AND o.merging AND NOT o.closed;
    IF FOUND THEN
      PERFORM seriatim.unite(_job, _equal, _q.merge);
    END IF;
  END IF;
  UPDATE seriatim.item SET closed = false WHERE seq = _job;
END $$;


--
-- Name: bury_failed(bigint[], smallint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.bury_failed(_lanes bigint[], _mode smallint, _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _jobs bigint[];
BEGIN
  IF _mode = 1 THEN
    _jobs := ARRAY(SELECT DISTINCT ON (lane) seq FROM seriatim.item
      WHERE lane = ANY (_lanes) ORDER BY lane, score, seq);
  ELSE
    _jobs := ARRAY(SELECT seq FROM seriatim.item WHERE lane = ANY (_lanes) AND retry_count >= 0);
  END IF;
  INSERT INTO seriatim.ended
    SELECT i.seq, i.queue, l.key, 3, _now, NULL, i.digest, i.task, i.score, i.priority, i.run_at,
      i.created_at, i.started_at, i.attempts, i.retry_count, i.crashes,
      CASE WHEN _mode = 1 THEN coalesce(l.error, i.error) ELSE i.error END,
      i.options, i.lease_ttl, i.expires_at, i.route, false, i.payload
    FROM (SELECT * FROM seriatim.item WHERE seq = ANY (_jobs) OFFSET 0) i
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = i.lane OFFSET 0) l;
  INSERT INTO seriatim.tally (queue, dead)
    SELECT queue, count(*) FROM (SELECT * FROM seriatim.item WHERE seq = ANY (_jobs) OFFSET 0) i GROUP BY queue;
  PERFORM seriatim.drop_items(_jobs);
  UPDATE seriatim.lane SET held = false, retry_count = -1, crashes = 0, error = NULL,
    due = CASE WHEN _mode = 1 THEN _now ELSE due END
  WHERE number = ANY (_lanes);
END $$;


--
-- Name: cancel(bigint, bigint[], integer[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.cancel(_now bigint, _seq bigint[], _queue integer[], _millis bigint[]) RETURNS TABLE(o_place bigint, o_answer smallint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _places bigint[];
  _jobs bigint[];
  _open bigint[];
  _lanes bigint[];
BEGIN
  PERFORM seriatim.lock_jobs(ARRAY(SELECT o_seq FROM seriatim.resolve(_seq, _queue, _millis)));
  SELECT array_agg(r.o_place), array_agg(r.o_seq) INTO _places, _jobs
  FROM seriatim.resolve(_seq, _queue, _millis) r;
  SELECT coalesce(array_agg(seq), '{}'), array_agg(DISTINCT lane) INTO _open, _lanes
  FROM seriatim.item WHERE seq = ANY (_jobs) AND NOT closed;
  -- If a waiting job is named twice, the first one cancels it.
  RETURN QUERY
    SELECT w.place, CASE WHEN i.closed THEN 1
        WHEN i.seq IS NOT NULL AND row_number() OVER (PARTITION BY w.seq ORDER BY w.place) = 1 THEN 0
        WHEN i.seq IS NULL OR q.retain > 0 THEN 2 ELSE 3 END::smallint
    FROM unnest(_places, _jobs) w (place, seq)
    LEFT JOIN LATERAL (SELECT * FROM seriatim.item o WHERE o.seq = w.seq OFFSET 0) i ON true
    LEFT JOIN seriatim.queue q ON q.number = i.queue;
  UPDATE seriatim.item SET flagged = true WHERE seq = ANY (_jobs) AND closed AND NOT flagged;
  PERFORM seriatim.cancel_open(_open, 'canceled', _t);
  PERFORM seriatim.place(_lanes, _t);
END $$;


--
-- Name: cancel_open(bigint[], text, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.cancel_open(_jobs bigint[], _error text, _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: capped(integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.capped(_queue integer, _length bigint) RETURNS bigint
    LANGUAGE sql STABLE STRICT
    AS $$
  SELECT least(_length, lease_max) FROM seriatim.queue WHERE number = _queue
$$;


--
-- Name: check_isolation(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.check_isolation() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'not read committed' USING ERRCODE = 'SR007';
  END IF;
END $$;


--
-- Name: check_jobs(integer[], text[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.check_jobs(_queue integer[], _key text[], _lease_ttl bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _bad record;
  _modes int;
  _lease_max bigint;
BEGIN
  -- Mostly all jobs are of one kind and right: then none is looked at for itself.
  SELECT bit_or(CASE WHEN mode = 0 THEN 1 ELSE 2 END), min(lease_max) INTO _modes, _lease_max
  FROM seriatim.queue WHERE number = ANY (_queue);
  IF (CASE _modes WHEN 1 THEN array_remove(_key, NULL) = '{}' WHEN 2 THEN array_position(_key, NULL) IS NULL END)
    AND NOT EXISTS (SELECT FROM unnest(_lease_ttl) l WHERE l > _lease_max) THEN
    RETURN;
  END IF;
  SELECT w.place, q.mode, q.lease_max, (q.mode <> 0) <> (w.key IS NOT NULL) AS of_key INTO _bad
  FROM unnest(_queue, _key, _lease_ttl) WITH ORDINALITY w (queue, key, lease_ttl, place)
  JOIN seriatim.queue q ON q.number = w.queue
  WHERE (q.mode <> 0) <> (w.key IS NOT NULL) OR w.lease_ttl > q.lease_max
  ORDER BY w.place LIMIT 1;
  IF FOUND AND NOT _bad.of_key THEN
    RAISE EXCEPTION 'the lease is too long' USING ERRCODE = 'SR009',
      DETAIL = format('%s %s', _bad.place - 1, _bad.lease_max);
  ELSIF FOUND THEN
    RAISE EXCEPTION 'key and mode' USING ERRCODE = 'SR001',
      DETAIL = format('%s %s', _bad.place - 1, _bad.mode);
  END IF;
END $$;


--
-- Name: check_node(text, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.check_node(_node text, _ticket bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _refused text := seriatim.refused_as(_node, _ticket);
BEGIN
  IF _refused IS NOT NULL THEN
    RAISE EXCEPTION 'the node is not registered or dead, or the call was given up' USING ERRCODE = _refused;
  END IF;
END $$;


--
-- Name: check_routes(bigint[], integer[], text[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.check_routes(_lanes bigint[], _route integer[], _idempotency text[] DEFAULT '{}'::text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _bad record;
BEGIN
  SELECT w.place, l.key INTO _bad
  FROM unnest(_lanes, _route, _idempotency) WITH ORDINALITY w (lane, route, name, place)
  CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n
    WHERE n.number = w.lane AND n.route <> w.route OFFSET 0) l
  JOIN seriatim.queue q ON q.number = l.queue AND q.mode IN (1, 2)
  WHERE NOT EXISTS (SELECT FROM seriatim.idempotency i
    WHERE i.queue = l.queue AND i.key = l.key AND i.name = w.name)
  ORDER BY w.place LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'another node or group' USING ERRCODE = 'SR003', DETAIL = _bad.place - 1;
  END IF;
END $$;


--
-- Name: claim(bigint, text, text, text, text[], integer, integer, boolean, bigint, integer, integer, bigint, bigint, integer, boolean, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.claim(_now bigint, _name text, _node text, _node_name text, _groups text[], _lanes_max integer, _crashed_max integer, _own boolean, _ttl bigint, _promote_max integer, _jobs_max integer, _bytes_max bigint, _room bigint, _job_bytes integer, _declared boolean, _ticket bigint) RETURNS TABLE(o_next_due bigint, o_cut boolean, lane bigint, queue integer, name text, key text, token bigint, retry_count integer, crashes integer, error text, claimed_at bigint, seq bigint, created_at bigint, task text, payload bytea, score double precision, priority smallint, run_at bigint, attempt integer, options text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _routes int[] := seriatim.routes_of(_node_name, _groups);
  _lanes bigint[];
  _spots tid[];
  _token bigint;
  _packed boolean;
  _light boolean;
  _ready int;
  _priority smallint;
  _at bigint;
  _number bigint;
BEGIN
  PERFORM seriatim.check_node(_node, _ticket);
  SELECT * INTO _q FROM seriatim.shared_queue(_name);
  PERFORM seriatim.draw_tokens();
  IF _declared AND NOT _q.declared THEN
    RAISE EXCEPTION 'the queue is not declared' USING ERRCODE = 'SR005', DETAIL = _name;
  END IF;
  IF _ttl > _q.lease_max THEN
    RAISE EXCEPTION 'the lease is too long' USING ERRCODE = 'SR009', DETAIL = format('0 %s', _q.lease_max);
  END IF;
  IF _q.paused THEN
    RETURN NEXT;
    RETURN;
  END IF;
  PERFORM seriatim.promote(_q.number, _t, _promote_max);
  IF _q.mode = 0 THEN
    SELECT * INTO _lanes, _spots, _light, _priority, _at, _number
    FROM seriatim.lock_light(_q.number, _routes, _lanes_max, _crashed_max, _own OR _room IS NOT NULL);
  ELSE
    SELECT * INTO _lanes, _spots, _light, _packed, _priority, _at, _number
    FROM seriatim.lock_ready(_q.number, _routes, _lanes_max, _crashed_max, _own OR _room IS NOT NULL);
  END IF;
  -- A lane may have been freed after this call began, so the time of the claim is when its lane was locked.
  _t := coalesce(_now, seriatim.clock());
  IF _room IS NOT NULL THEN
    _ready := cardinality(_lanes);
    _lanes := seriatim.fitting(_q, _lanes, _t, _jobs_max, _bytes_max, _room, _job_bytes);
    _packed := false;
    o_cut := coalesce(cardinality(_lanes), 0) < _ready;
  END IF;
  IF _lanes IS NOT NULL THEN
    _token := nextval('seriatim.token');
    PERFORM seriatim.take_ready(_lanes, _spots[:cardinality(_lanes)]);
    PERFORM seriatim.list_batch(_token, _node, _own, _ttl, _t, coalesce(_light, false), _lanes);
    INSERT INTO seriatim.tally (queue, claimed) VALUES (_q.number, cardinality(_lanes));
  END IF;
  IF _light THEN
    RETURN QUERY
      SELECT NULL::bigint, NULL::boolean, l.number, l.queue, _name, l.key, _token, l.retry_count, l.crashes, l.error, _t,
        l.number, l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, 1, l.options
      FROM seriatim.lane l WHERE l.number = ANY (_lanes) ORDER BY l.priority, l.packed_run_at, l.number;
  ELSIF _packed THEN
    RETURN QUERY SELECT NULL::bigint, NULL::boolean, t.*
      FROM seriatim.hold_packed(_q, _lanes, _token, _node, _own, _ttl, _t) t;
  ELSIF _lanes IS NOT NULL THEN
    RETURN QUERY SELECT NULL::bigint, NULL::boolean, t.*
      FROM seriatim.hold(_q, _lanes, _token, _node, _own, _ttl, _t, _jobs_max, _bytes_max) t;
  END IF;
  o_next_due := seriatim.next_due(_q.number, _routes, _t, _priority, _at, _number);
  RETURN NEXT;
END $$;


--
-- Name: claimed_lanes(integer, text); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.claimed_lanes(_queue integer, _node text) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.claimed_lane WHERE queue = _queue AND (_node IS NULL OR holder = _node));
END $$;


--
-- Name: clock(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.clock() RETURNS bigint
    LANGUAGE sql
    AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;


--
-- Name: close_jobs(bigint[], smallint, integer, bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.close_jobs(_lanes bigint[], _mode smallint, _take integer, _now bigint, _jobs_max integer, _bytes_max bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE seriatim.item i SET closed = true
  FROM (
    SELECT j.item
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
    CROSS JOIN LATERAL seriatim.next_jobs(l.number, l.retry_count < 0 AND l.crashes = 0, _mode, _take, _now,
      _jobs_max, _bytes_max) j
  ) t
  WHERE i.ctid = t.item;
END $$;


--
-- Name: count_turns(seriatim.fated[], integer[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.count_turns(_fates seriatim.fated[], _cancels integer[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: create_queue(jsonb, boolean); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.create_queue(_p jsonb, _declared boolean) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
  -- The number of a deleted queue is reused.
  _number int := (SELECT n FROM generate_series(1, (_p->>'queues_max')::int) n
    WHERE NOT EXISTS (SELECT FROM seriatim.queue q WHERE q.number = n) ORDER BY n LIMIT 1);
BEGIN
  IF _number IS NULL THEN
    RAISE EXCEPTION 'too many queues' USING ERRCODE = 'SR006';
  END IF;
  INSERT INTO seriatim.queue (number, name, mode, merge, earliest, take, retain, retain_dead,
    retain_dead_max, idempotency_ttl, lease_max, definition, declared)
  VALUES (_number, _p->>'name', (_p->>'mode')::smallint, (_p->>'merge')::smallint,
    (_p->>'earliest')::boolean, (_p->>'take')::int, (_p->>'retain')::bigint,
    (_p->>'retain_dead')::bigint, (_p->>'retain_dead_max')::bigint,
    (_p->>'idempotency_ttl')::bigint, (_p->>'lease_max')::bigint, _p->>'definition', _declared);
  RETURN _number;
END $$;


--
-- Name: declare(bigint, jsonb); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.declare(_now bigint, _queues jsonb) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _at bigint := coalesce(_now, seriatim.clock());
  _p jsonb;
  _place bigint;
  _old seriatim.queue;
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
    IF _old.closing THEN
      RAISE EXCEPTION 'the queue is being deleted' USING ERRCODE = 'SR010', DETAIL = _old.name;
    END IF;
    IF _old.mode <> (_p->>'mode')::smallint OR _old.merge <> (_p->>'merge')::smallint THEN
      PERFORM seriatim.may_change(_old, _p, _place);
    END IF;
    UPDATE seriatim.queue SET mode = (_p->>'mode')::smallint, merge = (_p->>'merge')::smallint,
      earliest = (_p->>'earliest')::boolean, take = (_p->>'take')::int,
      retain = (_p->>'retain')::bigint, retain_dead = (_p->>'retain_dead')::bigint,
      retain_dead_max = (_p->>'retain_dead_max')::bigint,
      idempotency_ttl = (_p->>'idempotency_ttl')::bigint, lease_max = (_p->>'lease_max')::bigint,
      definition = _p->>'definition', declared = true
    WHERE number = _old.number;
    IF _old.mode <> (_p->>'mode')::smallint OR _old.merge <> (_p->>'merge')::smallint THEN
      PERFORM seriatim.push_again(_old.number, _at);
    END IF;
  END LOOP;
END $$;


--
-- Name: delete_dead(text, integer, bigint[], integer[], bigint[], text[], integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.delete_dead(_name text, _which integer, _seq bigint[], _queues integer[], _millis bigint[], _keys text[], _rows_max integer, OUT o_count bigint, OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _jobs bigint[] := seriatim.select_dead(seriatim.queue_number(_name), _which, _seq, _queues, _millis,
    _keys, _rows_max + 1);
BEGIN
  o_more := cardinality(_jobs) > _rows_max;
  -- Lock in order and check again: a concurrent requeue may have moved some.
  _jobs := ARRAY(SELECT seq FROM seriatim.ended WHERE seq = ANY (_jobs[:_rows_max]) AND state = 3
    ORDER BY seq FOR UPDATE);
  PERFORM seriatim.forget(_jobs);
  o_count := cardinality(_jobs);
END $$;


--
-- Name: delete_queue(text, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.delete_queue(_name text, _rows_max integer, OUT o_count bigint, OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _number int;
  _claimed bigint;
  _lanes bigint[];
  _jobs bigint[];
  _ended bigint[];
  _names bigint;
  _packed bigint;
BEGIN
  LOCK TABLE seriatim.queue IN SHARE ROW EXCLUSIVE MODE;
  _number := seriatim.queue_number(_name);
  PERFORM pg_advisory_xact_lock(hashtext('seriatim.'), _number);
  SELECT count(*) INTO _claimed FROM seriatim.claimed_lane WHERE queue = _number;
  IF _claimed > 0 THEN
    RAISE EXCEPTION 'lanes are claimed' USING ERRCODE = 'SR011', DETAIL = _claimed;
  END IF;
  UPDATE seriatim.queue SET closing = true, paused = true WHERE number = _number AND NOT closing;

  _jobs := ARRAY(SELECT seq FROM seriatim.item
    WHERE queue = _number AND queue IS NOT NULL ORDER BY seq LIMIT _rows_max);
  PERFORM seriatim.lock_lanes(ARRAY(SELECT DISTINCT lane FROM seriatim.item WHERE seq = ANY (_jobs)));
  PERFORM seriatim.forget(_jobs);
  o_count := cardinality(_jobs);
  o_more := cardinality(_jobs) = _rows_max;
  IF NOT o_more THEN
    _lanes := ARRAY(SELECT number FROM seriatim.lane
      WHERE queue = _number AND number > 0 ORDER BY number LIMIT _rows_max);
    PERFORM seriatim.lock_lanes(_lanes);
    -- A packed lane is one job.
    SELECT count(*) INTO _packed FROM seriatim.lane WHERE number = ANY (_lanes) AND payload IS NOT NULL;
    o_count := o_count + _packed;
    INSERT INTO seriatim.tally (queue, lanes, jobs) VALUES (_number, -cardinality(_lanes), -_packed);
    PERFORM seriatim.move_ready(ARRAY(
      SELECT ROW(queue, number, class, priority, at, NULL, NULL, NULL)::seriatim.move
      FROM seriatim.lane WHERE number = ANY (_lanes) AND class IS NOT NULL));
    DELETE FROM seriatim.lane WHERE number = ANY (_lanes);
    o_more := cardinality(_lanes) = _rows_max;
  END IF;

  _ended := ARRAY(SELECT seq FROM seriatim.ended
    WHERE queue = _number AND queue IS NOT NULL AND state IN (2, 3, 4) LIMIT _rows_max FOR UPDATE);
  PERFORM seriatim.forget(_ended);
  o_count := o_count + cardinality(_ended);
  DELETE FROM seriatim.idempotency WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM seriatim.idempotency WHERE queue = _number LIMIT _rows_max));
  GET DIAGNOSTICS _names = ROW_COUNT;
  o_more := o_more OR cardinality(_ended) = _rows_max OR _names = _rows_max;
  IF NOT o_more THEN
    -- Its rows stay as they are.
    PERFORM pg_advisory_xact_lock(hashtext('tally seriatim.'), 0);
    DELETE FROM seriatim.tally WHERE queue = _number;
    DELETE FROM seriatim.queue WHERE number = _number;
  END IF;
END $$;


--
-- Name: draw_tokens(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.draw_tokens() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM seriatim.seeded WHERE mark = seriatim.server_mark()) THEN
    PERFORM seriatim.reseed();
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtext('seriatim.'), 0);
END $$;


--
-- Name: drop_items(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.drop_items(_jobs bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  WITH gone AS (DELETE FROM seriatim.item WHERE seq = ANY (_jobs) RETURNING queue)
  INSERT INTO seriatim.tally (queue, jobs) SELECT queue, -count(*) FROM gone GROUP BY queue;
END $$;


--
-- Name: due_after(bigint, bigint, smallint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.due_after(_was bigint, _now bigint, _kind smallint, _in bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT CASE _kind WHEN 0 THEN _was WHEN 1 THEN _now ELSE seriatim.later(_now, _in) END
$$;


--
-- Name: end_inbox(bigint[], bigint[], text[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.end_inbox(_done bigint[], _refused bigint[], _why text[], _refused_max bigint) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  DELETE FROM seriatim.inbox WHERE id = ANY (_done);
  IF cardinality(_refused) > 0 THEN
    UPDATE seriatim.inbox i SET refused = w.why, refused_at = now()
    FROM unnest(_refused, _why) w (id, why) WHERE i.id = w.id;
    DELETE FROM seriatim.inbox WHERE id = ANY (ARRAY(
      SELECT i.id FROM seriatim.inbox i WHERE i.refused IS NOT NULL ORDER BY -i.id OFFSET _refused_max LIMIT 1000));
  END IF;
  -- What is inserted from the commit on is found by the next look, without a NOTIFY.
  DELETE FROM seriatim.inbox_asleep;
END $$;


--
-- Name: end_items(bigint[], boolean, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.end_items(_seqs bigint[], _kept boolean, _now bigint) RETURNS integer[]
    LANGUAGE plpgsql
    AS $$
DECLARE
  _queues int[];
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
  WITH gone AS (DELETE FROM seriatim.item WHERE seq = ANY (_seqs) RETURNING queue)
  SELECT array_agg(queue) INTO _queues FROM gone;
  RETURN _queues;
END $$;


--
-- Name: end_jobs(seriatim.fated[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.end_jobs(_fates seriatim.fated[], _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  WITH stored AS (INSERT INTO seriatim.ended
    SELECT i.seq, i.queue, l.key, CASE f.fate WHEN 0 THEN 2 WHEN 1 THEN 3 ELSE 4 END, _now,
      CASE WHEN f.fate <> 1 THEN seriatim.later(_now, f.retain) END,
      i.digest, i.task, i.score, i.priority, i.run_at, i.created_at,
      coalesce(i.started_at, f.claimed_at), i.attempts + 1, i.retry_count, i.crashes,
      CASE WHEN f.fate = 0 THEN i.error ELSE coalesce(f.why, i.error) END,
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


--
-- Name: end_keyed(bigint, bigint[], integer[], bigint[], integer[], boolean); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.end_keyed(_now bigint, _lane bigint[], _queue integer[], _token bigint[], _others integer[], _skip boolean, OUT o_lanes bigint[], OUT o_tokens bigint[], OUT o_freed bigint[], OUT o_busy bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  -- The queues of the turns, of those that are packed lanes, and of the jobs of the others.
  _queues int[];
  _packed_queues int[];
  _job_queues int[] := '{}';
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
        coalesce(array_agg(l.number) FILTER (WHERE l.token = 0), '{}'), array_agg(l.queue) FILTER (WHERE l.token = 0)
      INTO o_lanes, o_tokens, _queues, _packed_queues, o_freed, _packed, _seqs, _whole, _last, _fresh, _fresh_queues
      FROM (SELECT l.number, l.token, l.queue, l.claimed, l.taken, l.payload IS NOT NULL AS packed,
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
    DELETE FROM seriatim.lane WHERE number = ANY (_packed);
  END IF;
  IF _whole IS NOT NULL THEN
    _seqs := _seqs || ARRAY(SELECT o.seq FROM unnest(_whole, _last) w (lane, last)
      CROSS JOIN LATERAL (SELECT i.seq FROM seriatim.item i WHERE i.lane = w.lane AND i.seq + 0 <= w.last OFFSET 0) o);
  END IF;
  IF _seqs IS NOT NULL THEN
    _job_queues := seriatim.end_items(_seqs, _kept, _now);
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


--
-- Name: end_keyless(bigint, bigint[], integer[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.end_keyless(_now bigint, _lane bigint[], _queue integer[], _token bigint[], OUT o_lanes bigint[], OUT o_tokens bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  _queues int[];
  _light bigint[];
  _light_tokens bigint[];
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
    RETURNING l.number, l.queue, l.token
  )
  SELECT coalesce(array_agg(g.number), '{}'), coalesce(array_agg(g.token), '{}'), array_agg(g.queue)
  INTO o_lanes, o_tokens, _queues FROM gone g;
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


--
-- Name: ended_jobs(integer, smallint, integer, text, text, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.ended_jobs(_queue integer, _state smallint, _order integer, _key text, _place text, _last bigint, _rows_max bigint) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
  _all bigint := seriatim.last_number();
BEGIN
  IF _key IS NOT NULL THEN
    RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE (queue, state, key) = (_queue, _state, _key) AND queue IS NOT NULL);
  ELSIF _order = 0 THEN
    RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL
      AND (queue, state, seq) > (_queue, _state, _last) AND (queue, state, seq) <= (_queue, _state, _all)
      ORDER BY queue, state, seq LIMIT _rows_max);
  ELSIF _order = 1 THEN
    RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL
      AND (queue, state, coalesce(key, ''), seq) > (_queue, _state, coalesce(_place, ''), _last)
      AND (queue, state) <= (_queue, _state)
      ORDER BY queue, state, coalesce(key, ''), seq LIMIT _rows_max);
  END IF;
  RETURN ARRAY(SELECT seq FROM seriatim.ended WHERE queue IS NOT NULL
    AND (queue, state, -ended_at, seq) > (_queue, _state, coalesce(_place::bigint, -_all), _last)
    AND (queue, state, -ended_at, seq) <= (_queue, _state, _all, _all)
    ORDER BY queue, state, -ended_at, seq LIMIT _rows_max);
END $$;


--
-- Name: endings_of(bigint[], bigint[], integer[], bigint[], smallint[], bigint[], smallint[], bigint[], integer[], integer[], text[], boolean[], boolean[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.endings_of(_left bigint[], _lane bigint[], _queue integer[], _token bigint[], _rest smallint[], _owner bigint[], _due_kind smallint[], _due_in bigint[], _retry_count integer[], _crashes integer[], _error text[], _counted boolean[], _hold boolean[]) RETURNS seriatim.ending[]
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM seriatim.lock_rows(_left);
  PERFORM seriatim.unpack(_left);
  RETURN (
    SELECT array_agg(ROW(w.place, w.lane, q.mode, q.merge, q.retain, l.claimed_at, w.rest, w.owner,
      w.due_kind, w.due_in, w.retry_count, w.crashes, w.error, w.counted, w.hold, l.batch)::seriatim.ending)
    FROM (
      SELECT * FROM unnest(_lane, _queue, _token, _rest, _owner, _due_kind, _due_in,
          _retry_count, _crashes, _error, _counted, _hold)
        WITH ORDINALITY AS u (lane, queue, token, rest, owner, due_kind, due_in, retry_count, crashes,
          error, counted, hold, place)
      WHERE CASE WHEN lane IN (SELECT unnest(_left)) THEN true END) w
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.lane OFFSET 0) l
    JOIN seriatim.queue q ON q.number = l.queue
    WHERE l.queue = w.queue AND l.token = w.token AND l.claimed);
END $$;


--
-- Name: extend_locked(bigint[], integer[], bigint[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.extend_locked(_lane bigint[], _queue integer[], _token bigint[], _extend bigint[], _free bigint[], _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: fates_of(seriatim.ending[], jsonb); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.fates_of(_endings seriatim.ending[], _except jsonb) RETURNS seriatim.fated[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: owns(smallint, bigint, boolean, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.owns(_mode smallint, _taken bigint, _closed boolean, _seq bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT _closed OR CASE WHEN _taken IS NULL THEN false WHEN _mode = 1 THEN _seq <= _taken
    ELSE _seq = _taken END
$$;


--
-- Name: batch; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.batch (
    token bigint NOT NULL,
    node text NOT NULL COLLATE pg_catalog."C",
    own boolean NOT NULL,
    ttl bigint NOT NULL,
    until bigint NOT NULL,
    claimed_at bigint NOT NULL,
    light boolean NOT NULL,
    remaining integer NOT NULL,
    lanes bigint[] NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0', toast_tuple_target='8160');
ALTER TABLE ONLY seriatim.batch ALTER COLUMN lanes SET STORAGE EXTERNAL;


--
-- Name: ended; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.ended (
    seq bigint NOT NULL,
    queue integer NOT NULL,
    key text COLLATE pg_catalog."C",
    state smallint NOT NULL,
    ended_at bigint NOT NULL,
    until bigint,
    digest bytea,
    task text,
    score double precision NOT NULL,
    priority smallint NOT NULL,
    run_at bigint NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    attempts integer NOT NULL,
    retry_count integer NOT NULL,
    crashes integer NOT NULL,
    error text,
    options text,
    lease_ttl bigint,
    expires_at bigint,
    route integer NOT NULL,
    flagged boolean NOT NULL,
    payload bytea NOT NULL
);


--
-- Name: item; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.item (
    seq bigint NOT NULL,
    queue integer NOT NULL,
    lane bigint NOT NULL,
    closed boolean DEFAULT false NOT NULL,
    merging boolean NOT NULL,
    loose boolean NOT NULL,
    digest bytea,
    task text,
    score double precision NOT NULL,
    priority smallint NOT NULL,
    run_at bigint NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    attempts integer DEFAULT 0 NOT NULL,
    retry_count integer DEFAULT '-1'::integer NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    error text,
    options text,
    lease_ttl bigint,
    expires_at bigint,
    route integer NOT NULL,
    flagged boolean DEFAULT false NOT NULL,
    payload bytea NOT NULL
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');


--
-- Name: lane; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.lane (
    number bigint NOT NULL,
    queue integer NOT NULL,
    key text COLLATE pg_catalog."C",
    token bigint DEFAULT 0 NOT NULL,
    held boolean DEFAULT false NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    route integer DEFAULT 0 NOT NULL,
    due bigint NOT NULL,
    next_due bigint,
    retry_count integer DEFAULT '-1'::integer NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    error text,
    class integer,
    priority smallint DEFAULT 0 NOT NULL,
    at bigint,
    wake bigint,
    claimed boolean DEFAULT false NOT NULL,
    batch bigint,
    holder text COLLATE pg_catalog."C",
    own_lease boolean,
    ttl bigint,
    until bigint,
    claimed_at bigint,
    beat_at bigint,
    progress text,
    taken bigint,
    packed_run_at bigint,
    digest bytea,
    task text,
    score double precision,
    created_at bigint,
    options text,
    lease_ttl bigint,
    payload bytea
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');


--
-- Name: lane_now; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.lane_now AS
 SELECT l.number,
    l.queue,
    l.key,
    COALESCE(b.token, l.token) AS token,
    l.held,
    l.paused,
    l.due,
    l.priority,
    l.retry_count,
    l.crashes,
    l.error,
    (l.claimed OR (b.token IS NOT NULL)) AS claimed,
    COALESCE(l.holder, b.node) AS holder,
    COALESCE(l.own_lease, b.own) AS own_lease,
    COALESCE(l.ttl, b.ttl) AS ttl,
    COALESCE(l.until, b.until) AS until,
    COALESCE(l.claimed_at, b.claimed_at) AS claimed_at,
    COALESCE(l.beat_at, b.claimed_at) AS beat_at,
    l.progress,
    l.taken,
    l.packed_run_at,
    l.task,
    l.score,
    l.created_at,
    l.options,
    l.payload
   FROM (seriatim.lane l
     LEFT JOIN ( SELECT u.number,
            b_1.token,
            b_1.node,
            b_1.own,
            b_1.ttl,
            b_1.until,
            b_1.claimed_at,
            b_1.light,
            b_1.remaining,
            b_1.lanes
           FROM (seriatim.batch b_1
             CROSS JOIN LATERAL unnest(b_1.lanes) u(number))
          WHERE b_1.light) b ON (((b.number = l.number) AND (l.token = 0))));


--
-- Name: live; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.live AS
 SELECT i.seq,
    i.queue,
    l.key,
    i.task,
    seriatim.owns(q.mode, l.taken, i.closed, i.seq) AS closed,
    i.payload,
    i.score,
    i.priority,
    i.run_at,
    i.attempts,
        CASE
            WHEN (q.mode = 1) THEN l.retry_count
            ELSE i.retry_count
        END AS retry_count,
        CASE
            WHEN (q.mode = 1) THEN l.crashes
            ELSE i.crashes
        END AS crashes,
        CASE
            WHEN (q.mode = 1) THEN l.error
            ELSE i.error
        END AS error,
    i.flagged,
    i.created_at,
    i.started_at,
    l.claimed_at,
    l.own_lease,
    l.beat_at,
    l.holder,
    l.progress,
    i.options,
    q.name,
    l.number AS lane,
    l.token
   FROM ((seriatim.item i
     JOIN seriatim.lane l ON ((l.number = i.lane)))
     JOIN seriatim.queue q ON ((q.number = i.queue)))
UNION ALL
 SELECT l.number AS seq,
    l.queue,
    l.key,
    l.task,
    l.claimed AS closed,
    l.payload,
    l.score,
    l.priority,
    l.packed_run_at AS run_at,
    0 AS attempts,
    l.retry_count,
    l.crashes,
    l.error,
    false AS flagged,
    l.created_at,
    NULL::bigint AS started_at,
    l.claimed_at,
    l.own_lease,
    l.beat_at,
    l.holder,
    l.progress,
    l.options,
    q.name,
    l.number AS lane,
    l.token
   FROM (seriatim.lane_now l
     JOIN seriatim.queue q ON ((q.number = l.queue)))
  WHERE ((l.payload IS NOT NULL) AND (l.number > 0));


--
-- Name: node; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.node (
    id text NOT NULL COLLATE pg_catalog."C",
    info text NOT NULL,
    lease bigint NOT NULL,
    beat_at bigint NOT NULL,
    dead_at bigint,
    command smallint,
    given_up bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');


--
-- Name: job_view; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.job_view AS
 SELECT i.seq,
    i.queue,
    i.name,
    i.key,
    i.task,
    (
        CASE
            WHEN i.closed THEN 1
            ELSE 0
        END)::smallint AS state,
    i.payload,
    i.score,
    i.priority,
    i.run_at,
        CASE
            WHEN i.closed THEN (i.attempts + 1)
            ELSE i.attempts
        END AS attempt,
    i.retry_count,
    i.crashes,
    i.error,
    i.flagged,
    i.created_at,
        CASE
            WHEN i.closed THEN COALESCE(i.started_at, i.claimed_at)
            ELSE i.started_at
        END AS started_at,
    NULL::bigint AS finished_at,
        CASE
            WHEN (NOT i.closed) THEN NULL::bigint
            WHEN i.own_lease THEN i.beat_at
            ELSE GREATEST(i.beat_at, n.beat_at)
        END AS heartbeat_at,
        CASE
            WHEN i.closed THEN i.progress
            ELSE NULL::text
        END AS progress,
    i.options,
    i.lane,
        CASE
            WHEN i.closed THEN i.token
            ELSE NULL::bigint
        END AS token,
        CASE
            WHEN i.closed THEN i.holder
            ELSE NULL::text
        END AS node
   FROM (seriatim.live i
     LEFT JOIN seriatim.node n ON ((n.id = i.holder)))
UNION ALL
 SELECT e.seq,
    e.queue,
    q.name,
    e.key,
    e.task,
    e.state,
    e.payload,
    e.score,
    e.priority,
    e.run_at,
    e.attempts AS attempt,
    e.retry_count,
    e.crashes,
    e.error,
    e.flagged,
    e.created_at,
    e.started_at,
    e.ended_at AS finished_at,
    NULL::bigint AS heartbeat_at,
    NULL::text AS progress,
    e.options,
    NULL::bigint AS lane,
    NULL::bigint AS token,
    NULL::text AS node
   FROM (seriatim.ended e
     JOIN seriatim.queue q ON ((q.number = e.queue)));


--
-- Name: find_jobs(bigint[], integer[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.find_jobs(_seq bigint[], _queue integer[], _millis bigint[]) RETURNS SETOF seriatim.job_view
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  RETURN QUERY SELECT v.* FROM seriatim.resolve(_seq, _queue, _millis) r
    CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = r.o_seq OFFSET 0) v;
END $$;


--
-- Name: first_due(integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.first_due(_queue integer) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
  WITH RECURSIVE first AS (
    (SELECT class, priority, at FROM seriatim.ready WHERE queue = _queue ORDER BY class, priority, at LIMIT 1)
    UNION ALL
    SELECT n.class, n.priority, n.at FROM first r CROSS JOIN LATERAL (
      SELECT class, priority, at FROM seriatim.ready
      WHERE queue = _queue AND (class, priority) > (r.class, r.priority)
      ORDER BY class, priority, at LIMIT 1) n
  )
  SELECT least((SELECT min(at) FROM first),
    (SELECT min(wake) FROM seriatim.lane WHERE queue = _queue AND wake IS NOT NULL))
$$;


--
-- Name: first_job(bigint, smallint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.first_job(_lane bigint, _mode smallint, _due bigint) RETURNS SETOF seriatim.item
    LANGUAGE sql STABLE
    AS $$
  (SELECT i.* FROM seriatim.item i WHERE _mode <> 3 AND i.lane = _lane
    ORDER BY i.score, i.seq LIMIT 1)
  UNION ALL
  (SELECT i.* FROM seriatim.item i
    WHERE _mode = 3 AND i.lane = _lane AND i.loose AND NOT i.closed AND i.run_at <= _due
    ORDER BY i.priority, i.run_at, i.seq LIMIT 1)
$$;


--
-- Name: fitting(seriatim.queue, bigint[], bigint, integer, bigint, bigint, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.fitting(_q seriatim.queue, _lanes bigint[], _now bigint, _jobs_max integer, _bytes_max bigint, _room bigint, _job_bytes integer) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
BEGIN
  RETURN (
    SELECT array_agg(x.number ORDER BY x.place) FROM (
      SELECT w.number, w.place, sum(t.bytes + t.jobs * _job_bytes) OVER (ORDER BY w.place) AS bytes
      FROM unnest(_lanes) WITH ORDINALITY w (number, place)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
      CROSS JOIN LATERAL (
        SELECT octet_length(l.payload) AS bytes, 1 AS jobs WHERE l.payload IS NOT NULL
        UNION ALL
        SELECT octet_length(o.payload), 1
        FROM seriatim.first_job(l.number, _q.mode, greatest(_now, l.at)) o
        WHERE l.payload IS NULL AND seriatim.takes_one(_q)
        UNION ALL
        SELECT sum(o.bytes), count(*)
        FROM seriatim.next_jobs(l.number, l.retry_count < 0 AND l.crashes = 0, _q.mode, _q.take, _now,
          _jobs_max, _bytes_max) o
        WHERE l.payload IS NULL AND NOT seriatim.takes_one(_q)
        HAVING count(*) > 0) t) x
    WHERE x.bytes <= _room);
END $$;


--
-- Name: fold(integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.fold(_rows_max integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('tally seriatim.'), 0) THEN
    RETURN;
  END IF;
  WITH gone AS (
    DELETE FROM seriatim.tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM seriatim.tally LIMIT _rows_max))
    RETURNING *
  )
  INSERT INTO seriatim.tally (queue, lanes, jobs, claimed, dead, processed, failed)
    SELECT queue, sum(lanes), sum(jobs), sum(claimed), sum(dead), sum(processed), sum(failed) FROM gone GROUP BY queue;
END $$;


--
-- Name: forget(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.forget(_jobs bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  DELETE FROM seriatim.alias WHERE of_seq = ANY (_jobs);
  PERFORM seriatim.drop_items(_jobs);
  WITH gone AS (DELETE FROM seriatim.ended WHERE seq = ANY (_jobs) RETURNING queue, state)
  INSERT INTO seriatim.tally (queue, dead) SELECT queue, -count(*) FROM gone WHERE state = 3 GROUP BY queue;
END $$;


--
-- Name: forget_names(bigint, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.forget_names(_now bigint, _rows_max integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _from bigint;
  _to bigint;
BEGIN
  INSERT INTO seriatim.looked (until) SELECT -1 WHERE NOT EXISTS (SELECT FROM seriatim.looked) ON CONFLICT DO NOTHING;
  SELECT until INTO _from FROM seriatim.looked FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  _to := (SELECT until FROM seriatim.idempotency WHERE until > _from AND until <= _now
    ORDER BY until OFFSET _rows_max LIMIT 1);
  DELETE FROM seriatim.idempotency d
  USING (
    SELECT i.ctid AS row FROM seriatim.idempotency i
    WHERE i.until > _from AND i.until <= coalesce(_to, _now)
      AND NOT EXISTS (SELECT FROM seriatim.item j WHERE j.seq = i.seq OFFSET 0)
      AND NOT EXISTS (SELECT FROM seriatim.ended j WHERE j.seq = i.seq OFFSET 0)
      AND NOT EXISTS (SELECT FROM seriatim.alias j WHERE j.seq = i.seq OFFSET 0)
    FOR UPDATE OF i SKIP LOCKED
  ) x
  WHERE d.ctid = x.row;
  UPDATE seriatim.looked SET until = coalesce(_to, -1) WHERE until <> coalesce(_to, -1);
END $$;


--
-- Name: free_lanes(seriatim.ending[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.free_lanes(_endings seriatim.ending[], _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  WITH freed AS (UPDATE seriatim.lane l
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
      EXISTS (SELECT FROM seriatim.item i WHERE i.closed AND CASE WHEN i.closed THEN i.lane END = s.lane
        OFFSET 0) AS kept,
      EXISTS (SELECT FROM seriatim.item i WHERE i.seq = s.owner AND i.lane = s.lane AND i.closed OFFSET 0)
        AS owner_kept
    FROM unnest(_endings) s
  ) e
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = e.lane OFFSET 0) n
  WHERE l.ctid = n.row
  RETURNING l.queue)
  INSERT INTO seriatim.tally (queue, claimed) SELECT queue, -count(*) FROM freed GROUP BY queue;
END $$;


--
-- Name: give_up(text, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.give_up(_node text, _ticket bigint) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('node seriatim.'), hashtext(_node));
  UPDATE seriatim.node SET given_up = greatest(given_up, _ticket) WHERE id = _node;
END $$;


--
-- Name: go_on(seriatim.going_on[], bigint[], bigint[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.go_on(_all seriatim.going_on[], _tokens bigint[], _done bigint[], _now bigint) RETURNS SETOF seriatim.taken
    LANGUAGE plpgsql
    AS $$
DECLARE
  _one seriatim.going_on;
  _lanes bigint[];
BEGIN
  FOR _place IN 1 .. cardinality(_all) LOOP
    _one := _all[_place];
    _lanes := ARRAY(SELECT number FROM unnest(_one.lanes) number
      WHERE CASE WHEN number IN (SELECT unnest(_done)) THEN true END);
    _lanes := _lanes[:_one.lanes_max];
    IF (_one.q).mode = 2 AND (_one.q).take = 1 THEN
      RETURN QUERY SELECT t.* FROM seriatim.hold_one(_one.q, _lanes, _tokens[_place], _one.node, _one.own, _one.ttl,
        _now, _one.routes, _one.best) t;
      CONTINUE;
    END IF;
    _lanes := seriatim.ready_again(_one, _lanes, _now);
    CONTINUE WHEN _lanes = '{}';
    PERFORM seriatim.list_batch(_tokens[_place], _one.node, _one.own, _one.ttl, _now, false, _lanes);
    INSERT INTO seriatim.tally (queue, claimed) VALUES ((_one.q).number, cardinality(_lanes));
    RETURN QUERY SELECT t.* FROM seriatim.hold(_one.q, _lanes, _tokens[_place], _one.node, _one.own, _one.ttl, _now,
      _one.jobs_max, _one.bytes_max) t;
  END LOOP;
END $$;


--
-- Name: head(bigint, smallint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.head(_lane bigint, _mode smallint, _now bigint) RETURNS TABLE(run_at bigint, priority smallint, retry_count integer, crashes integer, error text, route integer, priority_min smallint, next_run_at bigint, score double precision)
    LANGUAGE sql STABLE
    AS $$
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


--
-- Name: heartbeat(bigint, text, text, bigint, bigint[], integer[], bigint[], text[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.heartbeat(_now bigint, _node text, _info text, _lease bigint, _lane bigint[], _queue integer[], _token bigint[], _progress text[], _extend bigint[], OUT o_alive boolean, OUT o_command smallint, OUT o_lost integer[], OUT o_lane bigint[], OUT o_queue integer[], OUT o_token bigint[], OUT o_seq bigint[], OUT o_created_at bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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


--
-- Name: hold(seriatim.queue, bigint[], bigint, text, boolean, bigint, bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.hold(_q seriatim.queue, _lanes bigint[], _token bigint, _node text, _own boolean, _ttl bigint, _now bigint, _jobs_max integer, _bytes_max bigint) RETURNS SETOF seriatim.taken
    LANGUAGE plpgsql
    AS $$
DECLARE
  _all bigint[] := _lanes;
  _packed bigint[];
BEGIN
  SELECT array_agg(l.number) FILTER (WHERE payload IS NOT NULL),
    array_agg(l.number) FILTER (WHERE payload IS NULL)
  INTO _packed, _lanes FROM seriatim.lane l WHERE l.number = ANY (_lanes);
  IF _packed IS NULL AND seriatim.takes_one(_q) THEN
    RETURN QUERY SELECT t.* FROM seriatim.hold_one(_q, _all, _token, _node, _own, _ttl, _now, NULL, NULL) t;
    RETURN;
  END IF;
  IF _packed IS NOT NULL THEN
    PERFORM FROM seriatim.hold_packed(_q, _packed, _token, _node, _own, _ttl, _now);
  END IF;
  IF _lanes IS NOT NULL AND seriatim.takes_one(_q) THEN
    PERFORM FROM seriatim.hold_one(_q, _lanes, _token, _node, _own, _ttl, _now, NULL, NULL);
  ELSIF _lanes IS NOT NULL THEN
    IF _q.mode = 1 THEN
      _lanes := seriatim.hold_whole(_lanes, _token, _node, _own, _ttl, _now, _jobs_max, _bytes_max);
    END IF;
    IF _lanes IS NOT NULL THEN
      PERFORM seriatim.close_jobs(_lanes, _q.mode, _q.take, _now, _jobs_max, _bytes_max);
      PERFORM seriatim.hold_lanes(_lanes, _q.mode, _token, _node, _own, _ttl, _now);
    END IF;
  END IF;
  -- In their order.
  RETURN QUERY SELECT t.* FROM seriatim.turns_of(_all) t;
END $$;


--
-- Name: hold_lanes(bigint[], smallint, bigint, text, boolean, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.hold_lanes(_lanes bigint[], _mode smallint, _token bigint, _node text, _own boolean, _ttl bigint, _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE seriatim.lane l
  SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
    ttl = greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl)),
    until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, h.lease_ttl))),
    claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, taken = NULL,
    next_due = CASE WHEN _mode = 1 AND EXISTS (
        SELECT FROM seriatim.item o WHERE o.lane = l.number AND NOT o.closed OFFSET 0) THEN l.due END,
    due = CASE WHEN _mode = 1 THEN l.due ELSE h.run_at END,
    retry_count = CASE WHEN _mode = 1 THEN l.retry_count ELSE h.retry_count END,
    crashes = CASE WHEN _mode = 1 THEN l.crashes ELSE h.crashes END,
    error = CASE WHEN _mode = 1 THEN l.error ELSE h.error END,
    priority = CASE WHEN _mode = 1 THEN l.priority ELSE h.priority END
  FROM (
    SELECT DISTINCT ON (c.lane) c.*, max(c.lease_ttl) OVER (PARTITION BY c.lane) AS longest
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.item i
      WHERE i.closed AND CASE WHEN i.closed THEN i.lane END = w.number OFFSET 0) c
    ORDER BY c.lane, c.score, c.seq
  ) first
  CROSS JOIN LATERAL (SELECT first.longest AS lease_ttl, first.run_at, first.retry_count,
    first.crashes, first.error, first.priority) h
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = first.lane OFFSET 0) n
  WHERE l.ctid = n.row;
END $$;


--
-- Name: hold_one(seriatim.queue, bigint[], bigint, text, boolean, bigint, bigint, integer[], smallint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.hold_one(_q seriatim.queue, _lanes bigint[], _token bigint, _node text, _own boolean, _ttl bigint, _now bigint, _routes integer[], _best smallint) RETURNS SETOF seriatim.taken
    LANGUAGE plpgsql
    AS $$
DECLARE
  _number int := _q.number;
  _mode smallint := _q.mode;
  _name text := _q.name;
  _lease_max bigint := _q.lease_max;
  _until bigint := seriatim.later(_now, _ttl);
BEGIN
  RETURN QUERY WITH held AS (
    UPDATE seriatim.lane l
    SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
      ttl = CASE WHEN h.lease_ttl > _ttl THEN least(h.lease_ttl, _lease_max) ELSE _ttl END,
      until = CASE WHEN h.lease_ttl > _ttl THEN seriatim.later(_now, least(h.lease_ttl, _lease_max)) ELSE _until END,
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, next_due = NULL,
      progress = CASE WHEN _routes IS NULL THEN l.progress END,
      taken = h.seq, due = h.run_at, retry_count = h.retry_count, crashes = h.crashes, error = h.error,
      priority = h.priority
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.at, n.route, n.held OR n.paused AS stopped FROM seriatim.lane n
      WHERE n.number = w.number OFFSET 0) n
    CROSS JOIN LATERAL seriatim.first_job(w.number, _mode, greatest(_now, n.at)) h
    WHERE l.ctid = n.row AND (_routes IS NULL OR NOT n.stopped AND h.run_at <= _now AND h.crashes = 0
      AND coalesce(h.priority <= _best, true) AND n.route = ANY (_routes))
    RETURNING l.number, l.queue, l.key, h.retry_count, h.crashes, h.error, h.seq, h.created_at, h.task, h.payload,
      h.score, h.priority, h.run_at, h.attempts, h.options
  ), listed AS (
    INSERT INTO seriatim.batch (token, node, own, ttl, until, claimed_at, light, remaining, lanes)
      SELECT _token, _node, _own, _ttl, _until, _now, false, count(*), array_agg(number) FROM held
      HAVING _routes IS NOT NULL AND count(*) > 0
  ), counted AS (
    INSERT INTO seriatim.tally (queue, claimed)
      SELECT _number, count(*) FROM held HAVING _routes IS NOT NULL AND count(*) > 0
  )
  SELECT h.number, h.queue, _name, h.key, _token, h.retry_count, h.crashes, h.error, _now, h.seq, h.created_at, h.task,
    h.payload, h.score, h.priority, h.run_at, h.attempts + 1, h.options
  FROM held h;
END $$;


--
-- Name: hold_packed(seriatim.queue, bigint[], bigint, text, boolean, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.hold_packed(_q seriatim.queue, _lanes bigint[], _token bigint, _node text, _own boolean, _ttl bigint, _now bigint) RETURNS SETOF seriatim.taken
    LANGUAGE plpgsql
    AS $$
DECLARE
  _until bigint := seriatim.later(_now, _ttl);
BEGIN
  RETURN QUERY WITH held AS (
    UPDATE seriatim.lane l
    SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
      ttl = CASE WHEN l.lease_ttl > _ttl THEN least(l.lease_ttl, _q.lease_max) ELSE _ttl END,
      until = CASE WHEN l.lease_ttl > _ttl THEN seriatim.later(_now, least(l.lease_ttl, _q.lease_max)) ELSE _until END,
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL
    WHERE l.number = ANY (_lanes) AND l.payload IS NOT NULL
    RETURNING l.number, l.queue, l.key, l.retry_count, l.crashes, l.error,
    l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, l.options)
    SELECT l.number, l.queue, _q.name, l.key, _token, l.retry_count, l.crashes, l.error, _now,
    l.number, l.created_at, l.task, l.payload, l.score, l.priority, l.packed_run_at, 1, l.options
    FROM held l ORDER BY l.priority, l.packed_run_at, l.number;
END $$;


--
-- Name: hold_whole(bigint[], bigint, text, boolean, bigint, bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.hold_whole(_lanes bigint[], _token bigint, _node text, _own boolean, _ttl bigint, _now bigint, _jobs_max integer, _bytes_max bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
  _parts bigint[];
BEGIN
  WITH looked AS MATERIALIZED (
    SELECT w.number, o.last, o.ttl,
      o.jobs <= _jobs_max AND o.bytes <= _bytes_max AND o.tasks IN (0, o.jobs)
        AND o.least_task IS NOT DISTINCT FROM o.most_task AS whole
    FROM unnest(_lanes) w (number)
    CROSS JOIN LATERAL (
      SELECT count(*) AS jobs, coalesce(sum(octet_length(i.payload)), 0) AS bytes, max(i.seq) AS last,
        max(i.lease_ttl) AS ttl, count(i.task) AS tasks, min(i.task COLLATE "C") AS least_task,
        max(i.task COLLATE "C") AS most_task
      FROM (SELECT * FROM seriatim.item WHERE lane = w.number ORDER BY score, seq
        LIMIT _jobs_max + 1) i) o
  ), held AS (
    UPDATE seriatim.lane l
    SET token = _token, batch = _token, claimed = true, holder = _node, own_lease = _own,
      ttl = greatest(_ttl, seriatim.capped(l.queue, k.ttl)), until = seriatim.later(_now, greatest(_ttl, seriatim.capped(l.queue, k.ttl))),
      claimed_at = _now, beat_at = _now, class = NULL, at = NULL, wake = NULL, next_due = NULL,
      taken = k.last
    FROM looked k
    CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = k.number OFFSET 0) n
    WHERE l.ctid = n.row AND k.whole
  )
  SELECT array_agg(number) INTO _parts FROM looked WHERE NOT whole;
  RETURN _parts;
END $$;


--
-- Name: inbox_waits(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.inbox_waits() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  RETURN (SELECT i.id FROM seriatim.inbox i WHERE i.refused IS NULL ORDER BY i.id + 0 LIMIT 1) IS NOT NULL;
END $$;


--
-- Name: job_id(bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.job_id(_created_at bigint, _queue integer, _seq bigint) RETURNS uuid
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT (lpad(to_hex(greatest(_created_at, 0) / 1000), 12, '0') || '7000'
    || lpad(to_hex(32768 + _queue), 4, '0') || lpad(to_hex(_seq), 12, '0'))::uuid
$$;


--
-- Name: keep_jobs(seriatim.fated[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.keep_jobs(_fates seriatim.fated[], _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: lanes_by_age(integer, bigint, bigint[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lanes_by_age(_queue integer, _last bigint, _but bigint[], _rows_max bigint) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE number > 0
    AND (queue, number) > (_queue, _last) AND (queue, number) <= (_queue, seriatim.last_number())
    AND CASE WHEN number IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, number LIMIT _rows_max);
END $$;


--
-- Name: lanes_by_due(integer, bigint, bigint, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lanes_by_due(_queue integer, _from bigint, _last bigint, _to bigint, _rows_max bigint) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
  _ready bigint[];
  _reached bigint;
BEGIN
  WITH RECURSIVE groups AS (
    (SELECT class, priority FROM seriatim.ready WHERE queue = _queue ORDER BY class, priority LIMIT 1)
    UNION ALL
    SELECT n.class, n.priority FROM groups g CROSS JOIN LATERAL (
      SELECT class, priority FROM seriatim.ready
      WHERE queue = _queue AND (class, priority) > (g.class, g.priority)
      ORDER BY class, priority LIMIT 1) n
  ), first AS (
    SELECT x.at, x.number FROM groups g CROSS JOIN LATERAL (
      SELECT r.at, r.number FROM seriatim.ready r
      WHERE r.queue = _queue AND r.class = g.class AND r.priority = g.priority
        AND (r.at, r.number) > (_from, _last) AND r.at <= _to
      ORDER BY r.at, r.number LIMIT _rows_max) x
    ORDER BY x.at, x.number LIMIT _rows_max
  )
  SELECT coalesce(array_agg(number), '{}'), max(at) INTO _ready, _reached FROM first;
  IF cardinality(_ready) = _rows_max THEN
    _to := _reached;
  END IF;
  RETURN _ready || ARRAY(SELECT number FROM seriatim.lane WHERE wake IS NOT NULL AND class IS NULL
    AND (queue, wake, number) > (_queue, _from, _last) AND (queue, wake, number) <= (_queue, _to, seriatim.last_number())
    ORDER BY queue, wake, number LIMIT _rows_max);
END $$;


--
-- Name: lanes_by_key(integer, text, bigint, text, bigint[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lanes_by_key(_queue integer, _place text, _last bigint, _end text, _but bigint[], _rows_max bigint) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  IF (SELECT mode = 0 FROM seriatim.queue WHERE number = _queue) THEN
    RETURN seriatim.lanes_by_age(_queue, CASE WHEN _place = '' THEN _last ELSE 0 END, _but, _rows_max);
  END IF;
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE key IS NOT NULL
    AND (queue, key) >= (_queue, _place) AND queue <= _queue AND (key > _place OR number > _last)
    AND (_end IS NULL OR key <= _end)
    AND CASE WHEN number IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, key LIMIT _rows_max);
END $$;


--
-- Name: lanes_by_retries(integer, integer, bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lanes_by_retries(_queue integer, _from integer, _last bigint, _to integer, _rows_max bigint) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE retry_count >= 0
    AND (CASE WHEN retry_count >= 0 THEN queue END, -retry_count, number) > (_queue, _from, _last)
    AND (CASE WHEN retry_count >= 0 THEN queue END, -retry_count, number) <= (_queue, _to, seriatim.last_number())
    ORDER BY CASE WHEN retry_count >= 0 THEN queue END, -retry_count, number LIMIT _rows_max);
END $$;


--
-- Name: lanes_going_on(jsonb, bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lanes_going_on(_claims jsonb, _lane bigint[]) RETURNS seriatim.going_on[]
    LANGUAGE plpgsql
    AS $$
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
    CONTINUE WHEN NOT FOUND OR _q.paused
      OR (_c->>'declared')::boolean AND NOT _q.declared OR (_c->>'ttl')::bigint > _q.lease_max
      OR seriatim.refused_as(_c->>'node', (_c->>'ticket')::bigint) IS NOT NULL;
    _one.q := _q;
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


--
-- Name: last_number(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.last_number() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT 9223372036854775807 $$;


--
-- Name: later(bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.later(_at bigint, _length bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT least(_at + _length, 9007199254740991)
$$;


--
-- Name: lead(bigint, text, text, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lead(_now bigint, _role text, _node text, _ttl bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
BEGIN
  INSERT INTO seriatim.leader AS l (role, node, until) VALUES (_role, _node, seriatim.later(_t, _ttl))
  ON CONFLICT (role) DO UPDATE SET node = excluded.node, until = excluded.until
    WHERE l.node = excluded.node OR l.until <= _t;
  RETURN FOUND;
END $$;


--
-- Name: leave_batches(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.leave_batches(_tokens bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  WITH ended AS MATERIALIZED (
    SELECT b.*, c.lanes
    FROM (SELECT token, count(*) AS lanes FROM unnest(_tokens) token GROUP BY token ORDER BY token) c
    CROSS JOIN LATERAL (SELECT n.ctid AS row, n.remaining FROM seriatim.batch n WHERE n.token = c.token
      FOR UPDATE SKIP LOCKED) b
  ), counted AS (
    UPDATE seriatim.batch b SET remaining = b.remaining - e.lanes FROM ended e
    WHERE b.ctid = e.row AND e.remaining > e.lanes
  )
  DELETE FROM seriatim.batch b USING ended e WHERE b.ctid = e.row AND e.remaining <= e.lanes;
END $$;


--
-- Name: light_turns(bigint[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.light_turns(_lane bigint[], _token bigint[], OUT o_lanes bigint[], OUT o_tokens bigint[]) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  SELECT array_agg(u.number), array_agg(b.token) INTO o_lanes, o_tokens
  FROM seriatim.batch b CROSS JOIN LATERAL unnest(b.lanes) u (number)
  WHERE b.token = ANY (ARRAY(SELECT DISTINCT unnest(_token))) AND b.light
    AND CASE WHEN (u.number, b.token) IN (SELECT * FROM unnest(_lane, _token)) THEN true END;
END $$;


--
-- Name: list_batch(bigint, text, boolean, bigint, bigint, boolean, bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.list_batch(_token bigint, _node text, _own boolean, _ttl bigint, _now bigint, _light boolean, _lanes bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  INSERT INTO seriatim.batch (token, node, own, ttl, until, claimed_at, light, remaining, lanes)
    VALUES (_token, _node, _own, _ttl, seriatim.later(_now, _ttl), _now, _light, cardinality(_lanes), _lanes);
END $$;


--
-- Name: list_inbox(bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.list_inbox(_rows_max bigint, OUT o_since bigint, OUT o_refused text[]) RETURNS record
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  SELECT seriatim.micros_of(i.inserted_at) INTO o_since
  FROM seriatim.inbox i WHERE i.refused IS NULL ORDER BY i.id + 0 LIMIT 1;
  o_refused := ARRAY(
    SELECT json_build_object('row', i.id, 'queue', left(i.queue, 1024), 'key', left(i.key, 1024), 'why', i.refused,
      'at', coalesce(seriatim.micros_of(i.refused_at), 0))::text
    FROM seriatim.inbox i WHERE i.refused IS NOT NULL ORDER BY -i.id LIMIT _rows_max);
END $$;


--
-- Name: list_jobs(integer, integer, smallint[], text, text, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.list_jobs(_queue integer, _order integer, _states smallint[], _key text, _place text, _last bigint, _rows_max bigint) RETURNS SETOF seriatim.job_view
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _jobs bigint[];
BEGIN
  _last := coalesce(_last, 0);
  IF _states[1] > 1 THEN
    _jobs := seriatim.ended_jobs(_queue, _states[1], _order, _key, _place, _last, _rows_max);
  ELSIF _key IS NOT NULL THEN
    _jobs := ARRAY(SELECT o.seq FROM (SELECT * FROM seriatim.lane WHERE queue = _queue AND key = _key OFFSET 0) l
      CROSS JOIN LATERAL (
        SELECT l.number AS seq WHERE l.payload IS NOT NULL
        UNION ALL
        SELECT i.seq FROM seriatim.item i WHERE i.lane = l.number) o);
  ELSIF _order = 1 THEN
    _jobs := seriatim.live_jobs(_queue, false, 0, NULL);
  ELSE
    _jobs := seriatim.live_jobs(_queue, NOT 1 = ANY (_states), _last, _rows_max);
  END IF;
  RETURN QUERY SELECT j.* FROM unnest(_jobs) w (seq)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = w.seq OFFSET 0) j;
END $$;


--
-- Name: list_lanes(integer, integer, integer, text, text, text, bigint, text, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.list_lanes(_queue integer, _order integer, _source integer, _key text, _node text, _last_place text, _last bigint, _end text, _rows_max bigint) RETURNS SETOF seriatim.lane_now
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _lanes bigint[];
  _but bigint[] := '{}';
BEGIN
  _last := coalesce(_last, 0);
  IF _source = 0 THEN
    _lanes := ARRAY(SELECT number FROM seriatim.lane WHERE queue = _queue AND key = _key);
  ELSIF _source = 5 THEN
    _lanes := ARRAY[_key::bigint];
  ELSIF _source = 1 THEN
    _lanes := seriatim.claimed_lanes(_queue, _node);
  ELSIF _source = 2 THEN
    _lanes := seriatim.stopped_lanes(_queue);
  ELSE
    IF _source = 4 THEN
      _but := seriatim.claimed_lanes(_queue, NULL) || seriatim.stopped_lanes(_queue);
    END IF;
    IF _order = 0 THEN
      _lanes := seriatim.lanes_by_age(_queue, _last, _but, _rows_max);
    ELSIF _order = 1 THEN
      _lanes := seriatim.lanes_by_key(_queue, coalesce(_last_place, ''), _last, _end, _but, _rows_max);
    ELSIF _order = 3 THEN
      -- Few are claimed or stopped.
      _lanes := seriatim.lanes_by_retries(_queue, coalesce(_last_place::int, -2147483648), _last, coalesce(_end::int, 0),
        _rows_max + cardinality(_but));
    ELSE
      _lanes := seriatim.lanes_by_due(_queue, coalesce(_last_place::bigint, -9223372036854775808), _last,
        coalesce(_end::bigint, seriatim.last_number()), _rows_max);
      IF _source = 3 THEN
        _lanes := _lanes || seriatim.claimed_lanes(_queue, NULL) || seriatim.stopped_lanes(_queue);
      END IF;
    END IF;
  END IF;
  RETURN QUERY SELECT l.* FROM (SELECT DISTINCT unnest(_lanes) AS number) w
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane_now x WHERE x.number = w.number OFFSET 0) l;
END $$;


--
-- Name: live_jobs(integer, boolean, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.live_jobs(_queue integer, _waiting boolean, _last bigint, _rows_max bigint) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
  _mode smallint := (SELECT mode FROM seriatim.queue WHERE number = _queue);
  _but bigint[] := '{}';
  _jobs bigint[];
  _to bigint := seriatim.last_number();
BEGIN
  IF _waiting THEN
    _but := ARRAY(SELECT o.seq FROM unnest(seriatim.claimed_lanes(_queue, NULL)) w (number)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
      CROSS JOIN LATERAL (
        SELECT l.number AS seq WHERE l.payload IS NOT NULL
        UNION ALL
        SELECT i.seq FROM seriatim.owned(l.number, _mode, l.taken) i) o);
  END IF;
  _jobs := ARRAY(SELECT seq FROM seriatim.item WHERE queue IS NOT NULL
    AND (queue, seq) > (_queue, _last) AND (queue, seq) <= (_queue, _to)
    AND CASE WHEN seq IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, seq LIMIT _rows_max);
  IF cardinality(_jobs) = _rows_max THEN
    _to := _jobs[_rows_max::int];
  END IF;
  RETURN _jobs || ARRAY(SELECT number FROM seriatim.lane WHERE number > 0 AND payload IS NOT NULL
    AND (queue, number) > (_queue, _last) AND (queue, number) <= (_queue, _to)
    AND CASE WHEN number IN (SELECT unnest(_but)) THEN false ELSE true END
    ORDER BY queue, number LIMIT _rows_max);
END $$;


--
-- Name: lock_in_line(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lock_in_line(_lanes bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: lock_jobs(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lock_jobs(_jobs bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _lanes bigint[];
  _held bigint[] := '{}';
BEGIN
  LOOP
    _lanes := ARRAY(SELECT lane FROM seriatim.item WHERE seq = ANY (_jobs)
      UNION SELECT number FROM seriatim.lane WHERE number = ANY (_jobs) AND payload IS NOT NULL);
    EXIT WHEN _lanes <@ _held;
    PERFORM seriatim.lock_rows(_lanes);
    PERFORM seriatim.unpack(_lanes);
    _held := _held || _lanes;
  END LOOP;
END $$;


--
-- Name: lock_lanes(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lock_lanes(_lanes bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM seriatim.lock_rows(_lanes);
  PERFORM seriatim.unfold(_lanes);
END $$;


--
-- Name: lock_light(integer, integer[], integer, integer, boolean); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lock_light(_queue integer, _routes integer[], _lanes_max integer, _crashed_max integer, _own boolean, OUT o_lanes bigint[], OUT o_spots tid[], OUT o_light boolean, OUT o_priority smallint, OUT o_at bigint, OUT o_number bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
  WITH best AS (
    SELECT w.crashed, x.*
    FROM (SELECT r * 2 AS class, 0 AS crashed, _lanes_max AS most FROM unnest(_routes) r
      UNION ALL SELECT r * 2 + 1, 1, least(_crashed_max, _lanes_max) FROM unnest(_routes) r) w
    CROSS JOIN LATERAL (
      SELECT r.number, r.priority, r.at, r.ctid AS spot, r.light FROM seriatim.ready r
      WHERE r.queue = _queue AND r.class = w.class
      ORDER BY r.priority, r.at, r.number LIMIT w.most FOR UPDATE SKIP LOCKED) x
  ), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY crashed ORDER BY priority, at, number) AS rank FROM best
  ), chosen AS (
    SELECT * FROM ranked WHERE crashed = 0 OR rank <= _crashed_max
    ORDER BY priority, at, number LIMIT _lanes_max
  )
  -- The chosen ones are in order.
  SELECT array_agg(number), array_agg(spot), bool_and(light) AND NOT _own, max(priority),
    (array_agg(at))[count(*)], (array_agg(number))[count(*)]
  INTO o_lanes, o_spots, o_light, o_priority, o_at, o_number FROM chosen;
  IF o_light THEN
    RETURN;
  END IF;
  SELECT f.o_lanes, f.o_spots INTO o_lanes, o_spots FROM seriatim.lock_rest(o_lanes, o_spots) f;
END $$;


--
-- Name: lock_ready(integer, integer[], integer, integer, boolean); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lock_ready(_queue integer, _routes integer[], _lanes_max integer, _crashed_max integer, _own boolean, OUT o_lanes bigint[], OUT o_spots tid[], OUT o_light boolean, OUT o_packed boolean, OUT o_priority smallint, OUT o_at bigint, OUT o_number bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  _some_light boolean;
BEGIN
  WITH best AS (
    SELECT w.crashed, x.*
    FROM (SELECT r * 2 AS class, 0 AS crashed, _lanes_max AS most FROM unnest(_routes) r
      UNION ALL SELECT r * 2 + 1, 1, least(_crashed_max, _lanes_max) FROM unnest(_routes) r) w
    CROSS JOIN LATERAL (
      SELECT r.number, r.priority, r.at, r.spot, r.light, l.packed
      FROM (SELECT x.*, x.ctid AS spot FROM seriatim.ready x WHERE x.queue = _queue AND x.class = w.class
        ORDER BY x.priority, x.at, x.number OFFSET 0) r
      CROSS JOIN LATERAL (
        SELECT * FROM (SELECT true AS packed FROM seriatim.ready y
          WHERE r.light AND y.ctid = r.spot AND y.light FOR UPDATE SKIP LOCKED) y
        UNION ALL
        SELECT * FROM (SELECT n.payload IS NOT NULL FROM seriatim.lane n
          WHERE NOT r.light AND n.number = r.number AND n.class = r.class AND n.priority = r.priority AND n.at = r.at
          FOR UPDATE SKIP LOCKED) n) l
      LIMIT w.most) x
  ), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY crashed ORDER BY priority, at, number) AS rank FROM best
  ), chosen AS (
    SELECT * FROM ranked WHERE crashed = 0 OR rank <= _crashed_max
    ORDER BY priority, at, number LIMIT _lanes_max
  )
  -- The chosen ones are in order.
  SELECT array_agg(number), array_agg(spot), bool_and(light) AND NOT _own, bool_or(light), bool_and(packed),
    max(priority), (array_agg(at))[count(*)], (array_agg(number))[count(*)]
  INTO o_lanes, o_spots, o_light, _some_light, o_packed, o_priority, o_at, o_number FROM chosen;
  IF _some_light AND NOT o_light THEN
    SELECT f.o_lanes, f.o_spots INTO o_lanes, o_spots FROM seriatim.lock_rest(o_lanes, o_spots) f;
  END IF;
END $$;


--
-- Name: lock_rest(bigint[], tid[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lock_rest(_lanes bigint[], _spots tid[], OUT o_lanes bigint[], OUT o_spots tid[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  _locked bigint[] := ARRAY(SELECT number FROM seriatim.lane WHERE number = ANY (_lanes) FOR UPDATE SKIP LOCKED);
BEGIN
  SELECT array_agg(number ORDER BY place), array_agg(spot ORDER BY place) INTO o_lanes, o_spots
  FROM unnest(_lanes, _spots) WITH ORDINALITY w (number, spot, place)
  WHERE CASE WHEN number IN (SELECT unnest(_locked)) THEN true END;
END $$;


--
-- Name: lock_rows(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.lock_rows(_lanes bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM FROM seriatim.lane WHERE number = ANY (_lanes)
    ORDER BY CASE WHEN key IS NOT NULL THEN queue END, key, number FOR UPDATE;
END $$;


--
-- Name: may_change(seriatim.queue, jsonb, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.may_change(_old seriatim.queue, _p jsonb, _place bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _convertible boolean := NOT _old.declared AND _old.mode <> 0 AND (_p->>'mode')::smallint <> 0;
  _runs boolean;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('seriatim.'), _old.number);
  PERFORM seriatim.lock_rows(ARRAY(SELECT number FROM seriatim.lane WHERE queue = _old.number AND number > 0));
  PERFORM seriatim.unpack(ARRAY(SELECT number FROM seriatim.lane WHERE queue = _old.number AND number > 0));
  SELECT bool_or(claimed) INTO _runs FROM seriatim.lane WHERE queue = _old.number AND number > 0;
  -- NULL: it is empty.
  IF _runs OR NOT _runs AND NOT _convertible THEN
    RAISE EXCEPTION 'the queue is not empty' USING ERRCODE = 'SR002',
      DETAIL = format('%s %s %s %s %s', _place - 1, _old.mode, _old.merge, _old.declared::int, _runs::int);
  END IF;
END $$;


--
-- Name: micros_of(timestamp with time zone); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.micros_of(_time timestamp with time zone) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
  -- Cut to 30,000 years, which is refused, as infinity is.
  SELECT round(least(greatest(extract(epoch FROM _time), -1e12), 1e12) * 1e6)::bigint
$$;


--
-- Name: move_ready(seriatim.move[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.move_ready(_moves seriatim.move[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: next_due(integer, integer[], bigint, smallint, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.next_due(_queue integer, _routes integer[], _now bigint, _priority smallint, _at bigint, _number bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF EXISTS (
    SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (r * 2), (r * 2 + 1)) c (class)
    CROSS JOIN LATERAL (
      SELECT FROM seriatim.ready l
      WHERE l.queue = _queue AND l.class = c.class AND (l.priority, l.at, l.number) > (_priority, _at, _number)
      ORDER BY priority, at, number LIMIT 1) x) THEN
    RETURN _now;
  END IF;
  RETURN (
    SELECT CASE WHEN EXISTS (
        SELECT FROM unnest(_routes) r CROSS JOIN LATERAL (VALUES (r * 2), (r * 2 + 1)) c (class)
        CROSS JOIN LATERAL (
          SELECT FROM seriatim.ready l WHERE l.queue = _queue AND l.class = c.class
          ORDER BY priority, at, number LIMIT 1) x) THEN _now
      ELSE (SELECT min(wake) FROM seriatim.lane WHERE queue = _queue AND wake IS NOT NULL) END);
END $$;


--
-- Name: next_jobs(bigint, boolean, smallint, integer, bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.next_jobs(_lane bigint, _in_order boolean, _mode smallint, _take integer, _now bigint, _jobs_max integer, _bytes_max bigint) RETURNS TABLE(item tid, bytes bigint)
    LANGUAGE sql STABLE
    AS $$
  SELECT j.row, j.own FROM (
    SELECT o.row, o.bytes AS own, row_number() OVER (ORDER BY o.score, o.seq) AS rank,
      bool_and(o.fits) OVER (ORDER BY o.score, o.seq) AS fit,
      sum(o.bytes) OVER (ORDER BY o.score, o.seq) AS bytes
    FROM (
      SELECT c.ctid AS row, c.seq, c.score, octet_length(c.payload)::bigint AS bytes,
        c.task IS NOT DISTINCT FROM first_value(c.task) OVER (ORDER BY c.score, c.seq)
          AND (_mode = 1 OR row_number() OVER (ORDER BY c.score, c.seq) = 1
            OR c.run_at <= _now AND c.retry_count < 0 AND c.crashes = 0) AS fits
      FROM seriatim.item c
      WHERE c.lane = _lane AND NOT c.closed
      ORDER BY c.score, c.seq
      LIMIT CASE WHEN _mode = 1 THEN _jobs_max WHEN _in_order THEN _take ELSE 1 END) o
  ) j
  WHERE j.rank = 1 OR j.fit AND j.bytes <= _bytes_max
$$;


--
-- Name: open_lanes(integer[], text[], integer[], text[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.open_lanes(_queue integer[], _key text[], _route integer[], _name text[], _now bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
BEGIN
  WITH fresh AS MATERIALIZED (
    -- Numbered by first appearance, ignoring duplicates: among equals, lanes are claimed by age.
    SELECT f.*, nextval('seriatim.seq') AS number FROM (
      SELECT queue, key, (array_agg(route ORDER BY place))[1] AS route
      FROM unnest(_queue, _key, _route, _name) WITH ORDINALITY w (queue, key, route, name, place)
      WHERE key IS NOT NULL GROUP BY queue, key
      ORDER BY coalesce(min(place) FILTER (WHERE name IS NULL OR (
        SELECT r.o_seq FROM seriatim.remembered(queue, key, name, _now) r) IS NULL), min(place))) f
  )
  , opened AS (
    INSERT INTO seriatim.lane AS l (number, queue, key, due, route)
      SELECT number, queue, key, -1, route FROM fresh ORDER BY queue, key COLLATE "C"
    ON CONFLICT (queue, key) WHERE key IS NOT NULL DO UPDATE SET token = l.token
    RETURNING l.queue, l.number)
  INSERT INTO seriatim.tally (queue, lanes)
    SELECT queue, count(*) FROM opened WHERE CASE WHEN number IN (SELECT number FROM fresh) THEN true END GROUP BY queue;
  RETURN ARRAY(
    SELECT l.number FROM unnest(_queue, _key) WITH ORDINALITY w (queue, key, place)
    LEFT JOIN LATERAL (SELECT n.number FROM seriatim.lane n WHERE n.queue = w.queue AND n.key = w.key OFFSET 0) l ON true
    ORDER BY w.place);
END $$;


--
-- Name: owned(bigint, smallint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.owned(_lane bigint, _mode smallint, _taken bigint) RETURNS SETOF seriatim.item
    LANGUAGE sql STABLE
    AS $$
  SELECT * FROM seriatim.item WHERE closed AND CASE WHEN closed THEN lane END = _lane
  UNION ALL
  SELECT * FROM seriatim.item WHERE seq = CASE WHEN _mode <> 1 THEN _taken END AND NOT closed
  UNION ALL
  SELECT * FROM seriatim.item
  WHERE lane = CASE WHEN _mode = 1 AND _taken IS NOT NULL THEN _lane END AND seq + 0 <= _taken AND NOT closed
$$;


--
-- Name: place(bigint[], bigint, boolean); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.place(_lanes bigint[], _now bigint, _done boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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
    RETURNING l.queue, l.number, l.class, l.priority, l.at
  ), counted AS (
    INSERT INTO seriatim.tally (queue, lanes) SELECT queue, -count(*) FROM gone GROUP BY queue
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
    claimed = false, batch = NULL, holder = NULL, own_lease = NULL, ttl = NULL, until = NULL, claimed_at = NULL,
    beat_at = NULL, next_due = CASE WHEN _done THEN NULL ELSE l.next_due END, taken = NULL,
    progress = CASE WHEN _done THEN NULL ELSE l.progress END
  FROM (
    SELECT n.row, n.class AS was_class, n.priority AS was_priority, n.at AS was_at, n.held OR n.paused AS stopped,
      h.next_run_at, h.score,
      CASE WHEN q.mode <> 1 THEN h.run_at WHEN _done THEN coalesce(n.next_due, n.due) ELSE n.due
        END AS due,
      CASE WHEN q.mode = 1 THEN h.priority_min ELSE h.priority END AS priority,
      s.retry_count, s.crashes, s.error,
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
  RETURNING l.queue, l.number, p.was_class, p.was_priority, p.was_at, l.class, l.priority, l.at
  )
  SELECT array_agg(m.moved), EXISTS (SELECT FROM due) OR EXISTS (SELECT FROM placed) INTO _moves, _wait FROM (
    SELECT ROW(queue, number, class, priority, at, NULL, NULL, NULL)::seriatim.move AS moved
    FROM gone WHERE class IS NOT NULL
    UNION ALL
    SELECT ROW(queue, number, NULL, NULL, NULL, class, priority, at)::seriatim.move FROM due
    UNION ALL
    SELECT ROW(p.*)::seriatim.move FROM placed p
    WHERE (was_class, was_priority, was_at) IS DISTINCT FROM (class, priority, at)
      AND (was_class IS NOT NULL OR class IS NOT NULL)) m;
  IF _moves IS NOT NULL THEN
    PERFORM seriatim.move_ready(_moves);
  END IF;
  RETURN _wait;
END $$;


--
-- Name: priority_of(bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.priority_of(_lane bigint) RETURNS smallint
    LANGUAGE plpgsql STABLE
    AS $$
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


--
-- Name: promote(integer, bigint, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.promote(_queue integer, _now bigint, _lanes_max integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _lanes bigint[];
BEGIN
  SELECT array_agg(number) INTO _lanes FROM (
    SELECT number FROM seriatim.lane WHERE queue = _queue AND wake <= _now
    ORDER BY wake LIMIT _lanes_max FOR UPDATE SKIP LOCKED) l;
  IF _lanes IS NOT NULL THEN
    PERFORM seriatim.place(_lanes, _now);
  END IF;
END $$;


--
-- Name: push(bigint, text, integer[], text[], text[], bytea[], double precision[], smallint[], bigint[], bigint[], text[], bigint[], bigint[], text[], text[], text[], bytea[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.push(_now bigint, _queues text, _queue integer[], _key text[], _task text[], _digest bytea[], _score double precision[], _priority smallint[], _at bigint[], _delay bigint[], _options text[], _lease_ttl bigint[], _expires_at bigint[], _name text[], _node text[], _group text[], _payload bytea[]) RETURNS TABLE(o_status smallint, o_queue integer, o_created_at bigint, o_seq bigint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _known int[] := seriatim.queues_for(_queues::jsonb);
  _numbers int[];
  _routes int[];
  _run_at bigint[];
  _seqs bigint[];
  _stored bigint[];
  _keyed boolean := EXISTS (SELECT FROM unnest(_key) k WHERE k IS NOT NULL);
BEGIN
  PERFORM seriatim.check_isolation();
  _numbers := ARRAY(SELECT _known[p] FROM unnest(_queue) WITH ORDINALITY w (p, o) ORDER BY o);
  PERFORM seriatim.check_jobs(_numbers, _key, _lease_ttl);
  _routes := seriatim.routes_for(_node, _group);
  _run_at := ARRAY(SELECT coalesce(w.at, seriatim.later(_t, w.delay))
    FROM unnest(_at, _delay) WITH ORDINALITY w (at, delay, o) ORDER BY o);
  IF EXISTS (SELECT FROM unnest(_name, _expires_at) n (name, expires_at)
      WHERE n.name IS NOT NULL OR n.expires_at IS NOT NULL) THEN
    RETURN QUERY SELECT * FROM seriatim.push_named(_t, _numbers, _key, _task, _digest, _score, _priority,
      _run_at, _options, _lease_ttl, _expires_at, _name, _routes, _payload);
    RETURN;
  END IF;
  _seqs := ARRAY(SELECT nextval('seriatim.seq') FROM generate_subscripts(_queue, 1));
  _stored := seriatim.push_packed(_numbers, _key, _task, _digest, _score, _priority, _run_at, _options,
    _lease_ttl, _routes, _payload, _seqs, _keyed, _t);
  IF cardinality(_stored) = cardinality(_seqs) THEN
    RETURN QUERY SELECT 0::smallint, w.queue, _t, w.seq FROM unnest(_numbers, _seqs) w (queue, seq);
    RETURN;
  END IF;
  RETURN QUERY SELECT * FROM seriatim.push_rest(_t, _numbers, _key, _task, _digest, _score, _priority,
    _run_at, _options, _lease_ttl, _routes, _payload, _seqs);
END $$;


--
-- Name: push_again(integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.push_again(_queue integer, _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _q seriatim.queue;
  _lanes bigint[] := ARRAY(SELECT number FROM seriatim.lane WHERE queue = _queue AND number > 0);
BEGIN
  SELECT * INTO _q FROM seriatim.queue WHERE number = _queue;
  UPDATE seriatim.lane l
  SET held = false, paused = false, retry_count = -1, crashes = 0, error = NULL, next_due = NULL,
    route = greatest(l.route, f.route),
    due = CASE WHEN _q.earliest THEN f.earliest ELSE f.run_at END
  FROM (
    SELECT DISTINCT ON (lane) lane, route, run_at, min(run_at) OVER (PARTITION BY lane) AS earliest
    FROM seriatim.item WHERE queue = _queue ORDER BY lane, created_at, seq
  ) f
  WHERE f.lane = l.number;
  UPDATE seriatim.item SET loose = _q.mode = 3 WHERE queue = _queue;
  IF _q.mode = 1 AND _q.merge <> 2 THEN
    PERFORM seriatim.unite(g.first, i.seq, _q.merge)
    FROM (SELECT lane, digest, min(seq) AS first FROM seriatim.item WHERE queue = _queue
      GROUP BY lane, digest HAVING count(*) > 1) g
    JOIN seriatim.item i ON i.lane = g.lane AND i.digest = g.digest AND i.seq <> g.first;
    UPDATE seriatim.item SET merging = true WHERE queue = _queue;
  END IF;
  PERFORM seriatim.place(_lanes, _now);
END $$;


--
-- Name: push_items(integer[], bigint[], text[], bytea[], double precision[], smallint[], bigint[], text[], bigint[], integer[], bytea[], bigint[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.push_items(_queue integer[], _lanes bigint[], _task text[], _digest bytea[], _score double precision[], _priority smallint[], _run_at bigint[], _options text[], _lease_ttl bigint[], _routes integer[], _payload bytea[], _seqs bigint[], _now bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
  _whole boolean;
BEGIN
  WITH job AS MATERIALIZED (
    SELECT u.*, q.mode, q.merge, q.mode = 1 AND q.merge <> 2 AS merging,
      coalesce(u.own_score, CASE WHEN q.mode = 2 THEN 0 ELSE _now / 1e6::float8 END) AS score
    FROM unnest(_queue, _lanes, _task, _digest, _score, _priority, _run_at, _options, _lease_ttl, _routes,
      _payload, _seqs) u (queue, lane, task, digest, own_score, priority, run_at, options, lease_ttl, route,
      payload, seq)
    JOIN seriatim.queue q ON q.number = u.queue
    WHERE u.lane IS NOT NULL
  ), plain AS (
    INSERT INTO seriatim.item (seq, queue, lane, merging, loose, digest, task, score, priority, run_at,
        created_at, options, lease_ttl, route, payload)
      SELECT seq, queue, lane, false, mode = 3, digest, task, score, priority, run_at, _now, options,
        lease_ttl, route, payload
      FROM job WHERE NOT merging ORDER BY seq
    RETURNING queue
  ), merged AS (
  -- Equal jobs of the batch merge first: a statement can merge into a row only once.
  INSERT INTO seriatim.item AS i (seq, queue, lane, merging, loose, digest, task, score, priority, run_at,
      created_at, options, lease_ttl, route, payload)
    SELECT seq, queue, lane, true, false, digest, task, best, soonest, run_at, _now, options, lease_ttl,
      route, payload
    FROM (
      SELECT DISTINCT ON (lane, digest) *,
        CASE merge WHEN 0 THEN min(score) OVER same ELSE max(score) OVER same END AS best,
        min(priority) OVER same AS soonest
      FROM job WHERE merging
      WINDOW same AS (PARTITION BY lane, digest)
      ORDER BY lane, digest, seq) d
    ORDER BY seq
  ON CONFLICT (lane, digest) WHERE merging AND NOT closed DO UPDATE
    SET score = CASE WHEN (SELECT q.merge FROM seriatim.queue q WHERE q.number = excluded.queue) = 0
        THEN least(i.score, excluded.score) ELSE greatest(i.score, excluded.score) END,
      priority = least(i.priority, excluded.priority)
  RETURNING i.queue, i.seq
  ), counted AS (
    INSERT INTO seriatim.tally (queue, jobs)
      SELECT queue, count(*) FROM (
        SELECT queue FROM plain
        UNION ALL
        SELECT queue FROM merged WHERE CASE WHEN seq IN (SELECT seq FROM job) THEN true END) x
      GROUP BY queue
    RETURNING jobs
  )
  SELECT sum(jobs) = (SELECT count(*) FROM job) INTO _whole FROM counted;
  RETURN coalesce(_whole, false);
END $$;


--
-- Name: push_named(bigint, integer[], text[], text[], bytea[], double precision[], smallint[], bigint[], text[], bigint[], bigint[], text[], integer[], bytea[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.push_named(_t bigint, _numbers integer[], _key text[], _task text[], _digest bytea[], _score double precision[], _priority smallint[], _run_at bigint[], _options text[], _lease_ttl bigint[], _expires_at bigint[], _name text[], _routes integer[], _payload bytea[]) RETURNS TABLE(o_status smallint, o_queue integer, o_created_at bigint, o_seq bigint)
    LANGUAGE plpgsql
    AS $$
DECLARE
  _lanes bigint[];
  _seqs bigint[];
  _states smallint[] := '{}';
  _job record;
BEGIN
  _lanes := seriatim.open_lanes(_numbers, _key, _routes, _name, _t);
  PERFORM seriatim.unpack(_lanes);
  PERFORM seriatim.check_routes(_lanes, _routes, _name);
  PERFORM seriatim.take_names(_numbers, _key, _name);
  _seqs := ARRAY(SELECT nextval('seriatim.seq') FROM generate_subscripts(_numbers, 1));
  -- Without a key, the lane belongs to the job and has its number.
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
  INSERT INTO seriatim.tally (queue, lanes, jobs)
    SELECT queue, count(*) FILTER (WHERE key IS NULL), count(*)
    FROM unnest(_numbers, _key, _states) w (queue, key, state) WHERE state = 0 GROUP BY queue;
  PERFORM seriatim.arrive(_lanes, _run_at, _priority, _states);
  PERFORM seriatim.place(ARRAY(SELECT DISTINCT unnest(_lanes)), _t);
END $$;


--
-- Name: push_one(record, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.push_one(_job record, _now bigint, OUT o_status smallint, OUT o_seq bigint, OUT o_created_at bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
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
    INSERT INTO seriatim.item (seq, queue, lane, merging, loose, digest, task, score, priority, run_at,
      created_at, options, lease_ttl, expires_at, route, payload)
    VALUES (_job.seq, _job.queue, _job.lane, _job.merging, _job.mode = 3, _job.digest, _job.task,
      _job.score, _job.priority, _job.run_at, _now, _job.options, _job.lease_ttl, _job.expires_at,
      _job.route, _job.payload);
  END IF;
  IF _job.name IS NOT NULL THEN
    UPDATE seriatim.idempotency
    SET seq = o_seq, created_at = o_created_at, until = seriatim.later(_now, _job.idempotency_ttl)
    WHERE queue = _job.queue AND key = coalesce(_job.key, '') AND name = _job.name;
  END IF;
END $$;


--
-- Name: push_packed(integer[], text[], text[], bytea[], double precision[], smallint[], bigint[], text[], bigint[], integer[], bytea[], bigint[], boolean, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.push_packed(_queue integer[], _key text[], _task text[], _digest bytea[], _score double precision[], _priority smallint[], _run_at bigint[], _options text[], _lease_ttl bigint[], _routes integer[], _payload bytea[], _seqs bigint[], _keyed boolean, _now bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
  _stored bigint[];
  _fifo int[] := ARRAY(SELECT number FROM seriatim.queue WHERE number = ANY (_queue) AND mode = 2);
BEGIN
  IF NOT _keyed THEN
    INSERT INTO seriatim.lane (number, queue, route, due, class, priority, at, wake, packed_run_at, task,
        score, created_at, options, lease_ttl, payload)
      SELECT w.seq, w.queue, w.route, w.run_at, CASE WHEN w.run_at <= _now THEN w.route * 2 END,
        w.priority, w.run_at, CASE WHEN w.run_at > _now THEN w.run_at END, w.run_at, w.task,
        coalesce(w.score, _now / 1e6::float8), _now, w.options, w.lease_ttl, w.payload
      FROM unnest(_seqs, _queue, _routes, _run_at, _priority, _task, _score, _options, _lease_ttl,
        _payload) w (seq, queue, route, run_at, priority, task, score, options, lease_ttl, payload);
    INSERT INTO seriatim.ready (queue, class, priority, at, number, light)
      SELECT w.queue, w.route * 2, w.priority, w.run_at, w.seq, w.lease_ttl IS NULL
      FROM unnest(_seqs, _queue, _routes, _run_at, _priority, _lease_ttl) w (seq, queue, route, run_at, priority, lease_ttl)
      WHERE w.run_at <= _now;
    INSERT INTO seriatim.tally (queue, lanes, jobs) SELECT q, count(*), count(*) FROM unnest(_queue) q GROUP BY q;
    RETURN _seqs;
  END IF;
  WITH stored AS (
    INSERT INTO seriatim.lane AS l (number, queue, key, route, due, class, priority, at, wake,
        packed_run_at, digest, task, score, created_at, options, lease_ttl, payload)
      SELECT w.seq, w.queue, w.key, w.route, w.run_at, CASE WHEN w.run_at <= _now THEN w.route * 2 END,
        w.priority, w.run_at, CASE WHEN w.run_at > _now THEN w.run_at END, w.run_at, w.digest, w.task,
        coalesce(w.score, CASE WHEN w.is_fifo THEN 0 ELSE _now / 1e6::float8 END), _now, w.options,
        w.lease_ttl, w.payload
      FROM (
        SELECT _seqs[f.place] AS seq, f.queue, f.key, _routes[f.place] AS route, _run_at[f.place] AS run_at,
          _priority[f.place] AS priority, _digest[f.place] AS digest, _task[f.place] AS task,
          _score[f.place] AS score, _options[f.place] AS options, _lease_ttl[f.place] AS lease_ttl,
          _payload[f.place] AS payload, f.queue = ANY (_fifo) AS is_fifo
        FROM (
          -- Narrow rows are sorted faster.
          SELECT DISTINCT ON (u.queue, u.key COLLATE "C", u.one) u.queue, u.key, u.place::int
          FROM (SELECT x.*, CASE WHEN x.key IS NULL THEN x.place END AS one
            FROM unnest(_queue, _key) WITH ORDINALITY x (queue, key, place)) u
          ORDER BY u.queue, u.key COLLATE "C", u.one, u.place) f) w
    ON CONFLICT (queue, key) WHERE key IS NOT NULL DO UPDATE SET token = l.token WHERE false
    RETURNING l.queue, l.class, l.priority, l.at, l.number, l.lease_ttl
  ), due AS (
    INSERT INTO seriatim.ready (queue, class, priority, at, number, light)
      -- Another job for one of these lanes may follow in the batch: then its row would have to be written again.
      SELECT queue, class, priority, at, number,
        lease_ttl IS NULL AND (SELECT count(*) FROM stored) = cardinality(_seqs)
      FROM stored WHERE class IS NOT NULL
  ), counted AS (
    INSERT INTO seriatim.tally (queue, lanes, jobs) SELECT queue, count(*), count(*) FROM stored GROUP BY queue)
  SELECT array_agg(number) INTO _stored FROM stored;
  RETURN coalesce(_stored, '{}');
END $$;


--
-- Name: push_rest(bigint, integer[], text[], text[], bytea[], double precision[], smallint[], bigint[], text[], bigint[], integer[], bytea[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.push_rest(_t bigint, _numbers integer[], _key text[], _task text[], _digest bytea[], _score double precision[], _priority smallint[], _run_at bigint[], _options text[], _lease_ttl bigint[], _routes integer[], _payload bytea[], _seqs bigint[]) RETURNS TABLE(o_status smallint, o_queue integer, o_created_at bigint, o_seq bigint)
    LANGUAGE plpgsql
    AS $$
DECLARE
  -- The lane of each job still to be added, NULL for the others.
  _lanes bigint[];
  _others boolean;
  -- Lanes whose jobs need rows of their own, and waiting lanes that have a new first job or may be due earlier.
  _packed bigint[];
  _moved bigint[];
BEGIN
  SELECT array_agg(nullif(l.number, w.seq) ORDER BY w.place), bool_or(l.route <> w.route),
    array_agg(l.number) FILTER (WHERE l.number <> w.seq AND (l.payload IS NOT NULL OR l.taken IS NOT NULL AND q.mode = 1)),
    -- An arrival in accumulate moves its lane only through arrive(): reading the lane's jobs at each push would cost
    -- more with each waiting job. One in fifo moves its lane only if it is the first now.
    array_agg(l.number) FILTER (WHERE l.number <> w.seq AND NOT l.claimed
      AND CASE q.mode WHEN 1 THEN q.earliest WHEN 2 THEN coalesce(coalesce(w.score, 0) < l.score, true) ELSE true END)
  INTO _lanes, _others, _packed, _moved
  FROM unnest(_numbers, _key, _seqs, _routes, _score) WITH ORDINALITY w (queue, key, seq, route, score, place)
  LEFT JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.queue = w.queue AND n.key = w.key OFFSET 0) l ON true
  LEFT JOIN seriatim.queue q ON q.number = w.queue;
  IF _others THEN
    PERFORM seriatim.check_routes(_lanes, _routes);
  END IF;
  -- A job's number must be higher than those that came to its lane before. These were drawn before the lanes were
  -- locked: if no other session has drawn numbers between or after them, none came first with a higher one.
  IF _seqs[cardinality(_seqs)] - _seqs[1] <> cardinality(_seqs) - 1
    OR (SELECT last_value FROM seriatim.seq) <> _seqs[cardinality(_seqs)] THEN
    _seqs := ARRAY(SELECT CASE WHEN l IS NULL THEN s ELSE nextval('seriatim.seq') END
      FROM unnest(_seqs, _lanes) WITH ORDINALITY w (s, l, o) ORDER BY o);
  END IF;
  IF _packed IS NOT NULL THEN
    PERFORM seriatim.unpack(_packed);
  END IF;
  IF seriatim.push_items(_numbers, _lanes, _task, _digest, _score, _priority, _run_at, _options, _lease_ttl,
    _routes, _payload, _seqs, _t) THEN
    RETURN QUERY SELECT 0::smallint, w.queue, _t, w.seq FROM unnest(_numbers, _seqs) w (queue, seq);
  ELSE
    RETURN QUERY
      SELECT CASE WHEN i.seq <> w.seq THEN 1 ELSE 0 END::smallint, w.queue, coalesce(i.created_at, _t),
        coalesce(i.seq, w.seq)
      FROM unnest(_numbers, _seqs, _lanes, _digest) WITH ORDINALITY w (queue, seq, lane, digest, place)
      LEFT JOIN LATERAL (
        SELECT i.seq, i.created_at FROM seriatim.item i
        WHERE i.lane = w.lane AND i.digest = w.digest AND i.merging AND NOT i.closed LIMIT 1) i ON true
      ORDER BY w.place;
  END IF;
  IF EXISTS (SELECT FROM seriatim.queue WHERE number = ANY (_numbers) AND mode = 1) THEN
    PERFORM seriatim.arrive(_lanes, _run_at, _priority, array_fill(0::smallint, ARRAY[cardinality(_lanes)]));
  END IF;
  IF _moved IS NOT NULL THEN
    PERFORM seriatim.place(ARRAY(SELECT DISTINCT unnest(_moved)), _t);
  END IF;
END $$;


--
-- Name: queue_number(text); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.queue_number(_name text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
  _number int;
BEGIN
  SELECT number INTO _number FROM seriatim.queue WHERE name = _name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no such queue' USING ERRCODE = 'SR005', DETAIL = _name;
  END IF;
  RETURN _number;
END $$;


--
-- Name: queues_for(jsonb); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.queues_for(_queues jsonb) RETURNS integer[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: ready_again(seriatim.going_on, bigint[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.ready_again(_one seriatim.going_on, _lanes bigint[], _now bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
BEGIN
  _lanes := ARRAY(
    SELECT w.number FROM unnest(_lanes) WITH ORDINALITY w (number, place)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
    CROSS JOIN LATERAL seriatim.head(l.number, (_one.q).mode, _now) h
    WHERE l.queue = (_one.q).number AND NOT l.held AND NOT l.paused AND l.payload IS NULL
      AND CASE WHEN (_one.q).mode = 1 THEN coalesce(l.next_due, l.due) ELSE h.run_at END <= _now
      AND ((_one.q).mode = 1 OR h.crashes = 0)
      AND coalesce(CASE WHEN (_one.q).mode = 1 THEN h.priority_min ELSE h.priority END <= _one.best, true)
      AND CASE WHEN (_one.q).mode IN (1, 2) THEN l.route ELSE h.route END = ANY (_one.routes)
    ORDER BY w.place);
  UPDATE seriatim.lane l
  SET due = CASE WHEN (_one.q).mode = 1 THEN coalesce(l.next_due, l.due) ELSE h.run_at END, next_due = NULL,
    priority = CASE WHEN (_one.q).mode = 1 THEN h.priority_min ELSE h.priority END,
    retry_count = CASE WHEN (_one.q).mode = 1 THEN -1 ELSE h.retry_count END,
    crashes = 0, error = CASE WHEN (_one.q).mode = 1 THEN NULL ELSE h.error END, progress = NULL
  FROM unnest(_lanes) w (number)
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) n
  CROSS JOIN LATERAL seriatim.head(w.number, (_one.q).mode, _now) h
  WHERE l.ctid = n.row;
  RETURN _lanes;
END $$;


--
-- Name: refused_as(text, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.refused_as(_node text, _ticket bigint) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
  _given_up bigint;
BEGIN
  IF _ticket > 0 THEN
    PERFORM pg_advisory_xact_lock_shared(hashtext('node seriatim.'), hashtext(_node));
  END IF;
  SELECT given_up INTO _given_up FROM seriatim.node WHERE id = _node AND dead_at IS NULL;
  RETURN CASE WHEN NOT FOUND THEN 'SR004' WHEN _ticket BETWEEN 1 AND _given_up THEN 'SR008' END;
END $$;


--
-- Name: release(bigint, text, text, bigint, bigint, text, bigint, text, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.release(_now bigint, _name text, _key text, _queue bigint, _lane bigint, _node text, _made_by bigint, _nobody text, _lanes_max integer) RETURNS SETOF seriatim.taken
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _number int := CASE WHEN _name IS NULL THEN _queue ELSE seriatim.queue_number(_name) END;
  _lanes bigint[];
BEGIN
  PERFORM seriatim.draw_tokens();
  IF _lane IS NOT NULL OR _key IS NOT NULL THEN
    _lanes := ARRAY(SELECT number FROM seriatim.lane WHERE number = _lane AND queue = _number
      UNION ALL SELECT number FROM seriatim.lane WHERE queue = _number AND key = _key);
  ELSE
    _lanes := ARRAY(SELECT number FROM seriatim.claimed_lane
      WHERE claimed_at <= _made_by AND (_number IS NULL OR queue = _number) AND (_node IS NULL OR holder = _node)
      ORDER BY number LIMIT _lanes_max);
  END IF;
  PERFORM seriatim.lock_lanes(_lanes);
  _lanes := ARRAY(SELECT number FROM seriatim.lane
    WHERE number = ANY (_lanes) AND claimed AND claimed_at <= _made_by AND (_node IS NULL OR holder = _node) ORDER BY number);
  PERFORM seriatim.take_over(_lanes, _nobody, true, 0, _t);
  RETURN QUERY SELECT t.* FROM seriatim.turns_of(_lanes) t;
END $$;


--
-- Name: remembered(integer, text, text, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.remembered(_queue integer, _key text, _name text, _now bigint, OUT o_seq bigint, OUT o_created_at bigint) RETURNS record
    LANGUAGE sql
    AS $$
  SELECT i.seq, i.created_at FROM seriatim.idempotency i
  WHERE i.queue = _queue AND i.key = coalesce(_key, '') AND i.name = _name AND i.seq <> 0
    AND (i.until > _now
      OR EXISTS (SELECT FROM seriatim.item j WHERE j.seq = i.seq OFFSET 0)
      OR EXISTS (SELECT FROM seriatim.ended j WHERE j.seq = i.seq OFFSET 0)
      OR EXISTS (SELECT FROM seriatim.alias j WHERE j.seq = i.seq OFFSET 0))
$$;


--
-- Name: requeue(bigint, text, integer, bigint[], integer[], bigint[], text[], integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.requeue(_now bigint, _name text, _which integer, _seq bigint[], _queues integer[], _millis bigint[], _keys text[], _rows_max integer, OUT o_count bigint, OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _q seriatim.queue;
  _jobs bigint[];
  _lanes bigint[];
  _zeros smallint[];
  _priorities smallint[];
BEGIN
  SELECT * INTO _q FROM seriatim.shared_queue(_name);
  _jobs := seriatim.select_dead(_q.number, _which, _seq, _queues, _millis, _keys, _rows_max + 1);
  o_more := cardinality(_jobs) > _rows_max;
  _jobs := ARRAY(SELECT seq FROM seriatim.ended WHERE seq = ANY (_jobs[:_rows_max]) AND state = 3
    ORDER BY seq FOR UPDATE);
  o_count := cardinality(_jobs);
  IF o_count = 0 THEN
    RETURN;
  END IF;
  SELECT seriatim.open_lanes(d.queues, d.keys, d.routes, '{}', _t) INTO _lanes
  FROM (SELECT array_agg(_q.number) AS queues, array_agg(key ORDER BY place) AS keys,
      array_agg(route ORDER BY place) AS routes
    FROM unnest(_jobs) WITH ORDINALITY w (seq, place)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.ended x WHERE x.seq = w.seq OFFSET 0) e) d;
  PERFORM seriatim.unpack(_lanes);
  _lanes := ARRAY(SELECT coalesce(w.lane, w.seq)
    FROM unnest(_lanes, _jobs) WITH ORDINALITY w (lane, seq, o) ORDER BY o);
  WITH made AS (
    -- With a token: an earlier light claim may still name its number.
    INSERT INTO seriatim.lane (number, queue, due, route, token)
      SELECT e.seq, e.queue, _t, e.route, 1 FROM seriatim.ended e
      WHERE e.seq = ANY (_jobs) AND e.key IS NULL ORDER BY e.seq
    RETURNING queue)
  INSERT INTO seriatim.tally (queue, lanes) SELECT queue, count(*) FROM made GROUP BY queue;
  PERFORM seriatim.bring_back(w.seq, w.lane, _q, _t)
  FROM unnest(_jobs, _lanes) WITH ORDINALITY w (seq, lane, place) ORDER BY w.place;
  INSERT INTO seriatim.tally (queue, jobs, dead) VALUES (_q.number, o_count, -o_count);
  _zeros := array_fill(0::smallint, ARRAY[cardinality(_jobs)]);
  -- place() computes the lowest number itself.
  _priorities := array_fill(32767::smallint, ARRAY[cardinality(_jobs)]);
  PERFORM seriatim.arrive(_lanes, array_fill(_t, ARRAY[cardinality(_jobs)]), _priorities, _zeros);
  UPDATE seriatim.lane SET due = _t, retry_count = -1, crashes = 0
  WHERE number = ANY (_lanes) AND NOT claimed;
  PERFORM seriatim.place(ARRAY(SELECT DISTINCT unnest(_lanes)), _t);
END $$;


--
-- Name: rescue(bigint, text, bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.rescue(_now bigint, _node text, _ttl bigint, _lanes_max integer, _ticket bigint) RETURNS TABLE(o_next_due bigint, o_gone boolean, lane bigint, queue integer, name text, key text, token bigint, retry_count integer, crashes integer, error text, claimed_at bigint, seq bigint, created_at bigint, task text, payload bytea, score double precision, priority smallint, run_at bigint, attempt integer, options text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _lanes bigint[];
BEGIN
  PERFORM seriatim.check_node(_node, _ticket);
  PERFORM FROM seriatim.node WHERE dead_at IS NULL AND seriatim.later(beat_at, lease) < _t
    ORDER BY id FOR UPDATE;
  UPDATE seriatim.node SET dead_at = _t WHERE dead_at IS NULL AND seriatim.later(beat_at, lease) < _t;
  -- Not an exception: that would roll back the deaths.
  o_gone := NOT EXISTS (SELECT FROM seriatim.node WHERE id = _node AND dead_at IS NULL);
  RETURN NEXT;
  IF o_gone THEN
    RETURN;
  END IF;
  PERFORM seriatim.draw_tokens();
  -- Light claims of dead nodes first become like the others.
  PERFORM seriatim.unfold(ARRAY(
    SELECT l.number
    FROM (SELECT b.* FROM seriatim.batch b LEFT JOIN seriatim.node n ON n.id = b.node
      WHERE b.light AND (n.id IS NULL OR seriatim.later(n.beat_at, b.ttl) < _t) ORDER BY b.token OFFSET 0) b
    CROSS JOIN LATERAL unnest(b.lanes) u (number)
    CROSS JOIN LATERAL (SELECT l.number FROM seriatim.lane l WHERE l.number = u.number AND l.token = 0
      FOR UPDATE SKIP LOCKED) l
    LIMIT _lanes_max));
  SELECT array_agg(number) INTO _lanes FROM (
    SELECT l.number
    FROM (SELECT b.*, n.beat_at FROM seriatim.batch b LEFT JOIN seriatim.node n ON n.id = b.node
      WHERE CASE WHEN b.own THEN b.until < _t ELSE n.id IS NULL OR seriatim.later(n.beat_at, b.ttl) < _t END
      ORDER BY b.token OFFSET 0) b
    CROSS JOIN LATERAL unnest(b.lanes) u (number)
    CROSS JOIN LATERAL (SELECT l.number FROM seriatim.lane l
      WHERE l.number = u.number AND l.batch = b.token AND CASE WHEN b.own THEN l.until < _t AND NOT EXISTS (
          SELECT FROM seriatim.extension e WHERE e.lane = l.number AND e.token = l.token AND e.until >= _t)
        ELSE b.beat_at IS NULL OR seriatim.later(b.beat_at, l.ttl) < _t END
      FOR UPDATE SKIP LOCKED) l
    LIMIT _lanes_max) x;
  PERFORM seriatim.take_over(_lanes, _node, false, _ttl, _t);
  RETURN QUERY SELECT NULL::bigint, false, t.* FROM seriatim.turns_of(_lanes) t;
END $$;


--
-- Name: reseed(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.reseed() RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: resolve(bigint[], integer[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.resolve(_seq bigint[], _queue integer[], _millis bigint[]) RETURNS TABLE(o_place bigint, o_seq bigint)
    LANGUAGE sql
    AS $$
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


--
-- Name: retain_packed(bigint[], bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.retain_packed(_lanes bigint[], _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  INSERT INTO seriatim.ended
    SELECT l.number, l.queue, l.key, 2, _now, seriatim.later(_now, q.retain), l.digest, l.task,
      l.score, l.priority, l.packed_run_at, l.created_at, l.claimed_at, 1, -1, 0, NULL, l.options,
      l.lease_ttl, NULL, l.route, false, l.payload
    FROM (SELECT * FROM seriatim.lane WHERE number = ANY (_lanes) OFFSET 0) l
    JOIN seriatim.queue q ON q.number = l.queue AND q.retain > 0;
END $$;


--
-- Name: ring_inbox(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.ring_inbox() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  IF EXISTS (SELECT FROM seriatim.inbox_asleep) THEN
    PERFORM pg_notify(rtrim('seriatim.', '.') || '_due', '@inbox');
  END IF;
  RETURN NULL;
END $$;


--
-- Name: routes_for(text[], text[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.routes_for(_node text[], _group text[]) RETURNS integer[]
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM unnest(_node, _group) w (node, grp)
      WHERE w.node IS NOT NULL OR w.grp IS NOT NULL) THEN
    RETURN array_fill(0, ARRAY[cardinality(_node)]);
  END IF;
  INSERT INTO seriatim.route (node, consumer_group)
    SELECT DISTINCT coalesce(w.node, '') COLLATE "C" AS n, coalesce(w.grp, '') COLLATE "C" AS g
    FROM unnest(_node, _group) w (node, grp)
    WHERE (w.node IS NOT NULL OR w.grp IS NOT NULL) AND NOT EXISTS (
      SELECT FROM seriatim.route r
      WHERE r.node = coalesce(w.node, '') AND r.consumer_group = coalesce(w.grp, ''))
    ORDER BY n, g
  ON CONFLICT DO NOTHING;
  -- A new statement: it sees a row that a concurrent push inserted first.
  RETURN (
    SELECT array_agg(coalesce(r.number, 0) ORDER BY place)
    FROM unnest(_node, _group) WITH ORDINALITY w (node, grp, place)
    LEFT JOIN seriatim.route r
      ON r.node = coalesce(w.node, '') AND r.consumer_group = coalesce(w.grp, ''));
END $$;


--
-- Name: routes_of(text, text[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.routes_of(_name text, _groups text[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN (
    SELECT 0 || ARRAY(
      SELECT number FROM seriatim.route
      WHERE node IN ('', coalesce(_name, ''))
        AND (consumer_group = '' OR consumer_group = ANY (_groups))));
END $$;


--
-- Name: run_now(bigint[], smallint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.run_now(_lanes bigint[], _mode smallint, _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  UPDATE seriatim.lane SET held = false, due = CASE WHEN _mode = 1 THEN _now ELSE due END
  WHERE number = ANY (_lanes);
  IF _mode = 3 THEN
    UPDATE seriatim.item SET run_at = _now WHERE lane = ANY (_lanes) AND run_at > _now;
  ELSIF _mode <> 1 THEN
    UPDATE seriatim.item SET run_at = _now
    WHERE seq = ANY (ARRAY(SELECT DISTINCT ON (lane) seq FROM seriatim.item
      WHERE lane = ANY (_lanes) ORDER BY lane, score, seq));
  END IF;
END $$;


--
-- Name: running(integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.running(_queue integer) RETURNS SETOF seriatim.job_view
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  RETURN QUERY SELECT j.* FROM (SELECT number FROM seriatim.claimed_lane WHERE queue = _queue) c
    CROSS JOIN LATERAL (SELECT t.seq FROM seriatim.turn_job t WHERE t.lane = c.number OFFSET 0) t
    CROSS JOIN LATERAL (SELECT * FROM seriatim.job_view x WHERE x.seq = t.seq OFFSET 0) j;
END $$;


--
-- Name: select_dead(integer, integer, bigint[], integer[], bigint[], text[], integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.select_dead(_queue integer, _which integer, _seq bigint[], _queues integer[], _millis bigint[], _keys text[], _rows_max integer) RETURNS bigint[]
    LANGUAGE sql
    AS $$
  SELECT coalesce(array_agg(seq), '{}') FROM (
    SELECT e.seq FROM seriatim.ended e
    WHERE e.queue = _queue AND e.state = 3 AND CASE _which WHEN 0 THEN true
      WHEN 1 THEN (e.seq, e.queue, greatest(e.created_at, 0) / 1000) IN (
        SELECT * FROM unnest(_seq, _queues, _millis))
      ELSE e.key = ANY (_keys) END
    ORDER BY e.created_at / 1000, e.seq LIMIT _rows_max) x
$$;


--
-- Name: select_lanes(seriatim.queue, integer, text, bigint, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.select_lanes(_q seriatim.queue, _which integer, _key text, _lane bigint, _rows_max integer) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
  _lanes bigint[];
BEGIN
  SELECT coalesce(array_agg(number), '{}') INTO _lanes FROM (
    SELECT l.number FROM seriatim.lane l
    WHERE l.queue = _q.number AND l.number > 0 AND CASE _which WHEN 0 THEN true WHEN 1 THEN l.key = _key
      WHEN 2 THEN l.number = _lane
      ELSE CASE WHEN _q.mode = 1 THEN l.retry_count >= 0 ELSE EXISTS (
        SELECT FROM seriatim.item i WHERE i.lane = l.number AND i.retry_count >= 0
          AND NOT seriatim.owns(_q.mode, l.taken, i.closed, i.seq) OFFSET 0) END
      END
    ORDER BY l.number LIMIT _rows_max) x;
  PERFORM seriatim.lock_rows(_lanes);
  PERFORM seriatim.unpack(_lanes);
  RETURN _lanes;
END $$;


--
-- Name: server_mark(); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.server_mark() RETURNS text
    LANGUAGE sql STABLE
    AS $$
  SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || ' ' || extract(epoch FROM pg_postmaster_start_time())
    -- Set anew when a process of the server crashed, and with it all sessions.
    || ' ' || coalesce(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), 0)
$$;


--
-- Name: settle(bigint, bigint[], integer[], bigint[], smallint[], bigint[], smallint[], bigint[], integer[], integer[], text[], boolean[], boolean[], integer[], bigint[], smallint[], jsonb, boolean); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.settle(_now bigint, _lane bigint[], _queue integer[], _token bigint[], _rest smallint[], _owner bigint[], _due_kind smallint[], _due_in bigint[], _retry_count integer[], _crashes integer[], _error text[], _counted boolean[], _hold boolean[], _x_place integer[], _x_seq bigint[], _x_fate smallint[], _claims jsonb, _skip boolean) RETURNS TABLE(o_place integer, o_seq bigint, o_created_at bigint, lane bigint, queue integer, name text, key text, token bigint, retry_count integer, crashes integer, error text, claimed_at bigint, seq bigint, created_at bigint, task text, payload bytea, score double precision, priority smallint, run_at bigint, attempt integer, options text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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
  _fates seriatim.fated[] := '{}';
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
    PERFORM seriatim.lock_rows(seriatim.without(_lane, _busy));
  END IF;
  IF 0 = ANY (_rest) THEN
    SELECT o_places, o_tokens, o_freed, _busy || o_busy INTO _ended, _tokens, _freed, _busy
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
    _endings := seriatim.endings_of(_left, _lane, _queue, _token, _rest, _owner, _due_kind, _due_in, _retry_count,
      _crashes, _error, _counted, _hold);
  END IF;
  IF _endings IS NOT NULL THEN
    _fates := seriatim.fates_of(_endings, (
      SELECT jsonb_object_agg(format('%s:%s', x.place, x.seq), x.fate)
      FROM unnest(_x_place, _x_seq, _x_fate) x (place, seq, fate)));
    PERFORM seriatim.end_jobs(_fates, _t);
    PERFORM seriatim.free_lanes(_endings, _t);
    PERFORM seriatim.keep_jobs(_fates, _t);
    -- Before place() removes the empty lanes.
    PERFORM seriatim.count_turns(_fates, ARRAY(
      SELECT x.place FROM unnest(_x_place, _x_fate) x (place, fate) WHERE x.fate = 2));
    SELECT _ended || array_agg(e.place), _tokens || array_agg(e.batch), array_agg(e.lane),
      array_agg(e.lane) FILTER (WHERE e.rest = 0 AND e.place <> ALL (_x_place))
    INTO _ended, _tokens, _open, _done FROM unnest(_endings) e;
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
    _wait := seriatim.place(_freed, _t, true);
  END IF;
  IF _open <> '{}' THEN
    _wait := seriatim.place(_open, _t) OR _wait;
  END IF;
  PERFORM seriatim.leave_batches(_tokens);
  IF _wait THEN
    RETURN QUERY SELECT -2, NULL::bigint, NULL::bigint, (NULL::seriatim.taken).*;
  END IF;
END $$;


--
-- Name: settle_done(bigint, bigint[], integer[], bigint[], smallint[], integer[], boolean); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.settle_done(_now bigint, _lane bigint[], _queue integer[], _token bigint[], _rest smallint[], _x_place integer[], _skip boolean, OUT o_places integer[], OUT o_tokens bigint[], OUT o_freed bigint[], OUT o_busy bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
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
BEGIN
  o_tokens := '{}';
  o_freed := '{}';
  IF _x_place <> '{}' OR 0 <> ANY (_rest) THEN
    SELECT array_agg(lane), array_agg(queue), array_agg(token) INTO _lanes, _of, _tokens
    FROM unnest(_lane, _queue, _token, _rest) WITH ORDINALITY u (lane, queue, token, rest, place)
    WHERE rest = 0 AND place <> ALL (_x_place) AND token >= 0;
  END IF;
  SELECT coalesce(array_agg(number) FILTER (WHERE mode = 0), '{}'), coalesce(array_agg(number) FILTER (WHERE mode <> 0), '{}')
  INTO _parallel, _others FROM seriatim.queue WHERE number = ANY (_of);
  IF _others <> '{}' THEN
    IF _parallel <> '{}' THEN
      SELECT array_agg(lane), array_agg(queue), array_agg(token) INTO _keyed, _keyed_of, _keyed_tokens
      FROM unnest(_lanes, _of, _tokens) u (lane, queue, token) WHERE queue = ANY (_others);
    ELSE
      _keyed := _lanes;
      _keyed_of := _of;
      _keyed_tokens := _tokens;
    END IF;
    SELECT o_lanes, k.o_tokens, k.o_freed, k.o_busy INTO _ended, o_tokens, o_freed, o_busy
    FROM seriatim.end_keyed(_now, _keyed, _keyed_of, _keyed_tokens, _others, _skip) k;
    IF _parallel <> '{}' THEN
      SELECT array_agg(lane), array_agg(queue), array_agg(token) INTO _lanes, _of, _tokens
      FROM unnest(_lanes, _of, _tokens) u (lane, queue, token) WHERE queue = ANY (_parallel);
    END IF;
  END IF;
  IF _parallel <> '{}' THEN
    SELECT * INTO _more, _more_tokens FROM seriatim.end_keyless(_now, _lanes, _of, _tokens);
    _ended := _ended || _more;
    o_tokens := o_tokens || _more_tokens;
  END IF;
  IF cardinality(_ended) < cardinality(_lane) THEN
    o_places := ARRAY(SELECT min(u.place)::int FROM unnest(_lane, _token) WITH ORDINALITY u (lane, token, place)
      WHERE CASE WHEN (u.lane, u.token) IN (SELECT * FROM unnest(_ended, o_tokens)) THEN true END GROUP BY u.lane);
  END IF;
END $$;


--
-- Name: share_queue(integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.share_queue(_queue integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtext('seriatim.'), _queue);
END $$;


--
-- Name: shared_queue(text); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.shared_queue(_name text) RETURNS seriatim.queue
    LANGUAGE plpgsql
    AS $$
DECLARE
  _q seriatim.queue;
  _number int;
BEGIN
  LOOP
    _number := seriatim.queue_number(_name);
    PERFORM seriatim.share_queue(_number);
    -- A statement after the lock: the queue may have been deleted meanwhile, and created again with another number.
    SELECT * INTO _q FROM seriatim.queue WHERE name = _name AND number = _number;
    EXIT WHEN FOUND;
  END LOOP;
  RETURN _q;
END $$;


--
-- Name: stats(bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.stats(_now bigint) RETURNS TABLE(name text, mode smallint, paused boolean, now bigint, due bigint, lanes bigint, jobs bigint, claimed bigint, dead bigint, processed bigint, failed bigint, retrying bigint)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  RETURN QUERY
    SELECT q.name, q.mode, q.paused, coalesce(_now, seriatim.clock()), seriatim.first_due(q.number),
      coalesce(t.lanes, 0), coalesce(t.jobs, 0), coalesce(t.claimed, 0), coalesce(t.dead, 0),
      coalesce(t.processed, 0), coalesce(t.failed, 0),
      (SELECT count(*) FROM seriatim.lane l WHERE l.retry_count >= 0
        AND CASE WHEN l.retry_count >= 0 THEN l.queue END = q.number)
    FROM seriatim.queue q
    LEFT JOIN (SELECT y.queue, sum(y.lanes)::bigint AS lanes, sum(y.jobs)::bigint AS jobs,
        sum(y.claimed)::bigint AS claimed, sum(y.dead)::bigint AS dead, sum(y.processed)::bigint AS processed,
        sum(y.failed)::bigint AS failed
      FROM seriatim.tally y GROUP BY y.queue) t ON t.queue = q.number
    ORDER BY q.name;
END $$;


--
-- Name: stopped_lanes(integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.stopped_lanes(_queue integer) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RETURN ARRAY(SELECT number FROM seriatim.lane WHERE (held OR paused)
    AND (queue, number) >= (_queue, 0) AND (queue, number) <= (_queue, seriatim.last_number()) ORDER BY queue, number);
END $$;


--
-- Name: sweep(bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.sweep(_now bigint, _rows_max integer, _node_shown bigint, OUT o_expired bigint[], OUT o_expired_queue integer[], OUT o_expired_created_at bigint[], OUT o_dead bigint[], OUT o_dead_queue integer[], OUT o_dead_created_at bigint[], OUT o_completed bigint, OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  _t bigint := coalesce(_now, seriatim.clock());
  _expired_more boolean;
  _done_more boolean;
  _dead_more boolean;
BEGIN
  SELECT * INTO o_expired, o_expired_queue, o_expired_created_at, _expired_more
  FROM seriatim.sweep_expired(_t, _rows_max);
  SELECT * INTO o_completed, _done_more FROM seriatim.sweep_done(_t, _rows_max);
  SELECT * INTO o_dead, o_dead_queue, o_dead_created_at, _dead_more
  FROM seriatim.sweep_dead(_t, _rows_max);
  PERFORM seriatim.forget_names(_t, _rows_max);
  PERFORM seriatim.sweep_rest(_t, _rows_max, _node_shown);
  PERFORM seriatim.fold(10000);
  o_more := _expired_more OR _done_more OR _dead_more;
END $$;


--
-- Name: sweep_dead(bigint, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.sweep_dead(_now bigint, _rows_max integer, OUT o_seq bigint[], OUT o_queue integer[], OUT o_created_at bigint[], OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  _q record;
  _found bigint[] := '{}';
BEGIN
  FOR _q IN
    SELECT q.number, q.retain_dead, t.dead - q.retain_dead_max AS over
    FROM seriatim.queue q
    JOIN (SELECT queue, sum(dead) AS dead FROM seriatim.tally GROUP BY queue) t ON t.queue = q.number AND t.dead > 0
    ORDER BY q.number
  LOOP
    _found := _found || ARRAY(
      SELECT o.seq FROM (
        SELECT seq, ended_at, row_number() OVER (ORDER BY -ended_at DESC, created_at / 1000, seq) AS rank
        FROM seriatim.ended WHERE queue = _q.number AND state = 3
        -- As in the index.
        ORDER BY -ended_at DESC, created_at / 1000, seq LIMIT _rows_max + 1) o
      WHERE o.rank <= _q.over OR seriatim.later(o.ended_at, _q.retain_dead) <= _now
      ORDER BY o.rank);
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


--
-- Name: sweep_done(bigint, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.sweep_done(_now bigint, _rows_max integer, OUT o_count bigint, OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  _found bigint[] := ARRAY(SELECT seq FROM seriatim.ended
    WHERE until <= _now ORDER BY until LIMIT _rows_max + 1 FOR UPDATE SKIP LOCKED);
BEGIN
  o_more := cardinality(_found) > _rows_max;
  PERFORM seriatim.forget(_found[:_rows_max]);
  o_count := least(cardinality(_found), _rows_max);
END $$;


--
-- Name: sweep_expired(bigint, integer); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.sweep_expired(_now bigint, _rows_max integer, OUT o_seq bigint[], OUT o_queue integer[], OUT o_created_at bigint[], OUT o_more boolean) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
  _found bigint[] := ARRAY(SELECT seq FROM seriatim.item
    WHERE expires_at <= _now AND NOT closed ORDER BY expires_at, seq LIMIT _rows_max + 1);
  _lanes bigint[];
BEGIN
  o_more := cardinality(_found) > _rows_max;
  _found := _found[:_rows_max];
  _lanes := ARRAY(SELECT number FROM seriatim.lane
    WHERE number = ANY (ARRAY(SELECT lane FROM seriatim.item WHERE seq = ANY (_found)))
    ORDER BY queue, key, number FOR UPDATE SKIP LOCKED);
  PERFORM seriatim.unpack(_lanes);
  SELECT coalesce(array_agg(seq), '{}'), coalesce(array_agg(queue), '{}'),
    coalesce(array_agg(created_at), '{}')
  INTO o_seq, o_queue, o_created_at FROM seriatim.item
  WHERE seq = ANY (_found) AND lane = ANY (_lanes) AND NOT closed AND expires_at <= _now;
  PERFORM seriatim.cancel_open(o_seq, 'expired', _now);
  PERFORM seriatim.place(_lanes, _now);
END $$;


--
-- Name: sweep_rest(bigint, integer, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.sweep_rest(_now bigint, _rows_max integer, _node_shown bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  DELETE FROM seriatim.node WHERE id IN (
    SELECT id FROM seriatim.node WHERE seriatim.later(dead_at, _node_shown) <= _now AND dead_at IS NOT NULL
    LIMIT _rows_max FOR UPDATE SKIP LOCKED);
  DELETE FROM seriatim.extension WHERE lane IN (
    SELECT lane FROM seriatim.extension WHERE until < _now LIMIT _rows_max FOR UPDATE SKIP LOCKED);
  DELETE FROM seriatim.batch WHERE token IN (
    SELECT b.token FROM seriatim.batch b
    WHERE NOT EXISTS (SELECT FROM unnest(b.lanes) u (number)
      CROSS JOIN LATERAL (SELECT FROM seriatim.lane l
        WHERE l.number = u.number AND (l.batch = b.token OR b.light AND l.token = 0) OFFSET 0) l)
    LIMIT _rows_max FOR UPDATE OF b SKIP LOCKED);
END $$;


--
-- Name: take_inbox(bigint, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.take_inbox(_rows_max bigint, _bytes_max bigint, _payload_max bigint) RETURNS SETOF text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET jit TO 'off'
    SET search_path TO 'pg_catalog'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
  RETURN QUERY
  WITH oldest AS MATERIALIZED (
    SELECT i.* FROM seriatim.inbox i WHERE i.refused IS NULL ORDER BY i.id + 0 LIMIT _rows_max
    FOR UPDATE SKIP LOCKED
  ), sized AS (
    SELECT o.*, octet_length(o.payload) AS bytes,
      sum(least(coalesce(octet_length(o.payload), 0), _payload_max)) OVER (ORDER BY o.id) AS up_to
    FROM oldest o
  )
  SELECT json_build_object('id', s.id, 'action', left(s.action, 1024), 'queue', left(s.queue, 1024),
    'key', left(s.key, 1024), 'payload', CASE WHEN s.bytes <= _payload_max THEN s.payload END, 'bytes', s.bytes,
    'task', left(s.task, 1024), 'score', s.score::text, 'priority', s.priority::text,
    'run_at', seriatim.micros_of(s.run_at), 'expires_at', seriatim.micros_of(s.expires_at),
    'idempotency_key', left(s.idempotency_key, 1024), 'node', left(s.node, 1024),
    'consumer_group', left(s.consumer_group, 1024), 'partition_key', left(s.partition_key, 1024),
    'producer', left(s.producer, 1024), 'job_id', left(s.job_id, 1024))::text
  FROM sized s WHERE s.up_to <= _bytes_max ORDER BY s.id;
END $$;


--
-- Name: take_names(integer[], text[], text[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.take_names(_queue integer[], _key text[], _name text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  INSERT INTO seriatim.idempotency AS i (queue, key, name, seq, created_at, until)
    SELECT DISTINCT w.queue, coalesce(w.key, '') COLLATE "C" AS k, w.name COLLATE "C" AS n, 0, 0, 0
    FROM unnest(_queue, _key, _name) w (queue, key, name)
    WHERE w.name IS NOT NULL
    ORDER BY w.queue, k, n
  ON CONFLICT (queue, key, name) DO UPDATE SET until = i.until;
END $$;


--
-- Name: take_over(bigint[], text, boolean, bigint, bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.take_over(_lanes bigint[], _node text, _own boolean, _ttl bigint, _now bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _token bigint;
BEGIN
  IF coalesce(cardinality(_lanes), 0) = 0 THEN
    RETURN;
  END IF;
  PERFORM seriatim.leave_batches(ARRAY(SELECT batch FROM seriatim.lane WHERE number = ANY (_lanes)));
  _token := nextval('seriatim.token');
  PERFORM seriatim.list_batch(_token, _node, _own, _ttl, _now, false, _lanes);
  UPDATE seriatim.lane SET token = _token, batch = _token, holder = _node, own_lease = _own, ttl = _ttl,
    until = seriatim.later(_now, _ttl)
  WHERE number = ANY (_lanes);
END $$;


--
-- Name: take_ready(bigint[], tid[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.take_ready(_lanes bigint[], _spots tid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _found int;
BEGIN
  DELETE FROM seriatim.ready
  WHERE ctid = ANY (_spots) AND CASE WHEN number IN (SELECT unnest(_lanes)) THEN true END;
  GET DIAGNOSTICS _found = ROW_COUNT;
  IF _found < cardinality(_lanes) THEN
    PERFORM seriatim.move_ready(ARRAY(
      SELECT ROW(l.queue, l.number, l.class, l.priority, l.at, NULL, NULL, NULL)::seriatim.move
      FROM unnest(_lanes) w (number)
      CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l));
  END IF;
END $$;


--
-- Name: takes_one(seriatim.queue); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.takes_one(_q seriatim.queue) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
  SELECT _q.mode IN (0, 3) OR _q.mode = 2 AND _q.take = 1
$$;


--
-- Name: text_of(bytea); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.text_of(_payload bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  RETURN convert_from(_payload, 'UTF8');
EXCEPTION WHEN OTHERS THEN
  RETURN _payload::text;
END $$;


--
-- Name: time_of(bigint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.time_of(_micros bigint) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
  SELECT 'epoch'::timestamptz + _micros * interval '1 microsecond'
$$;


--
-- Name: turns_of(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.turns_of(_lanes bigint[]) RETURNS SETOF seriatim.taken
    LANGUAGE sql STABLE
    AS $$
  SELECT l.number, l.queue, q.name, l.key, l.token, l.retry_count, l.crashes, l.error, l.claimed_at,
    j.seq, j.created_at, j.task, j.payload, j.score, j.priority, j.run_at, j.attempt, j.options
  FROM unnest(_lanes) WITH ORDINALITY w (number, place)
  CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.number OFFSET 0) l
  JOIN seriatim.queue q ON q.number = l.queue
  CROSS JOIN LATERAL (
    SELECT l.number AS seq, l.created_at, l.task, l.payload, l.score, l.priority,
      l.packed_run_at AS run_at, 1 AS attempt, l.options
    WHERE l.payload IS NOT NULL
    UNION ALL
    SELECT i.seq, i.created_at, i.task, i.payload, i.score, i.priority, i.run_at, i.attempts + 1, i.options
    FROM seriatim.owned(l.number, q.mode, l.taken) i) j
  ORDER BY w.place, j.score, j.seq
$$;


--
-- Name: unfold(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.unfold(_lanes bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM seriatim.lane WHERE number = ANY (_lanes) AND token = 0 AND payload IS NOT NULL) THEN
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
    WHERE x.light AND CASE WHEN u.number IN (SELECT unnest(_lanes)) THEN true END OFFSET 0) b
  CROSS JOIN LATERAL (SELECT n.ctid AS row FROM seriatim.lane n WHERE n.number = b.number AND n.token = 0 OFFSET 0) n
  WHERE l.ctid = n.row;
END $$;


--
-- Name: unite(bigint, bigint, smallint); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.unite(_one bigint, _other bigint, _merge smallint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
  _older bigint := least(_one, _other);
  _newer bigint := greatest(_one, _other);
BEGIN
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


--
-- Name: unpack(bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.unpack(_lanes bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
  CROSS JOIN LATERAL seriatim.owned(l.number, q.mode, l.taken) x
  CROSS JOIN LATERAL (SELECT o.ctid AS row FROM seriatim.item o WHERE o.seq = x.seq AND NOT o.closed OFFSET 0) o
  WHERE i.ctid = o.row;
  UPDATE seriatim.ready r SET light = false
  FROM (SELECT * FROM seriatim.lane WHERE number = ANY (_lanes) AND payload IS NOT NULL AND class IS NOT NULL OFFSET 0) l
  CROSS JOIN LATERAL (SELECT x.ctid AS row FROM seriatim.ready x
    WHERE x.queue = l.queue AND x.class = l.class AND x.priority = l.priority AND x.at = l.at AND x.number = l.number
      AND x.light OFFSET 0) x
  WHERE r.ctid = x.row;
  -- The score stays that of its first job.
  UPDATE seriatim.lane SET taken = NULL, packed_run_at = NULL, digest = NULL, task = NULL, created_at = NULL, options = NULL, lease_ttl = NULL, payload = NULL
  WHERE number = ANY (_lanes) AND (payload IS NOT NULL OR taken IS NOT NULL);
END $$;


--
-- Name: without(bigint[], bigint[]); Type: FUNCTION; Schema: seriatim; Owner: -
--

CREATE FUNCTION seriatim.without(_lanes bigint[], _those bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  IF _those = '{}' THEN
    RETURN _lanes;
  END IF;
  RETURN ARRAY(SELECT number FROM unnest(_lanes) number
    WHERE CASE WHEN number IN (SELECT unnest(_those)) THEN false ELSE true END);
END $$;


--
-- Name: alias; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.alias (
    seq bigint NOT NULL,
    queue integer NOT NULL,
    created_at bigint NOT NULL,
    of_seq bigint NOT NULL
);


--
-- Name: claimed_lane; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.claimed_lane AS
 SELECT l.number,
    l.queue,
    l.key,
    b.token,
    b.claimed_at,
    b.node AS holder
   FROM ((seriatim.batch b
     CROSS JOIN LATERAL unnest(b.lanes) u(number))
     CROSS JOIN LATERAL ( SELECT n.number,
            n.queue,
            n.key,
            n.token,
            n.held,
            n.paused,
            n.route,
            n.due,
            n.next_due,
            n.retry_count,
            n.crashes,
            n.error,
            n.class,
            n.priority,
            n.at,
            n.wake,
            n.claimed,
            n.batch,
            n.holder,
            n.own_lease,
            n.ttl,
            n.until,
            n.claimed_at,
            n.beat_at,
            n.progress,
            n.taken,
            n.packed_run_at,
            n.digest,
            n.task,
            n.score,
            n.created_at,
            n.options,
            n.lease_ttl,
            n.payload
           FROM seriatim.lane n
          WHERE ((n.number = u.number) AND ((n.batch = b.token) OR (b.light AND (n.token = 0))))
         OFFSET 0) l);


--
-- Name: extension; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.extension (
    lane bigint NOT NULL,
    token bigint NOT NULL,
    until bigint NOT NULL
);


--
-- Name: idempotency; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.idempotency (
    queue integer NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    created_at bigint NOT NULL,
    until bigint NOT NULL
);


--
-- Name: inbox; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.inbox (
    id bigint NOT NULL,
    queue text,
    key text,
    payload text,
    task text,
    score double precision,
    priority integer,
    run_at timestamp with time zone,
    expires_at timestamp with time zone,
    idempotency_key text,
    node text,
    consumer_group text,
    partition_key text,
    producer text,
    action text DEFAULT 'push'::text NOT NULL,
    job_id text,
    inserted_at timestamp with time zone DEFAULT now() NOT NULL,
    refused text,
    refused_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');


--
-- Name: inbox_asleep; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.inbox_asleep (
    one boolean DEFAULT true NOT NULL,
    CONSTRAINT inbox_asleep_one_check CHECK (one)
);


--
-- Name: inbox_id_seq; Type: SEQUENCE; Schema: seriatim; Owner: -
--

ALTER TABLE seriatim.inbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME seriatim.inbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: jobs; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.jobs AS
 SELECT seriatim.job_id(v.created_at, v.queue, v.seq) AS job_id,
    v.name AS queue,
    v.key,
    v.task,
    (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'dead'::text, 'canceled'::text])[(v.state + 1)] AS state,
    (options.o ->> 'node'::text) AS node,
    (options.o ->> 'consumer_group'::text) AS consumer_group,
    (options.o ->> 'producer'::text) AS producer,
    (options.o ->> 'partition_key'::text) AS partition_key,
    (options.o ->> 'idempotency_key'::text) AS idempotency_key,
    v.priority,
    v.score,
    v.attempt,
    v.retry_count,
    v.crashes,
    v.error,
    v.flagged AS cancel_requested,
    seriatim.time_of(v.created_at) AS created_at,
    seriatim.time_of(v.run_at) AS run_at,
    seriatim.time_of(v.started_at) AS started_at,
    seriatim.time_of(v.finished_at) AS finished_at,
    v.node AS claimed_by,
    seriatim.time_of(v.heartbeat_at) AS heartbeat_at,
    v.progress,
    seriatim.text_of(v.payload) AS payload
   FROM (seriatim.job_view v
     CROSS JOIN LATERAL ( SELECT (v.options)::jsonb AS o) options);


--
-- Name: lanes; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.lanes AS
 SELECT q.name AS queue,
    l.key,
        CASE
            WHEN l.claimed THEN 'claimed'::text
            WHEN l.paused THEN 'paused'::text
            WHEN l.held THEN 'held'::text
            ELSE 'waiting'::text
        END AS state,
        CASE
            WHEN (l.payload IS NOT NULL) THEN (1)::bigint
            ELSE ( SELECT count(*) AS count
               FROM seriatim.item i
              WHERE (i.lane = l.number))
        END AS jobs,
    seriatim.time_of(l.due) AS due,
    l.priority,
    l.retry_count,
    l.crashes,
    l.error,
        CASE
            WHEN l.claimed THEN l.token
            ELSE NULL::bigint
        END AS token,
    l.holder AS node,
    seriatim.time_of(l.claimed_at) AS claimed_at,
        CASE
            WHEN l.own_lease THEN seriatim.time_of(l.until)
            ELSE NULL::timestamp with time zone
        END AS lease_until,
    l.progress
   FROM (seriatim.lane_now l
     JOIN seriatim.queue q ON ((q.number = l.queue)));


--
-- Name: leader; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.leader (
    role text NOT NULL COLLATE pg_catalog."C",
    node text NOT NULL,
    until bigint NOT NULL
);


--
-- Name: looked; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.looked (
    one boolean DEFAULT true NOT NULL,
    until bigint NOT NULL,
    CONSTRAINT looked_one_check CHECK (one)
);


--
-- Name: meta; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.meta (
    one boolean DEFAULT true NOT NULL,
    version integer NOT NULL,
    CONSTRAINT meta_one_check CHECK (one)
);


--
-- Name: morgue; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.morgue AS
 SELECT jobs.job_id,
    jobs.queue,
    jobs.key,
    jobs.task,
    jobs.score,
    jobs.attempt,
    jobs.retry_count,
    jobs.crashes,
    jobs.error,
    jobs.created_at,
    jobs.finished_at AS died_at,
    jobs.payload
   FROM seriatim.jobs
  WHERE (jobs.state = 'dead'::text);


--
-- Name: nodes; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.nodes AS
 SELECT n.id AS node,
    ((n.info)::jsonb ->> 'name'::text) AS name,
    ((n.info)::jsonb ->> 'host'::text) AS host,
    (((n.info)::jsonb ->> 'pid'::text))::integer AS pid,
    ((n.info)::jsonb ->> 'version'::text) AS version,
    seriatim.time_of(n.beat_at) AS heartbeat_at,
    (n.dead_at IS NULL) AS alive,
    (ARRAY['quiet'::text, 'stop'::text])[(n.command + 1)] AS told,
    ( SELECT count(*) AS count
           FROM seriatim.claimed_lane l
          WHERE (l.holder = n.id)) AS lanes
   FROM seriatim.node n;


--
-- Name: note; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.note (
    name text NOT NULL COLLATE pg_catalog."C",
    value bytea NOT NULL
);


--
-- Name: ready; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.ready (
    queue integer NOT NULL,
    class integer NOT NULL,
    priority smallint NOT NULL,
    at bigint NOT NULL,
    number bigint NOT NULL,
    light boolean DEFAULT false NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');


--
-- Name: route; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.route (
    number integer NOT NULL,
    node text NOT NULL COLLATE pg_catalog."C",
    consumer_group text NOT NULL COLLATE pg_catalog."C"
);


--
-- Name: route_number_seq; Type: SEQUENCE; Schema: seriatim; Owner: -
--

ALTER TABLE seriatim.route ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME seriatim.route_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: secret; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.secret (
    one boolean DEFAULT true NOT NULL,
    bytes bytea NOT NULL,
    CONSTRAINT secret_one_check CHECK (one)
);


--
-- Name: seeded; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.seeded (
    one boolean DEFAULT true NOT NULL,
    mark text NOT NULL,
    CONSTRAINT seeded_one_check CHECK (one)
);


--
-- Name: seq; Type: SEQUENCE; Schema: seriatim; Owner: -
--

CREATE SEQUENCE seriatim.seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: tally; Type: TABLE; Schema: seriatim; Owner: -
--

CREATE TABLE seriatim.tally (
    queue integer NOT NULL,
    lanes bigint,
    jobs bigint,
    claimed bigint,
    dead bigint,
    processed bigint,
    failed bigint
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');


--
-- Name: token; Type: SEQUENCE; Schema: seriatim; Owner: -
--

CREATE SEQUENCE seriatim.token
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: turn_job; Type: VIEW; Schema: seriatim; Owner: -
--

CREATE VIEW seriatim.turn_job AS
 SELECT l.number AS lane,
    l.queue,
    q.name,
    l.key,
    b.token,
    l.retry_count,
    l.crashes,
    l.error,
    b.claimed_at,
    l.number AS seq,
    l.created_at,
    l.task,
    l.payload,
    l.score,
    l.priority,
    l.packed_run_at AS run_at,
    1 AS attempt,
    l.options
   FROM (((seriatim.batch b
     CROSS JOIN LATERAL unnest(b.lanes) u(number))
     JOIN seriatim.lane l ON (((l.number = u.number) AND (l.token = 0))))
     JOIN seriatim.queue q ON ((q.number = l.queue)))
  WHERE b.light
UNION ALL
 SELECT l.number AS lane,
    l.queue,
    q.name,
    l.key,
    l.token,
    l.retry_count,
    l.crashes,
    l.error,
    l.claimed_at,
    l.number AS seq,
    l.created_at,
    l.task,
    l.payload,
    l.score,
    l.priority,
    l.packed_run_at AS run_at,
    1 AS attempt,
    l.options
   FROM (seriatim.lane l
     JOIN seriatim.queue q ON ((q.number = l.queue)))
  WHERE (l.claimed AND (l.payload IS NOT NULL))
UNION ALL
 SELECT l.number AS lane,
    l.queue,
    q.name,
    l.key,
    l.token,
    l.retry_count,
    l.crashes,
    l.error,
    l.claimed_at,
    i.seq,
    i.created_at,
    i.task,
    i.payload,
    i.score,
    i.priority,
    i.run_at,
    (i.attempts + 1) AS attempt,
    i.options
   FROM ((seriatim.lane l
     JOIN seriatim.queue q ON ((q.number = l.queue)))
     CROSS JOIN LATERAL seriatim.owned(l.number, q.mode, l.taken) i(seq, queue, lane, closed, merging, loose, digest, task, score, priority, run_at, created_at, started_at, attempts, retry_count, crashes, error, options, lease_ttl, expires_at, route, flagged, payload))
  WHERE l.claimed;


--
-- Data for Name: alias; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: batch; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.batch VALUES (1795460860559801, 'old', false, 60000000, 1795374520560337, 1795374460560337, true, 3, '{1,2,3,4,5,6,7,8,9,10,11,12}');
INSERT INTO seriatim.batch VALUES (1795460860559802, 'old', false, 60000000, 1795374520560337, 1795374460560337, false, 1, '{15,18,21,24}');
INSERT INTO seriatim.batch VALUES (1795460860559803, 'old', false, 60000000, 1795374520560337, 1795374460560337, false, 1, '{30,33,36,39}');
INSERT INTO seriatim.batch VALUES (1795460860559804, 'old', false, 60000000, 1795374520560337, 1795374460560337, false, 1, '{45,48,51,54}');


--
-- Data for Name: ended; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.ended VALUES (1, 1, NULL, 2, 1795374460560337, 2079198460560337, NULL, 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a317d');
INSERT INTO seriatim.ended VALUES (2, 1, NULL, 2, 1795374460560337, 2079198460560337, NULL, 'work', 2, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a327d');
INSERT INTO seriatim.ended VALUES (3, 1, NULL, 2, 1795374460560337, 2079198460560337, NULL, 'work', 3, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a337d');
INSERT INTO seriatim.ended VALUES (4, 1, NULL, 3, 1795374460560337, NULL, NULL, 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a317d');
INSERT INTO seriatim.ended VALUES (5, 1, NULL, 3, 1795374460560337, NULL, NULL, 'work', 2, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a327d');
INSERT INTO seriatim.ended VALUES (6, 1, NULL, 3, 1795374460560337, NULL, NULL, 'work', 3, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a337d');
INSERT INTO seriatim.ended VALUES (15, 2, 'done', 2, 1795374460560337, 2079198460560337, '\xcb00ce1a09fb67f46c41c92b810190ee', 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a317d');
INSERT INTO seriatim.ended VALUES (16, 2, 'done', 2, 1795374460560337, 2079198460560337, '\xf562ce88f55beb62227616435ec2b9da', 'work', 2, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a327d');
INSERT INTO seriatim.ended VALUES (17, 2, 'done', 2, 1795374460560337, 2079198460560337, '\x6b61c6bca55a708c907123a4eccbe8be', 'work', 3, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a337d');
INSERT INTO seriatim.ended VALUES (18, 2, 'dead', 3, 1795374460560337, NULL, '\xfa0b5a5b476136f23caa82ed4e3eae26', 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a317d');
INSERT INTO seriatim.ended VALUES (19, 2, 'dead', 3, 1795374460560337, NULL, '\xf53744a347a67553f763734086288c2f', 'work', 2, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a327d');
INSERT INTO seriatim.ended VALUES (20, 2, 'dead', 3, 1795374460560337, NULL, '\x59387c83e64a97f0a617a7bd618c8f37', 'work', 3, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a337d');
INSERT INTO seriatim.ended VALUES (30, 3, 'done', 2, 1795374460560337, 2079198460560337, '\xcb00ce1a09fb67f46c41c92b810190ee', 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a317d');
INSERT INTO seriatim.ended VALUES (33, 3, 'dead', 3, 1795374460560337, NULL, '\xfa0b5a5b476136f23caa82ed4e3eae26', 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a317d');
INSERT INTO seriatim.ended VALUES (45, 4, 'done', 2, 1795374460560337, 2079198460560337, '\xcb00ce1a09fb67f46c41c92b810190ee', 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a317d');
INSERT INTO seriatim.ended VALUES (48, 4, 'dead', 3, 1795374460560337, NULL, '\xfa0b5a5b476136f23caa82ed4e3eae26', 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a317d');


--
-- Data for Name: extension; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: idempotency; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.idempotency VALUES (1, '', 'once', 14, 1795374460560337, 2079198460560337);
INSERT INTO seriatim.idempotency VALUES (2, 'later', 'once', 29, 1795374460560337, 2079198460560337);
INSERT INTO seriatim.idempotency VALUES (3, 'later', 'once', 44, 1795374460560337, 2079198460560337);
INSERT INTO seriatim.idempotency VALUES (4, 'later', 'once', 59, 1795374460560337, 2079198460560337);


--
-- Data for Name: inbox; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: inbox_asleep; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: item; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.item VALUES (7, 1, 7, false, false, false, NULL, 'work', 1, 100, 1795375060560337, 1795374460560337, 1795374460560337, 1, 0, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a317d');
INSERT INTO seriatim.item VALUES (8, 1, 8, false, false, false, NULL, 'work', 2, 100, 1795375060560337, 1795374460560337, 1795374460560337, 1, 0, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a327d');
INSERT INTO seriatim.item VALUES (9, 1, 9, false, false, false, NULL, 'work', 3, 100, 1795375060560337, 1795374460560337, 1795374460560337, 1, 0, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a337d');
INSERT INTO seriatim.item VALUES (14, 1, 14, false, false, false, NULL, 'work', 7, 100, 4102444800000000, 1795374460560337, NULL, 0, -1, 0, NULL, '{"idempotency_key":"once"}', NULL, NULL, 0, false, '\x7b226b6579223a226c61746572222c226e223a377d');
INSERT INTO seriatim.item VALUES (24, 2, 24, false, true, false, '\xda216c34428906439a307e9aa69e5838', 'work', 1, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a317d');
INSERT INTO seriatim.item VALUES (25, 2, 24, false, true, false, '\xc20e6c916cfd9605575747ed1f4ebc8b', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a327d');
INSERT INTO seriatim.item VALUES (26, 2, 24, false, true, false, '\x3bed1bb720776f600201286b51361982', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a337d');
INSERT INTO seriatim.item VALUES (21, 2, 21, false, true, false, '\x91d1e34061cb6a1d44764933a23e3b50', 'work', 1, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a317d');
INSERT INTO seriatim.item VALUES (22, 2, 21, false, true, false, '\x5c6a0e2f669a4f7c973846a9045c3c46', 'work', 2, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a327d');
INSERT INTO seriatim.item VALUES (23, 2, 21, false, true, false, '\xaba2705fb189349b167e1a1d40df0623', 'work', 3, 100, 1795374460560337, 1795374460560337, 1795374460560337, 1, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a337d');
INSERT INTO seriatim.item VALUES (29, 2, 28, false, true, false, '\x96e516a746485d4390b06f34ae052fe3', 'work', 7, 100, 4102444800000000, 1795374460560337, NULL, 0, -1, 0, NULL, '{"idempotency_key":"once"}', NULL, NULL, 0, false, '\x7b226b6579223a226c61746572222c226e223a377d');
INSERT INTO seriatim.item VALUES (31, 3, 30, false, false, false, '\xf562ce88f55beb62227616435ec2b9da', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a327d');
INSERT INTO seriatim.item VALUES (32, 3, 30, false, false, false, '\x6b61c6bca55a708c907123a4eccbe8be', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a337d');
INSERT INTO seriatim.item VALUES (34, 3, 33, false, false, false, '\xf53744a347a67553f763734086288c2f', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a327d');
INSERT INTO seriatim.item VALUES (35, 3, 33, false, false, false, '\x59387c83e64a97f0a617a7bd618c8f37', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a337d');
INSERT INTO seriatim.item VALUES (36, 3, 36, false, false, false, '\x91d1e34061cb6a1d44764933a23e3b50', 'work', 1, 100, 1795375060560337, 1795374460560337, 1795374460560337, 1, 0, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a317d');
INSERT INTO seriatim.item VALUES (37, 3, 36, false, false, false, '\x5c6a0e2f669a4f7c973846a9045c3c46', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a327d');
INSERT INTO seriatim.item VALUES (38, 3, 36, false, false, false, '\xaba2705fb189349b167e1a1d40df0623', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a337d');
INSERT INTO seriatim.item VALUES (39, 3, 39, false, false, false, '\xda216c34428906439a307e9aa69e5838', 'work', 1, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a317d');
INSERT INTO seriatim.item VALUES (40, 3, 39, false, false, false, '\xc20e6c916cfd9605575747ed1f4ebc8b', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a327d');
INSERT INTO seriatim.item VALUES (41, 3, 39, false, false, false, '\x3bed1bb720776f600201286b51361982', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a337d');
INSERT INTO seriatim.item VALUES (44, 3, 43, false, false, false, '\x96e516a746485d4390b06f34ae052fe3', 'work', 7, 100, 4102444800000000, 1795374460560337, NULL, 0, -1, 0, NULL, '{"idempotency_key":"once"}', NULL, NULL, 0, false, '\x7b226b6579223a226c61746572222c226e223a377d');
INSERT INTO seriatim.item VALUES (46, 4, 45, false, false, true, '\xf562ce88f55beb62227616435ec2b9da', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a327d');
INSERT INTO seriatim.item VALUES (47, 4, 45, false, false, true, '\x6b61c6bca55a708c907123a4eccbe8be', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a22646f6e65222c226e223a337d');
INSERT INTO seriatim.item VALUES (49, 4, 48, false, false, true, '\xf53744a347a67553f763734086288c2f', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a327d');
INSERT INTO seriatim.item VALUES (50, 4, 48, false, false, true, '\x59387c83e64a97f0a617a7bd618c8f37', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2264656164222c226e223a337d');
INSERT INTO seriatim.item VALUES (52, 4, 51, false, false, true, '\x5c6a0e2f669a4f7c973846a9045c3c46', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a327d');
INSERT INTO seriatim.item VALUES (53, 4, 51, false, false, true, '\xaba2705fb189349b167e1a1d40df0623', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a337d');
INSERT INTO seriatim.item VALUES (54, 4, 54, false, false, true, '\xda216c34428906439a307e9aa69e5838', 'work', 1, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a317d');
INSERT INTO seriatim.item VALUES (55, 4, 54, false, false, true, '\xc20e6c916cfd9605575747ed1f4ebc8b', 'work', 2, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a327d');
INSERT INTO seriatim.item VALUES (56, 4, 54, false, false, true, '\x3bed1bb720776f600201286b51361982', 'work', 3, 100, 1795374460560337, 1795374460560337, NULL, 0, -1, 0, NULL, NULL, NULL, NULL, 0, false, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a337d');
INSERT INTO seriatim.item VALUES (51, 4, 51, false, false, true, '\x91d1e34061cb6a1d44764933a23e3b50', 'work', 1, 100, 1795375060560337, 1795374460560337, 1795374460560337, 1, 0, 0, 'no paper', NULL, NULL, NULL, 0, false, '\x7b226b6579223a226661696c6564222c226e223a317d');
INSERT INTO seriatim.item VALUES (59, 4, 58, false, false, true, '\x96e516a746485d4390b06f34ae052fe3', 'work', 7, 100, 4102444800000000, 1795374460560337, NULL, 0, -1, 0, NULL, '{"idempotency_key":"once"}', NULL, NULL, 0, false, '\x7b226b6579223a226c61746572222c226e223a377d');


--
-- Data for Name: lane; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.lane VALUES (10, 1, NULL, 0, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795374460560337, NULL, 'work', 1, 1795374460560337, NULL, NULL, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a317d');
INSERT INTO seriatim.lane VALUES (11, 1, NULL, 0, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795374460560337, NULL, 'work', 2, 1795374460560337, NULL, NULL, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a327d');
INSERT INTO seriatim.lane VALUES (12, 1, NULL, 0, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795374460560337, NULL, 'work', 3, 1795374460560337, NULL, NULL, '\x7b226b6579223a2268656c642062792061206e6f6465222c226e223a337d');
INSERT INTO seriatim.lane VALUES (7, 1, NULL, 1795460860559801, false, false, 0, 1795375060560337, NULL, 0, 0, 'no paper', NULL, 100, 1795375060560337, 1795375060560337, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (8, 1, NULL, 1795460860559801, false, false, 0, 1795375060560337, NULL, 0, 0, 'no paper', NULL, 100, 1795375060560337, 1795375060560337, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (24, 2, 'held by a node', 1795460860559802, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, NULL, 100, NULL, NULL, true, 1795460860559802, 'old', false, 60000000, 1795374520560337, 1795374460560337, 1795374460560337, NULL, 26, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (9, 1, NULL, 1795460860559801, false, false, 0, 1795375060560337, NULL, 0, 0, 'no paper', NULL, 100, 1795375060560337, 1795375060560337, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 3, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (13, 1, NULL, 0, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795374460560337, NULL, 'work', 1, 1795374460560337, NULL, NULL, '\x7b226b6579223a227761697473222c226e223a317d');
INSERT INTO seriatim.lane VALUES (14, 1, NULL, 0, false, false, 0, 4102444800000000, NULL, -1, 0, NULL, NULL, 100, 4102444800000000, 4102444800000000, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 7, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (21, 2, 'failed', 1795460860559802, false, false, 0, 1795375060560337, NULL, 0, 0, 'no paper', NULL, 100, 1795375060560337, 1795375060560337, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (27, 2, 'waits', 0, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795374460560337, '\x8ef8899d01e5306b06b53663bdce7e9f', 'work', 1, 1795374460560337, NULL, NULL, '\x7b226b6579223a227761697473222c226e223a317d');
INSERT INTO seriatim.lane VALUES (28, 2, 'later', 0, false, false, 0, 4102444800000000, NULL, -1, 0, NULL, NULL, 100, 4102444800000000, 4102444800000000, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 7, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (45, 4, 'done', 1795460860559804, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (48, 4, 'dead', 1795460860559804, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (39, 3, 'held by a node', 1795460860559803, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, NULL, 100, NULL, NULL, true, 1795460860559803, 'old', false, 60000000, 1795374520560337, 1795374460560337, 1795374460560337, NULL, 39, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (30, 3, 'done', 1795460860559803, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (33, 3, 'dead', 1795460860559803, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (36, 3, 'failed', 1795460860559803, false, false, 0, 1795375060560337, NULL, 0, 0, 'no paper', NULL, 100, 1795375060560337, 1795375060560337, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (42, 3, 'waits', 0, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795374460560337, '\x8ef8899d01e5306b06b53663bdce7e9f', 'work', 1, 1795374460560337, NULL, NULL, '\x7b226b6579223a227761697473222c226e223a317d');
INSERT INTO seriatim.lane VALUES (43, 3, 'later', 0, false, false, 0, 4102444800000000, NULL, -1, 0, NULL, NULL, 100, 4102444800000000, 4102444800000000, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 7, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (54, 4, 'held by a node', 1795460860559804, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, NULL, 100, NULL, NULL, true, 1795460860559804, 'old', false, 60000000, 1795374520560337, 1795374460560337, 1795374460560337, NULL, 54, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (51, 4, 'failed', 1795460860559804, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, 1795375060560337, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.lane VALUES (57, 4, 'waits', 0, false, false, 0, 1795374460560337, NULL, -1, 0, NULL, 0, 100, 1795374460560337, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795374460560337, '\x8ef8899d01e5306b06b53663bdce7e9f', 'work', 1, 1795374460560337, NULL, NULL, '\x7b226b6579223a227761697473222c226e223a317d');
INSERT INTO seriatim.lane VALUES (58, 4, 'later', 0, false, false, 0, 4102444800000000, NULL, -1, 0, NULL, NULL, 100, 4102444800000000, 4102444800000000, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 7, NULL, NULL, NULL, NULL);


--
-- Data for Name: leader; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: looked; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: meta; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.meta VALUES (true, 15);


--
-- Data for Name: node; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.node VALUES ('hand-1', '{"id":"hand-1","name":"hand-1","host":"","pid":12374,"version":"0.1.0","queues":["parallel","accumulate","fifo","exclusive"],"concurrency":1,"busy":0,"started_at":1795460860560337,"lease":"1m","troubles":[],"origin":null}', 60000000, 1795460860560337, NULL, NULL, 0);
INSERT INTO seriatim.node VALUES ('old', '{"id":"old","name":"hand-1","host":"","pid":12374,"version":"0.1.0","queues":["parallel","accumulate","fifo","exclusive"],"concurrency":1,"busy":0,"started_at":1795460860560337,"lease":"1m","troubles":[],"origin":null}', 60000000, 1795374460560337, NULL, NULL, 0);


--
-- Data for Name: note; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: queue; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.queue VALUES (1, 'parallel', 0, 0, false, 1, 283824000000000, 283824000000000, 100000, 283824000000000, 3600000000, '{"name":"parallel","mode":"parallel","merge":"min","due":"first","take":1,"batch_size":1,"max_retries":1,"backoff":{"kind":"polynomial"},"exhausted":"bury","max_crashes":5,"timeout":null,"lease":null,"lease_max":"1h","retain_completed":"3285d","retain_dead":"3285d","retain_dead_max":100000,"idempotency_ttl":"3285d","weight":1,"shards":1}', true, false, false);
INSERT INTO seriatim.queue VALUES (2, 'accumulate', 1, 0, false, 1, 283824000000000, 283824000000000, 100000, 283824000000000, 3600000000, '{"name":"accumulate","mode":"accumulate","merge":"min","due":"first","take":1,"batch_size":1,"max_retries":1,"backoff":{"kind":"polynomial"},"exhausted":"bury","max_crashes":5,"timeout":null,"lease":null,"lease_max":"1h","retain_completed":"3285d","retain_dead":"3285d","retain_dead_max":100000,"idempotency_ttl":"3285d","weight":1,"shards":1}', true, false, false);
INSERT INTO seriatim.queue VALUES (3, 'fifo', 2, 0, false, 1, 283824000000000, 283824000000000, 100000, 283824000000000, 3600000000, '{"name":"fifo","mode":"fifo","merge":"min","due":"first","take":1,"batch_size":1,"max_retries":1,"backoff":{"kind":"polynomial"},"exhausted":"bury","max_crashes":5,"timeout":null,"lease":null,"lease_max":"1h","retain_completed":"3285d","retain_dead":"3285d","retain_dead_max":100000,"idempotency_ttl":"3285d","weight":1,"shards":1}', true, false, false);
INSERT INTO seriatim.queue VALUES (4, 'exclusive', 3, 0, false, 1, 283824000000000, 283824000000000, 100000, 283824000000000, 3600000000, '{"name":"exclusive","mode":"exclusive","merge":"min","due":"first","take":1,"batch_size":1,"max_retries":1,"backoff":{"kind":"polynomial"},"exhausted":"bury","max_crashes":5,"timeout":null,"lease":null,"lease_max":"1h","retain_completed":"3285d","retain_dead":"3285d","retain_dead_max":100000,"idempotency_ttl":"3285d","weight":1,"shards":1}', true, false, false);


--
-- Data for Name: ready; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.ready VALUES (1, 0, 100, 1795374460560337, 13, true);
INSERT INTO seriatim.ready VALUES (2, 0, 100, 1795374460560337, 27, true);
INSERT INTO seriatim.ready VALUES (3, 0, 100, 1795374460560337, 30, false);
INSERT INTO seriatim.ready VALUES (3, 0, 100, 1795374460560337, 33, false);
INSERT INTO seriatim.ready VALUES (3, 0, 100, 1795374460560337, 42, true);
INSERT INTO seriatim.ready VALUES (4, 0, 100, 1795374460560337, 45, false);
INSERT INTO seriatim.ready VALUES (4, 0, 100, 1795374460560337, 48, false);
INSERT INTO seriatim.ready VALUES (4, 0, 100, 1795374460560337, 51, false);
INSERT INTO seriatim.ready VALUES (4, 0, 100, 1795374460560337, 57, true);


--
-- Data for Name: route; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: secret; Type: TABLE DATA; Schema: seriatim; Owner: -
--



--
-- Data for Name: seeded; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.seeded VALUES (true, '00000001 1795460856.303511 1795460855.930498');


--
-- Data for Name: tally; Type: TABLE DATA; Schema: seriatim; Owner: -
--

INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, 12, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, -1, -1, -1, NULL, 1, NULL);
INSERT INTO seriatim.tally VALUES (1, -1, -1, -1, NULL, 1, NULL);
INSERT INTO seriatim.tally VALUES (1, -1, -1, -1, NULL, 1, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, 1, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, -1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (1, -1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, 1, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, -1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (1, -1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, 1, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, -1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (1, -1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (1, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, NULL, 4, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, 0, -3, -1, NULL, 3, NULL);
INSERT INTO seriatim.tally VALUES (2, -1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, NULL, NULL, 3, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, -3, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (2, -1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (2, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, 1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (2, 0, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, NULL, 4, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, 0, -1, -1, NULL, 1, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, NULL, NULL, 1, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, -1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (3, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (3, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, 1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (3, 0, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, NULL, 4, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, 0, -1, -1, NULL, 1, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, NULL, NULL, 1, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, -1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (4, NULL, NULL, -1, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, NULL, NULL, NULL, NULL, 0, 1);
INSERT INTO seriatim.tally VALUES (4, 1, 1, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, 1, NULL, NULL, NULL, NULL, NULL);
INSERT INTO seriatim.tally VALUES (4, 0, 1, NULL, NULL, NULL, NULL);


--
-- Name: inbox_id_seq; Type: SEQUENCE SET; Schema: seriatim; Owner: -
--

SELECT pg_catalog.setval('seriatim.inbox_id_seq', 1, false);


--
-- Name: route_number_seq; Type: SEQUENCE SET; Schema: seriatim; Owner: -
--

SELECT pg_catalog.setval('seriatim.route_number_seq', 1, false);


--
-- Name: seq; Type: SEQUENCE SET; Schema: seriatim; Owner: -
--

SELECT pg_catalog.setval('seriatim.seq', 59, true);


--
-- Name: token; Type: SEQUENCE SET; Schema: seriatim; Owner: -
--

SELECT pg_catalog.setval('seriatim.token', 1795460860559804, true);


--
-- Name: alias alias_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.alias
    ADD CONSTRAINT alias_pkey PRIMARY KEY (seq);


--
-- Name: batch batch_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (token);


--
-- Name: ended ended_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.ended
    ADD CONSTRAINT ended_pkey PRIMARY KEY (seq);


--
-- Name: extension extension_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.extension
    ADD CONSTRAINT extension_pkey PRIMARY KEY (lane);


--
-- Name: idempotency idempotency_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (queue, key, name);


--
-- Name: inbox_asleep inbox_asleep_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.inbox_asleep
    ADD CONSTRAINT inbox_asleep_pkey PRIMARY KEY (one);


--
-- Name: inbox inbox_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (id);


--
-- Name: item item_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.item
    ADD CONSTRAINT item_pkey PRIMARY KEY (seq);


--
-- Name: lane lane_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (number);


--
-- Name: leader leader_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.leader
    ADD CONSTRAINT leader_pkey PRIMARY KEY (role);


--
-- Name: looked looked_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.looked
    ADD CONSTRAINT looked_pkey PRIMARY KEY (one);


--
-- Name: meta meta_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (one);


--
-- Name: node node_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.node
    ADD CONSTRAINT node_pkey PRIMARY KEY (id);


--
-- Name: note note_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.note
    ADD CONSTRAINT note_pkey PRIMARY KEY (name);


--
-- Name: queue queue_name_key; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.queue
    ADD CONSTRAINT queue_name_key UNIQUE (name);


--
-- Name: queue queue_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (number);


--
-- Name: ready ready_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.ready
    ADD CONSTRAINT ready_pkey PRIMARY KEY (queue, class, priority, at, number);


--
-- Name: route route_node_consumer_group_key; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.route
    ADD CONSTRAINT route_node_consumer_group_key UNIQUE (node, consumer_group);


--
-- Name: route route_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.route
    ADD CONSTRAINT route_pkey PRIMARY KEY (number);


--
-- Name: secret secret_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.secret
    ADD CONSTRAINT secret_pkey PRIMARY KEY (one);


--
-- Name: seeded seeded_pkey; Type: CONSTRAINT; Schema: seriatim; Owner: -
--

ALTER TABLE ONLY seriatim.seeded
    ADD CONSTRAINT seeded_pkey PRIMARY KEY (one);


--
-- Name: alias_of; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX alias_of ON seriatim.alias USING btree (of_seq);


--
-- Name: ended_age; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX ended_age ON seriatim.ended USING btree (queue, state, ((- ended_at)), seq) WHERE (queue IS NOT NULL);


--
-- Name: ended_key; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX ended_key ON seriatim.ended USING btree (queue, state, COALESCE(key, ''::text), seq) WHERE (queue IS NOT NULL);


--
-- Name: ended_list; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX ended_list ON seriatim.ended USING btree (queue, state, seq) WHERE (queue IS NOT NULL);


--
-- Name: ended_until; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX ended_until ON seriatim.ended USING btree (until) WHERE (until IS NOT NULL);


--
-- Name: idempotency_until; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX idempotency_until ON seriatim.idempotency USING btree (until);


--
-- Name: inbox_refused; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX inbox_refused ON seriatim.inbox USING btree (((- id))) WHERE (refused IS NOT NULL);


--
-- Name: inbox_waiting; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX inbox_waiting ON seriatim.inbox USING btree (((id + 0))) WHERE (refused IS NULL);


--
-- Name: item_arrival; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_arrival ON seriatim.item USING btree (queue, seq) WHERE (queue IS NOT NULL);


--
-- Name: item_closed; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_closed ON seriatim.item USING btree ((
CASE
    WHEN closed THEN lane
    ELSE NULL::bigint
END)) WHERE closed;


--
-- Name: item_equal; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE UNIQUE INDEX item_equal ON seriatim.item USING btree (lane, digest) WHERE (merging AND (NOT closed));


--
-- Name: item_expiry; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_expiry ON seriatim.item USING btree (expires_at, seq) WHERE ((expires_at IS NOT NULL) AND (NOT closed));


--
-- Name: item_flagged; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_flagged ON seriatim.item USING btree (lane) WHERE flagged;


--
-- Name: item_later; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_later ON seriatim.item USING btree (lane, run_at, seq) WHERE (loose AND (NOT closed));


--
-- Name: item_order; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_order ON seriatim.item USING btree (lane, score, seq) WHERE (lane IS NOT NULL);


--
-- Name: item_priority; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_priority ON seriatim.item USING btree ((
CASE
    WHEN (priority <> 100) THEN lane
    ELSE NULL::bigint
END), priority) WHERE ((priority <> 100) AND (NOT loose) AND (NOT closed));


--
-- Name: item_urgency; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX item_urgency ON seriatim.item USING btree (lane, priority, run_at, seq) WHERE (loose AND (NOT closed));


--
-- Name: lane_age; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX lane_age ON seriatim.lane USING btree (queue, number) WHERE (number > 0);


--
-- Name: lane_key; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE UNIQUE INDEX lane_key ON seriatim.lane USING btree (queue, key) WHERE (key IS NOT NULL);


--
-- Name: lane_retrying; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX lane_retrying ON seriatim.lane USING btree ((
CASE
    WHEN (retry_count >= 0) THEN queue
    ELSE NULL::integer
END), ((- retry_count)), number) WHERE (retry_count >= 0);


--
-- Name: lane_stopped; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX lane_stopped ON seriatim.lane USING btree (queue, number) WHERE (held OR paused);


--
-- Name: lane_wake; Type: INDEX; Schema: seriatim; Owner: -
--

CREATE INDEX lane_wake ON seriatim.lane USING btree (queue, wake, number) WHERE (wake IS NOT NULL);


--
-- Name: inbox ring; Type: TRIGGER; Schema: seriatim; Owner: -
--

CREATE TRIGGER ring AFTER INSERT ON seriatim.inbox FOR EACH STATEMENT EXECUTE FUNCTION seriatim.ring_inbox();


--
-- PostgreSQL database dump complete
--

\unrestrict iWxsZ3jrbhudeQotdsKoAeEslxZ2FzLD91XqlaePa1nbI6gwS6tegVcnnsZPLUM

