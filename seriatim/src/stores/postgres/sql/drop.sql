-- Drops what is created again when all tables were emptied: the public views, the functions, and their result types. The views of
-- schema.sql depend on owns() and owned(), and a trigger on ring_inbox(), which stay.
DROP VIEW IF EXISTS seriatim.jobs, seriatim.lanes, seriatim.morgue, seriatim.nodes;
DO $$
DECLARE
  _function regprocedure;
BEGIN
  FOR _function IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE p.pronamespace = rtrim('seriatim.', '.')::regnamespace AND p.proname NOT IN ('owns', 'owned', 'ring_inbox')
  LOOP
    EXECUTE pg_catalog.format('DROP FUNCTION %s', _function);
  END LOOP;
END $$;
DROP TYPE IF EXISTS seriatim.move, seriatim.taken, seriatim.going_on, seriatim.ending, seriatim.fated;
