-- Deleting a queue.

-- Removes the contents of a closed queue, about _rows_max rows of each kind, and finally the queue. Pushes and claims
-- hold its lock shared, so none runs meanwhile. Lanes are deleted after their jobs.
CREATE FUNCTION seriatim.delete_queue(_name text, _rows_max int, OUT o_count bigint, OUT o_more boolean)
LANGUAGE plpgsql AS $$
DECLARE
  _number int;
  _q seriatim.queue;
  _claimed bigint;
  _lanes bigint[];
  _jobs bigint[];
  _ended bigint[];
  _names bigint;
  _packed bigint;
  _left text[];
  _left_too text[];
BEGIN
  LOCK TABLE seriatim.queue IN SHARE ROW EXCLUSIVE MODE;
  _number := seriatim.queue_number(_name);
  SELECT * INTO _q FROM seriatim.queue WHERE number = _number;
  PERFORM seriatim.lock_alone(_q, 'queue');
  SELECT count(*) INTO _claimed FROM seriatim.claimed_lane WHERE queue = _number;
  IF _claimed > 0 THEN
    RAISE EXCEPTION 'lanes are claimed' USING ERRCODE = 'SR011', DETAIL = _claimed;
  END IF;
  UPDATE seriatim.queue SET closing = true, paused = true WHERE number = _number AND NOT closing;

  _jobs := ARRAY(SELECT seq FROM seriatim.item
    WHERE queue = _number AND queue IS NOT NULL ORDER BY seq LIMIT _rows_max);
  PERFORM seriatim.lock_lanes(ARRAY(SELECT DISTINCT lane FROM seriatim.item WHERE seq = ANY (_jobs)));
  _left := seriatim.batches_of(_jobs);
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
    PERFORM seriatim.count_as_untried(_lanes);
    INSERT INTO seriatim.tally (queue, lanes, jobs) VALUES (_number, -cardinality(_lanes), -_packed);
    PERFORM seriatim.move_ready(ARRAY(
      SELECT ROW(queue, number, class, priority, at, NULL, NULL, NULL)::seriatim.move
      FROM seriatim.lane WHERE number = ANY (_lanes) AND class IS NOT NULL));
    WITH gone AS (DELETE FROM seriatim.lane WHERE number = ANY (_lanes)
      RETURNING CASE WHEN payload IS NOT NULL THEN seriatim.batch_in(options) END AS batch)
    SELECT array_agg(batch) FILTER (WHERE batch IS NOT NULL) INTO _left_too FROM gone;
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
    DELETE FROM seriatim.share WHERE queue = _number;
    DELETE FROM seriatim.freed WHERE queue = _number;
    DELETE FROM seriatim.queue WHERE number = _number;
  END IF;
  PERFORM seriatim.leave_job_batches(_left || _left_too, 2, seriatim.clock());
END $$;
