//! What a search found, and what dead jobs died of.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::JobId;
use seriatim::store::JobView;

use super::job::Job;
use super::lane::Lane;
use crate::protocol::schema::Foreign;
use crate::protocol::value::Time;

/// What a search found. Payloads are left out.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Found")]
pub(crate) struct Search {
    /// Queues that have a key equal to the text
    pub(crate) queues: Vec<Arc<str>>,
    /// Lanes whose key begins with it
    pub(crate) lanes: Vec<Lane>,
    /// Dead jobs whose key begins with it
    pub(crate) dead: Vec<Job>,
    /// Waiting, running or dead jobs: of a task of this name, or that match all terms
    pub(crate) jobs: Vec<Job>,
    /// Whether jobs of a task of this name were searched: only if no key was found, or with `all`
    pub(crate) looked_for_jobs: bool,
    /// How many queues were searched
    pub(crate) searched: usize,
    /// How many jobs of each queue were looked at, at most: of those that wait or run, and of the latest dead ones
    pub(crate) scan_max: usize,
    /// Queues that may have more
    pub(crate) cut: Vec<Arc<str>>,
    /// The `after` that searches the next queues; null if all were searched
    pub(crate) next: Option<Arc<str>>,
}

/// Why the latest dead jobs died, most frequent first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Causes {
    pub(crate) causes: Vec<Cause>,
    /// How many dead jobs were read: those that match
    pub(crate) looked_at: usize,
    /// Whether there are more dead jobs
    pub(crate) more: bool,
    /// Queues with dead jobs of which none were read: those with the fewest
    pub(crate) left_out: usize,
}

/// Errors that differ in numbers, ids and quotes only.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Cause {
    pub(crate) queue: Arc<str>,
    /// With `N` for numbers, `ID` for ids and `"…"` for quotes: the `cause` of an operation
    pub(crate) error: String,
    pub(crate) task: Option<Arc<str>>,
    /// Among the jobs that were read
    pub(crate) count: u64,
    pub(crate) first_at: Time,
    pub(crate) last_at: Time,
    /// The latest of them
    #[schemars(with = "Foreign<JobId>")]
    pub(crate) job_id: JobId,
}

impl Search {
    /// Jobs as documents.
    pub(crate) fn jobs(jobs: Vec<JobView>) -> Vec<Job> {
        jobs.into_iter().map(Job::from).collect()
    }
}
