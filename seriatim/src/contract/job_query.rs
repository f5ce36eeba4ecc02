//! Which jobs a listing shows, and in which order.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::job_view::{JobState, JobView};
use crate::model::limits::{PAGE_ROWS_MAX, SOUGHT_BYTES_MAX};
use crate::model::{Cursor, Error, JobId, Payload, Result, Timestamp};

/// The order of a listing of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobOrder {
    /// By arrival.
    #[default]
    Arrival,
    /// By last change, newest first (dead and finished jobs).
    UpdatedAt,
    /// By key (dead jobs).
    Key,
    /// In the order in which workers get them: only for one key, and only for waiting or for running jobs.
    Turn,
}

/// Which jobs a listing shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JobFilter {
    /// Jobs that have not ended: waiting and running.
    #[default]
    Live,
    /// Jobs in one state.
    In(JobState),
}

impl JobFilter {
    /// Whether it includes jobs in this state.
    pub fn shows(self, state: JobState) -> bool {
        match self {
            Self::Live => matches!(state, JobState::Queued | JobState::Running),
            Self::In(one) => one == state,
        }
    }
}

impl From<JobState> for JobFilter {
    fn from(state: JobState) -> Self {
        Self::In(state)
    }
}

/// See [`Views::jobs`](super::Views::jobs). All filters apply together.
#[derive(Clone, Debug)]
pub struct JobQuery {
    /// The queue.
    pub queue: Arc<str>,
    /// When jobs are due, in the order of turns; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// Which of its jobs.
    pub filter: JobFilter,
    /// Only jobs of this key.
    pub key: Option<String>,
    /// Only jobs whose key begins with this.
    pub prefix: Option<String>,
    /// Only jobs of this task.
    pub task: Option<String>,
    /// Only jobs with this text in their last error.
    pub error: Option<String>,
    /// Only jobs with this text in their last error or in their payload, as it is stored; a payload that is not UTF-8 has
    /// no text.
    pub text: Option<String>,
    /// Only jobs due then or later; of jobs that have ended, those that ended then or later.
    pub from: Option<Timestamp>,
    /// Only jobs due then or earlier; of jobs that have ended, those that ended then or earlier.
    pub to: Option<Timestamp>,
    /// The order.
    pub order: JobOrder,
    /// Where to start: the `next` of the previous page.
    pub after: Option<String>,
    /// Where to start, if `after` is unset: behind this job, which ended then, though it may be gone; before all that ended then, if its
    /// number is 0. Only newest first ([`JobOrder::UpdatedAt`]). So the pages of several queues can be merged.
    pub behind: Option<(Timestamp, JobId)>,
    /// Most rows.
    pub rows_max: usize,
    /// Longer payloads are left out: [`JobView::lacks_payload`]. No limit if unset.
    pub payload_bytes_max: Option<usize>,
    /// Most jobs that the store reads, in the order, to find those that match the prefix, task, texts and times: then
    /// the page ends, [`cut`](super::Page). It also ends after [`SCAN_BYTES_MAX`](crate::limits::SCAN_BYTES_MAX) of
    /// payloads. No limit if unset.
    pub scan_max: Option<usize>,
}

impl JobQuery {
    /// Jobs of a queue by arrival: the first page.
    pub fn new(queue: impl Into<Arc<str>>, filter: impl Into<JobFilter>) -> Self {
        Self {
            queue: queue.into(),
            now: None,
            filter: filter.into(),
            key: None,
            prefix: None,
            task: None,
            error: None,
            text: None,
            from: None,
            to: None,
            order: JobOrder::Arrival,
            after: None,
            behind: None,
            rows_max: PAGE_ROWS_MAX,
            payload_bytes_max: None,
            scan_max: None,
        }
    }

    /// Most rows of a page.
    pub(crate) fn most(&self) -> usize {
        self.rows_max.clamp(1, PAGE_ROWS_MAX)
    }

    /// The cursor after which the page starts.
    pub(crate) fn begin(&self) -> Result<Option<Cursor>> {
        let after = self.after.as_deref();
        match self.order {
            JobOrder::Key | JobOrder::Turn => Cursor::read(after),
            JobOrder::Arrival | JobOrder::UpdatedAt => Cursor::read_by_number(after),
        }
    }

    /// Refuses what no store can list.
    pub(crate) fn check(&self) -> Result<()> {
        for (name, sought) in [("error", &self.error), ("text", &self.text)] {
            let length = sought.as_ref().map_or(0, String::len);
            if length > SOUGHT_BYTES_MAX {
                let message = format!("has {length} bytes; at most {SOUGHT_BYTES_MAX}");
                return Err(Error::invalid(name, message));
            }
        }
        if self.behind.is_some() && self.order != JobOrder::UpdatedAt {
            return Err(Error::invalid("behind", "is a place in the order of the last change"));
        }
        let is_of_lane = self.key.is_some()
            && matches!(self.filter, JobFilter::In(JobState::Queued | JobState::Running));
        if self.order == JobOrder::Turn && !is_of_lane {
            let message = "the order of turns is that of the waiting or of the running jobs of one key: name a key and one of these states";
            return Err(Error::invalid("order", message));
        }
        Ok(())
    }

    /// Whether there are filters besides queue, state and key.
    pub(crate) fn is_filtered(&self) -> bool {
        let texts = [&self.prefix, &self.task, &self.error, &self.text];
        texts.iter().any(|text| text.is_some()) || self.from.is_some() || self.to.is_some()
    }

    /// Whether a job fits these filters, which no index has.
    pub(crate) fn shows(&self, job: &JobView) -> bool {
        let in_error = |sought: &String| {
            job.error.as_ref().is_some_and(|error| error.contains(sought.as_str()))
        };
        let in_payload = |sought: &String| {
            let payload = std::str::from_utf8(job.payload.as_bytes());
            payload.is_ok_and(|payload| payload.contains(sought.as_str()))
        };
        (self.task.is_none() || self.task.as_deref() == job.task.as_deref())
            && self.has_prefix(job)
            && self.error.as_ref().is_none_or(in_error)
            && self.text.as_ref().is_none_or(|text| in_error(text) || in_payload(text))
            && self.from.is_none_or(|from| job.at() >= from)
            && self.to.is_none_or(|to| job.at() <= to)
    }

    fn has_prefix(&self, job: &JobView) -> bool {
        let key = job.key.as_deref().unwrap_or_default();
        self.prefix.as_deref().is_none_or(|start| key.starts_with(start))
    }

    /// Whether neither this job nor any behind it, in the order, fits.
    pub(crate) fn is_past(&self, job: &JobView) -> bool {
        match self.order {
            JobOrder::UpdatedAt => {
                job.finished_at.is_some_and(|at| self.from.is_some_and(|from| at < from))
            }
            JobOrder::Key => !self.has_prefix(job) && job.key.as_deref() > self.prefix.as_deref(),
            JobOrder::Arrival | JobOrder::Turn => false,
        }
    }

    /// Leaves out a payload that is too long to be shown.
    pub(crate) fn trim(&self, job: &mut JobView) {
        if self.payload_bytes_max.is_some_and(|most| job.payload_bytes > most) {
            job.payload = Payload::from_bytes(Vec::new());
        }
    }
}
