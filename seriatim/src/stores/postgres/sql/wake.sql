-- Wake-ups: see summons.rs.

-- First enters this process where it waits, and takes it out where it waits no more. _place: its place in the order of those that
-- wait; _process: its session. Then wakes others. Queues are names, separated by commas.
-- _all: queues of which every process is told, on _channel; null: all queues.
-- _two: queues of which two that wait are told, each on a channel of its own. All are, if fewer than two wait, if one of the two is
-- gone, or if the queue has ready lanes that not every process may take. Who is drawn differs each time.
-- _next: the same for what is left, but one or nobody is enough; all only if one that was drawn is gone.
CREATE FUNCTION seriatim.wake(_channel text, _all text, _two text, _next text, _enters text, _leaves text, _place int, _process int)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  -- In bytes; the server refuses 8,000. A message for more queues is for all.
  _longest CONSTANT int := 7900;
  _from int := (random() * 2147483647)::int;
  _queues text;
  _named int[];
  _own text[];
BEGIN
  DELETE FROM seriatim.sleeper WHERE queue = ANY (string_to_array(_leaves, ',')) AND place = _place;
  -- Before any row of another process is locked, because it may wait for its own.
  INSERT INTO seriatim.sleeper (queue, place, process, began)
    SELECT queue, _place, _process, (SELECT backend_start FROM pg_stat_get_activity(_process))
    FROM unnest(string_to_array(_enters, ',')) queue ORDER BY queue
    ON CONFLICT (queue, place) DO UPDATE SET process = excluded.process, began = excluded.began;
  WITH asked AS (
    SELECT unnest(string_to_array(_two, ',')) AS queue, true AS surely
    UNION ALL SELECT unnest(string_to_array(_next, ',')), false),
  chosen AS MATERIALIZED (
    SELECT a.queue, s.place, s.process,
      EXISTS (SELECT FROM pg_stat_get_activity(s.process) p WHERE coalesce(p.backend_start = s.began, true)) AS lives
    FROM asked a CROSS JOIN LATERAL (
      SELECT * FROM (
        (SELECT n.place, n.process, n.began FROM seriatim.sleeper n WHERE n.queue = a.queue AND n.place >= _from AND n.place <> _place
          ORDER BY n.place LIMIT 2)
        UNION ALL
        (SELECT n.place, n.process, n.began FROM seriatim.sleeper n WHERE n.queue = a.queue AND n.place < _from AND n.place <> _place
          ORDER BY n.place LIMIT 2)) n
      LIMIT 2) s),
  gone AS (
    DELETE FROM seriatim.sleeper WHERE ctid = ANY (ARRAY(
      SELECT s.ctid FROM chosen c JOIN seriatim.sleeper s ON s.queue = c.queue AND s.place = c.place AND s.process = c.process
      WHERE NOT c.lives FOR UPDATE OF s SKIP LOCKED))),
  answer AS (
    SELECT a.queue, a.surely, count(c.process) AS count,
      CASE WHEN NOT a.surely THEN bool_and(c.lives)
        ELSE bool_and(c.lives) AND count(*) = 2 AND NOT EXISTS (
          SELECT FROM seriatim.queue q JOIN seriatim.ready r ON r.queue = q.number
          WHERE q.name = a.queue AND r.class > 0 OFFSET 0) END AS are_enough
    FROM asked a LEFT JOIN chosen c USING (queue) GROUP BY a.queue, a.surely),
  named AS (
    SELECT c.process, string_agg(c.queue, ',') AS queues FROM chosen c JOIN answer a USING (queue)
    WHERE a.are_enough GROUP BY c.process)
  SELECT string_agg(queue, ',') FILTER (WHERE are_enough IS NOT TRUE AND (surely OR count > 0)),
    (SELECT array_agg(process ORDER BY process) FROM named), (SELECT array_agg(queues ORDER BY process) FROM named)
  INTO _queues, _named, _own
  FROM answer;
  _queues := CASE WHEN _all IS NOT NULL THEN concat_ws(',', nullif(_all, ''), _queues) END;
  IF _queues IS NULL OR length(_queues) > _longest THEN
    PERFORM pg_notify(_channel, '');
  ELSIF _queues <> '' THEN
    PERFORM pg_notify(_channel, _queues);
  END IF;
  PERFORM pg_notify(_channel || '_' || process, CASE WHEN length(own) > _longest THEN '' ELSE own END)
  FROM unnest(_named, _own) n (process, own);
END $$;
