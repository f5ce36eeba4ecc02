//! What the command line and the HTTP API share.

pub(crate) mod act;
pub(crate) mod causes;
pub(crate) mod chain;
pub(crate) mod cron;
pub(crate) mod deeds;
pub(crate) mod doctor;
pub(crate) mod error;
pub(crate) mod failures;
pub(crate) mod figures;
pub(crate) mod find;
pub(crate) mod history;
pub(crate) mod job_filters;
pub(crate) mod job_pages;
pub(crate) mod jobs;
pub(crate) mod lane_jobs;
pub(crate) mod lane_pages;
pub(crate) mod lanes;
pub(crate) mod morgue;
pub(crate) mod nodes;
pub(crate) mod operations;
pub(crate) mod queues;
pub(crate) mod range;
pub(crate) mod running;
pub(crate) mod troubles;
pub(crate) mod why;
pub(crate) mod words;
