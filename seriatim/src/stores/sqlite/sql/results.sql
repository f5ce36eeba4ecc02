-- A result is kept where an error could be: the public views show it in a column of its own.
DROP VIEW seriatim_nodes;
DROP VIEW seriatim_morgue;
DROP VIEW seriatim_lanes;
DROP VIEW seriatim_jobs;
DROP VIEW seriatim_claims;
