-- Batches of jobs: decision 0048. A job's options name its batch. How jobs leave: 0 done, 1 dead,
-- 2 cancelled, 3 merged with another one of the batch; 4: a dead one comes back.
--
-- A batch's row is the last that a step locks: a step writes it once, after everything else.

-- The batch that a job's options name.
CREATE FUNCTION seriatim.batch_in(_options text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  -- Reading JSON takes longer than all else that the end of a job does with its options.
  SELECT CASE WHEN _options IS NULL OR _options NOT LIKE '%"batch":%' THEN NULL
    WHEN _options NOT LIKE '%"batch":"%' OR strpos(_options, '\') > 0 THEN _options::json->>'batch'
    ELSE split_part(split_part(_options, '"batch":"', 2), '"', 1) END
$$;

-- Whether options change nothing of how the job runs.
CREATE FUNCTION seriatim.are_plain(_options text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN _options IS NULL THEN true
    ELSE _options::jsonb - '{batch,idempotency_key,idempotency_scope,partition_key,producer,consumer,traceparent}'::text[]
      = '{}' END
$$;

-- Jobs that leave a batch in one way.
CREATE TYPE seriatim.leaving AS (batch text, how smallint, jobs bigint);

-- The batches of those of these jobs that have one. They have not ended, and rows of their own.
CREATE FUNCTION seriatim.batches_of(_jobs bigint[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT array_agg(x.batch) FROM (SELECT seriatim.batch_in(i.options) AS batch
    FROM seriatim.item i WHERE i.seq = ANY (_jobs) OFFSET 0) x WHERE x.batch IS NOT NULL);
END $$;

-- Pushes the callback of a batch that has ended, and returns its queue, to be woken. What refuses it must not fail the end of the
-- last job.
CREATE FUNCTION seriatim.call_back(_b seriatim.job_batch, _now bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  _c json := _b.callback;
  _options text := jsonb_set(coalesce((_c->>'options')::jsonb, '{}'), '{ended_batch}', jsonb_build_object(
    'id', _b.id, 'done', greatest(_b.done, 0), 'dead', greatest(_b.dead, 0), 'cancelled', greatest(_b.cancelled, 0)))::text;
  _pushed record;
BEGIN
  SELECT * INTO _pushed FROM seriatim.push(_now, _c->>'queues', ARRAY[1], ARRAY[_c->>'key'], ARRAY[_c->>'task'],
    ARRAY[_b.digest], ARRAY[(_c->>'score')::float8], ARRAY[(_c->>'priority')::smallint], ARRAY[NULL::bigint],
    ARRAY[NULL::bigint], ARRAY[_options], ARRAY[(_c->>'lease_ttl')::bigint], ARRAY[(_c->>'expires_at')::bigint],
    ARRAY[_c->>'name'], ARRAY[_c->>'node'], ARRAY[_c->>'consumer_group'], ARRAY[_b.payload],
    ARRAY(SELECT g::bigint FROM json_array_elements_text(_c->'groups') g), '{}');
  IF _pushed.o_again_at IS NOT NULL THEN
    UPDATE seriatim.job_batch SET refused = 'the key of the callback is throttled: it was not pushed' WHERE id = _b.id;
    RETURN NULL;
  END IF;
  UPDATE seriatim.job_batch
  SET job_queue = _pushed.o_queue, job_seq = _pushed.o_seq, job_created_at = _pushed.o_created_at WHERE id = _b.id;
  RETURN _c->>'queue';
EXCEPTION WHEN OTHERS THEN
  IF SQLSTATE NOT LIKE 'SR%' THEN
    RAISE;
  END IF;
  UPDATE seriatim.job_batch SET refused = SQLERRM WHERE id = _b.id;
  RETURN NULL;
END $$;

-- Wakes the nodes of these queues, by a NOTIFY whose commit waits for the NOTIFYs of the whole server. A settle lets its client
-- do it instead: there are many, and some are users' transactions.
CREATE FUNCTION seriatim.wake_queues(_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify(rtrim('seriatim.', '.') || '_due', q) FROM unnest(_queues) q WHERE q IS NOT NULL;
END $$;

-- Ends a batch that is sealed and has no job left. Returns the queue to be woken.
CREATE FUNCTION seriatim.end_batch(_id text, _now bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  _b seriatim.job_batch;
BEGIN
  UPDATE seriatim.job_batch SET ended_at = _now
  WHERE id = _id AND ended_at IS NULL AND sealed AND pending <= 0 RETURNING * INTO _b;
  RETURN CASE WHEN FOUND THEN seriatim.call_back(_b, _now) END;
END $$;

-- Counts jobs that leave their batches, and ends the batches whose last job has left. The end of a batch fixes its counts.
-- Returns the queues to be woken.
CREATE FUNCTION seriatim.leave_job_batches(_leaving seriatim.leaving[], _now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  _one record;
  _ends boolean;
  _called text[] := '{}';
BEGIN
  FOR _one IN
    SELECT w.batch COLLATE "C" AS id, sum(CASE how WHEN 4 THEN jobs ELSE -jobs END)::bigint AS pending,
      sum(CASE how WHEN 0 THEN jobs ELSE 0 END)::bigint AS done,
      sum(CASE how WHEN 1 THEN jobs WHEN 4 THEN -jobs ELSE 0 END)::bigint AS dead,
      sum(CASE how WHEN 2 THEN jobs ELSE 0 END)::bigint AS cancelled
    FROM unnest(_leaving) w GROUP BY 1 ORDER BY 1
  LOOP
    UPDATE seriatim.job_batch b SET pending = b.pending + _one.pending, done = b.done + _one.done, dead = b.dead + _one.dead,
      cancelled = b.cancelled + _one.cancelled
    WHERE b.id = _one.id AND b.ended_at IS NULL RETURNING b.sealed AND b.pending <= 0 INTO _ends;
    IF _ends THEN
      _called := _called || seriatim.end_batch(_one.id, _now);
    END IF;
  END LOOP;
  RETURN array_remove(_called, NULL);
END $$;

-- The same for jobs that all leave in one way, each once in the array.
CREATE FUNCTION seriatim.leave_job_batches(_batches text[], _how int, _now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM seriatim.wake_queues(seriatim.leave_job_batches(
    ARRAY(SELECT ROW(b, _how, count(*))::seriatim.leaving FROM unnest(_batches) b GROUP BY b), _now));
END $$;

-- Those of these batches, one for each job that leaves, that another transaction keeps locked: their rows or, if these are the
-- last jobs, the keys of their callbacks. Tries it and undoes it: a row that is not there yet can be locked, too.
CREATE FUNCTION seriatim.batches_in_use(_batches text[], _now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  _was text := current_setting('lock_timeout');
  _one record;
  _b seriatim.job_batch;
  _in_use text[] := '{}';
BEGIN
  PERFORM set_config('lock_timeout', '200ms', true);
  FOR _one IN
    SELECT w.batch COLLATE "C" AS id, count(*) AS jobs FROM unnest(_batches) w (batch)
    WHERE w.batch IS NOT NULL GROUP BY 1 ORDER BY 1
  LOOP
    BEGIN
      SELECT * INTO _b FROM seriatim.job_batch WHERE id = _one.id AND ended_at IS NULL FOR UPDATE NOWAIT;
      IF _b.sealed AND _b.pending <= _one.jobs THEN
        PERFORM seriatim.call_back(_b, _now);
      END IF;
      RAISE EXCEPTION 'it is free' USING ERRCODE = 'SR028';
    EXCEPTION
      WHEN SQLSTATE 'SR028' THEN NULL;
      WHEN lock_not_available THEN
        _in_use := _in_use || _one.id::text;
    END;
  END LOOP;
  PERFORM set_config('lock_timeout', _was, true);
  RETURN _in_use;
END $$;

-- The places, from 1, of turns with jobs of such batches. They can be settled only when the batches are free.
CREATE FUNCTION seriatim.behind_batches(_now bigint, _lane bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
  _places bigint[];
  _batches text[];
BEGIN
  SELECT array_agg(x.place), array_agg(x.batch) INTO _places, _batches FROM (
    SELECT w.place, seriatim.batch_in(o.options) AS batch
    FROM unnest(_lane) WITH ORDINALITY w (lane, place)
    CROSS JOIN LATERAL (SELECT * FROM seriatim.lane n WHERE n.number = w.lane OFFSET 0) l
    CROSS JOIN LATERAL (SELECT * FROM seriatim.queue n WHERE n.number = l.queue OFFSET 0) q
    CROSS JOIN LATERAL (
      SELECT l.options WHERE l.payload IS NOT NULL
      UNION ALL
      SELECT i.options FROM seriatim.owned(l.number, q.mode, l.taken, l.joined) i) o OFFSET 0) x
  WHERE x.batch IS NOT NULL;
  RETURN QUERY SELECT DISTINCT w.place FROM unnest(_places, _batches) w (place, batch)
    WHERE w.batch = ANY (seriatim.batches_in_use(_batches, coalesce(_now, seriatim.clock())));
END $$;

-- Counts pushed jobs in their batches. A repeat joins none.
CREATE FUNCTION seriatim.join_batches(_batch text[], _states smallint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _one record;
BEGIN
  FOR _one IN
    SELECT w.batch COLLATE "C" AS id, count(*) FILTER (WHERE w.state = 0) AS jobs, min(w.place) AS first
    FROM unnest(_batch, _states) WITH ORDINALITY w (batch, state, place)
    WHERE w.batch IS NOT NULL AND w.state <> 2 GROUP BY 1 ORDER BY 1
  LOOP
    UPDATE seriatim.job_batch b SET pending = b.pending + _one.jobs WHERE b.id = _one.id AND b.ended_at IS NULL;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the batch takes no jobs' USING DETAIL = _one.first - 1,
        ERRCODE = CASE WHEN EXISTS (SELECT FROM seriatim.job_batch b WHERE b.id = _one.id) THEN 'SR021' ELSE 'SR022' END;
    END IF;
  END LOOP;
END $$;

-- push(), for jobs of which some name a batch, in _batch.
CREATE FUNCTION seriatim.push_in_batches(_now bigint, _queues text, _queue int[], _key text[], _task text[],
  _digest bytea[], _score float8[], _priority smallint[], _at bigint[], _delay bigint[],
  _options text[], _lease_ttl bigint[], _expires_at bigint[], _name text[], _node text[],
  _group text[], _payload bytea[], _grp bigint[], _past text[], _batch text[])
RETURNS TABLE (o_status smallint, o_queue int, o_created_at bigint, o_seq bigint, o_again_at bigint) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY
    WITH pushed AS MATERIALIZED (
      SELECT p.* FROM seriatim.push(_now, _queues, _queue, _key, _task, _digest, _score, _priority, _at, _delay, _options,
        _lease_ttl, _expires_at, _name, _node, _group, _payload, _grp, _past) p),
    joined AS MATERIALIZED (
      SELECT seriatim.join_batches(_batch, (SELECT array_agg(p.o_status) FROM pushed p)))
    SELECT p.* FROM joined CROSS JOIN pushed p;
END $$;

-- Opens a batch. _rows_max: most that have not ended.
CREATE FUNCTION seriatim.open_batch(_now bigint, _id text, _callback text, _payload bytea, _digest bytea, _rows_max bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  _c json := _callback;
  _was seriatim.job_batch;
BEGIN
  -- Its queue and route are made now: at the end of the batch, that would lock the table of queues, and a route, behind lanes.
  PERFORM seriatim.check_jobs(seriatim.queues_for((_c->>'queues')::jsonb), ARRAY[_c->>'key'],
    ARRAY[(_c->>'lease_ttl')::bigint], ARRAY(SELECT g::bigint FROM json_array_elements_text(_c->'groups') g));
  PERFORM seriatim.routes_for(ARRAY[_c->>'node'], ARRAY[_c->>'consumer_group']);
  INSERT INTO seriatim.job_batch (id, opened_at, callback, payload, digest)
  VALUES (_id, coalesce(_now, seriatim.clock()), _c, _payload, _digest) ON CONFLICT DO NOTHING;
  IF FOUND THEN
    IF (SELECT count(*) FROM (SELECT FROM seriatim.job_batch WHERE ended_at IS NULL LIMIT _rows_max + 1) x) > _rows_max THEN
      RAISE EXCEPTION 'too many batches' USING ERRCODE = 'SR024';
    END IF;
    RETURN;
  END IF;
  SELECT * INTO _was FROM seriatim.job_batch WHERE id = _id;
  IF _was.callback::text <> _callback OR _was.digest <> _digest THEN
    RAISE EXCEPTION 'the batch has another callback' USING ERRCODE = 'SR023';
  END IF;
END $$;

-- Whether there is such a batch.
CREATE FUNCTION seriatim.seal_batch(_now bigint, _id text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE seriatim.job_batch SET sealed = true WHERE id = _id;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM seriatim.wake_queues(ARRAY[seriatim.end_batch(_id, coalesce(_now, seriatim.clock()))]);
  RETURN true;
END $$;
