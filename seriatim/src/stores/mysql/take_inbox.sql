SELECT id, action, LEFT(queue, 1024), LEFT(`key`, 1024), IF(LENGTH(payload) <= {payload_max}, payload, NULL),
  LEFT(task, 1024), CAST(score AS CHAR), CAST(priority AS CHAR), LEFT(idempotency_key, 1024), LEFT(node, 1024),
  LEFT(consumer_group, 1024), LEFT(partition_key, 1024), LEFT(producer, 1024), LEFT(job_id, 1024),
  CAST(max_retries AS CHAR), LEFT(key_group, 1024), LENGTH(payload),
  CAST(UNIX_TIMESTAMP(run_at) * 1000000 AS SIGNED), CAST(UNIX_TIMESTAMP(expires_at) * 1000000 AS SIGNED)
FROM seriatim_inbox FORCE INDEX (PRIMARY) WHERE id IN ({rows}) AND waits = 1 ORDER BY id FOR UPDATE SKIP LOCKED
