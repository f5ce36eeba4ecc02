-- Before the public views are made anew.
DROP VIEW seriatim_nodes;
DROP VIEW seriatim_morgue;
DROP VIEW seriatim_lanes;
DROP VIEW seriatim_jobs;
DROP VIEW seriatim_claims;
