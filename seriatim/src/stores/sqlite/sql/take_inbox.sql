SELECT json_object(
  'id', id, 'action', substr(CAST(action AS TEXT), 1, 1024), 'queue', substr(CAST(queue AS TEXT), 1, 1024),
  'key', substr(CAST(key AS TEXT), 1, 1024), 'bytes', bytes,
  'payload', CASE WHEN bytes <= ?2 THEN CAST(payload AS TEXT) END, 'task', substr(CAST(task AS TEXT), 1, 1024),
  'score', CASE typeof(score) WHEN 'real' THEN printf('%!.17g', score) ELSE CAST(score AS TEXT) END,
  'priority', CAST(priority AS TEXT), 'run_at', run_us, 'expires_at', expires_us,
  'bad_time', CASE WHEN run_at IS NOT NULL AND run_us IS NULL THEN 'run_at'
    WHEN expires_at IS NOT NULL AND expires_us IS NULL THEN 'expires_at' END,
  -- A text ends at a NUL: what follows would be lost silently.
  'bad_text', CASE
    WHEN instr(CAST(queue AS BLOB), x'00') > 0 THEN 'queue'
    WHEN instr(CAST(key AS BLOB), x'00') > 0 THEN 'key'
    WHEN instr(CAST(payload AS BLOB), x'00') > 0 THEN 'payload'
    WHEN instr(CAST(task AS BLOB), x'00') > 0 THEN 'task'
    WHEN instr(CAST(idempotency_key AS BLOB), x'00') > 0 THEN 'idempotency_key'
    WHEN instr(CAST(node AS BLOB), x'00') > 0 THEN 'node'
    WHEN instr(CAST(consumer_group AS BLOB), x'00') > 0 THEN 'consumer_group'
    WHEN instr(CAST(partition_key AS BLOB), x'00') > 0 THEN 'partition_key'
    WHEN instr(CAST(producer AS BLOB), x'00') > 0 THEN 'producer'
    WHEN instr(CAST(key_group AS BLOB), x'00') > 0 THEN 'key_group' END,
  'idempotency_key', substr(CAST(idempotency_key AS TEXT), 1, 1024), 'node', substr(CAST(node AS TEXT), 1, 1024),
  'consumer_group', substr(CAST(consumer_group AS TEXT), 1, 1024),
  'partition_key', substr(CAST(partition_key AS TEXT), 1, 1024),
  'producer', substr(CAST(producer AS TEXT), 1, 1024), 'job_id', substr(CAST(job_id AS TEXT), 1, 1024),
  'max_retries', CAST(max_retries AS TEXT), 'key_group', substr(CAST(key_group AS TEXT), 1, 1024))
FROM (
  SELECT *, length(CAST(payload AS BLOB)) AS bytes,
    CASE typeof(run_at) WHEN 'text' THEN CAST(round((julianday(run_at) - 2440587.5) * 86400000.0) AS INTEGER) * 1000
      WHEN 'integer' THEN CAST(run_at * 1e6 AS INTEGER) WHEN 'real' THEN CAST(run_at * 1e6 AS INTEGER) END AS run_us,
    CASE typeof(expires_at)
      WHEN 'text' THEN CAST(round((julianday(expires_at) - 2440587.5) * 86400000.0) AS INTEGER) * 1000
      WHEN 'integer' THEN CAST(expires_at * 1e6 AS INTEGER)
      WHEN 'real' THEN CAST(expires_at * 1e6 AS INTEGER) END AS expires_us
  FROM seriatim_inbox INDEXED BY inbox_waiting WHERE refused IS NULL ORDER BY id LIMIT ?1)
