-- What every call needs of its session, bound to the functions that are called from outside: so a
-- connection has no state, and a pooler may hand it to anybody after each transaction.
--
-- What the planner knows of a queue is old by the time it uses it: a queue's tables are empty when
-- they are analysed and full when they are read. All access is by keys that are indexed, so it may
-- only choose that. Nor may it turn a join around, and walk a whole index that it believes to be short
-- to look for each of its rows in a list. Three things keep it from that, and tests/reading.rs counts:
--   the row of a list's entry is a LATERAL subquery with OFFSET 0, which it must leave as it is;
--   what is then written is found by its ctid, which no other plan than ours can use;
--   an index that is not for looking one row up has a condition that only its own users imply.
DO $$
DECLARE
  _function regprocedure;
  _setting text;
BEGIN
  FOR _function IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = rtrim('seriatim.', '.')::regnamespace
      AND p.proname IN ('push', 'claim', 'settle', 'rescue', 'heartbeat', 'sweep', 'cancel', 'requeue',
        'delete_dead', 'act', 'amend', 'declare', 'lead', 'give_up', 'release',
        'delete_queue')
  LOOP
    FOREACH _setting IN ARRAY ARRAY['enable_seqscan = off', 'enable_bitmapscan = off',
      'enable_hashjoin = off', 'enable_mergejoin = off', 'enable_material = off', 'jit = off',
      'search_path = pg_catalog', 'plan_cache_mode = force_generic_plan']
    LOOP
      EXECUTE pg_catalog.format('ALTER FUNCTION %s SET %s', _function, _setting);
    END LOOP;
  END LOOP;
END $$;
