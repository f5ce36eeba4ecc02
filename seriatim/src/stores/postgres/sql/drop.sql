-- Drops what is made anew with each version: the views for people, the functions, and the types that they answer with.
-- The views of schema.sql lean on owns(), which stays.
DROP VIEW IF EXISTS seriatim.jobs, seriatim.lanes, seriatim.morgue, seriatim.nodes;
DO $$
DECLARE
  _function regprocedure;
BEGIN
  FOR _function IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = rtrim('seriatim.', '.')::regnamespace AND p.proname <> 'owns'
  LOOP
    EXECUTE pg_catalog.format('DROP FUNCTION %s', _function);
  END LOOP;
END $$;
DROP TYPE IF EXISTS seriatim.taken, seriatim.ending, seriatim.fated;
