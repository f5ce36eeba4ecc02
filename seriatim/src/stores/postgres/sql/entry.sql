-- Session settings that every call needs, bound to the functions called from outside. So a connection has no state,
-- and a pooler may give it to any client after each transaction.
--
-- The planner's statistics of a queue are outdated when used: its tables are empty when analysed and full when read.
-- All access is by indexed keys, so only index scans are allowed. The planner must not scan a whole index either, which
-- it believes to be short, for each row of a list: a table that was vacuumed while it was empty has one row for it,
-- however many come. Four things prevent that (tests/reading.rs counts):
--   the row for a list's entry is a LATERAL subquery with OFFSET 0, which cannot be flattened; EXISTS has OFFSET 0 too;
--   where two indexes would do, the column of the wrong one is in an expression (`seq + 0`);
--   rows to write are found by ctid, which allows no other plan;
--   an index not meant for single-row lookups has a condition that only its own queries imply.
DO $$
DECLARE
  _function regprocedure;
  _setting text;
BEGIN
  FOR _function IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = rtrim('seriatim.', '.')::regnamespace
      AND p.proname IN ('push', 'push_in_batches', 'open_batch', 'seal_batch', 'claim', 'settle', 'behind_batches', 'has_room', 'rescue', 'heartbeat', 'sweep', 'cancel', 'requeue',
        'delete_dead', 'act', 'amend', 'declare', 'lead', 'give_up', 'release',
        'delete_queue', 'find_jobs', 'running', 'stats', 'list_lanes', 'list_jobs', 'inbox_waits', 'take_inbox', 'end_inbox', 'list_inbox', 'wake')
  LOOP
    FOREACH _setting IN ARRAY ARRAY['enable_seqscan = off', 'enable_bitmapscan = off',
      'enable_hashjoin = off', 'enable_mergejoin = off', 'enable_material = off', 'jit = off',
      'search_path = pg_catalog', 'plan_cache_mode = force_generic_plan']
    LOOP
      EXECUTE pg_catalog.format('ALTER FUNCTION %s SET %s', _function, _setting);
    END LOOP;
  END LOOP;
END $$;
