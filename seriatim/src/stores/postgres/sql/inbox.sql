-- The inbox: tasks that any SQL session inserts. Decision 0036 says what its order is.

CREATE FUNCTION seriatim.micros_of(_time timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS $$
  -- Cut to 30,000 years, which is refused, as infinity is.
  SELECT round(least(greatest(extract(epoch FROM _time), -1e12), 1e12) * 1e6)::bigint
$$;

-- Whether rows wait.
CREATE FUNCTION seriatim.inbox_waits() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT i.id FROM seriatim.inbox i WHERE i.refused IS NULL ORDER BY i.id + 0 LIMIT 1) IS NOT NULL;
END $$;

-- The oldest rows, locked. Those that another transaction has locked are passed by. The
-- caller holds the advisory lock of the inbox, taken in an earlier statement: this one's snapshot shows what the
-- last holder deleted.
CREATE FUNCTION seriatim.take_inbox(_rows_max bigint, _bytes_max bigint, _payload_max bigint) RETURNS SETOF text
LANGUAGE plpgsql AS $$
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
    'producer', left(s.producer, 1024), 'job_id', left(s.job_id, 1024),
    'max_retries', s.max_retries::text, 'key_group', left(s.key_group, 1024))::text
  FROM sized s WHERE s.up_to <= _bytes_max ORDER BY s.id;
END $$;

-- Deletes rows that were carried out, and marks those that were refused, of which the latest are kept.
CREATE FUNCTION seriatim.end_inbox(_done bigint[], _refused bigint[], _why text[], _refused_max bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM seriatim.inbox WHERE id = ANY (_done);
  IF cardinality(_refused) > 0 THEN
    UPDATE seriatim.inbox i SET refused = w.why, refused_at = now()
    FROM unnest(_refused, _why) w (id, why) WHERE i.id = w.id;
    DELETE FROM seriatim.inbox WHERE id = ANY (ARRAY(
      SELECT i.id FROM seriatim.inbox i WHERE i.refused IS NOT NULL ORDER BY i.id + 0 DESC OFFSET _refused_max LIMIT 1000));
  END IF;
  -- What is inserted from the commit on is found by the next look, without a NOTIFY.
  DELETE FROM seriatim.inbox_asleep;
END $$;

-- When the oldest row that waits was inserted, and the latest refused rows.
CREATE FUNCTION seriatim.list_inbox(_rows_max bigint, OUT o_since bigint, OUT o_refused text[])
LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT seriatim.micros_of(i.inserted_at) INTO o_since
  FROM seriatim.inbox i WHERE i.refused IS NULL ORDER BY i.id + 0 LIMIT 1;
  o_refused := ARRAY(
    SELECT json_build_object('row', i.id, 'queue', left(i.queue, 1024), 'key', left(i.key, 1024), 'why', left(i.refused, 1024),
      'at', coalesce(seriatim.micros_of(i.refused_at), 0))::text
    FROM seriatim.inbox i WHERE i.refused IS NOT NULL ORDER BY i.id + 0 DESC LIMIT _rows_max);
END $$;
