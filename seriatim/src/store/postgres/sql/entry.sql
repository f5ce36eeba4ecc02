-- What every call needs of its session, bound to the functions that are called from outside: so a
-- connection has no state, and a pooler may hand it to anybody after each transaction.
--
-- What the planner knows of a queue is old by the time it uses it: a queue's tables are empty when
-- they are analysed and full when they are read. All access is by keys that are indexed, so it may
-- only choose that.
DO $$
DECLARE
  _function regprocedure;
  _setting text;
BEGIN
  FOR _function IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = rtrim('seriatim.', '.')::regnamespace
      AND p.proname IN ('push', 'claim', 'settle', 'rescue', 'heartbeat', 'sweep', 'cancel', 'requeue',
        'delete_dead', 'act', 'amend', 'declare', 'lead')
  LOOP
    FOREACH _setting IN ARRAY ARRAY['enable_seqscan = off', 'enable_bitmapscan = off',
      'enable_hashjoin = off', 'enable_mergejoin = off', 'enable_material = off', 'jit = off',
      'search_path = pg_catalog', 'plan_cache_mode = force_generic_plan']
    LOOP
      EXECUTE pg_catalog.format('ALTER FUNCTION %s SET %s', _function, _setting);
    END LOOP;
  END LOOP;
END $$;
