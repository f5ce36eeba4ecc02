-- Drops what is made anew with each version, and when all tables were emptied: views, functions, and their result types. A
-- trigger depends on ring_inbox(), which stays.
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
-- No function returns these views any more, and they call no others.
DROP VIEW IF EXISTS seriatim.job_view, seriatim.live, seriatim.turn_job, seriatim.lane_now, seriatim.claimed_lane;
DROP FUNCTION IF EXISTS seriatim.owns, seriatim.owned;
DROP TYPE IF EXISTS seriatim.move, seriatim.taken, seriatim.going_on, seriatim.ending, seriatim.fated, seriatim.leaving, seriatim.joined;
