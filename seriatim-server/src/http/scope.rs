//! Scopes of tokens: queues and consumer groups.

use std::sync::Arc;

use axum::http::StatusCode;
use seriatim::store::{IdempotencyScope, Store, build_of};
use seriatim::{Job, JobId};

use super::problem::{Problem, Result};

/// Most names that a refusal lists.
const LISTED_MAX: usize = 10;

/// The queues and groups that a token may use; all if unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    queues: Option<Arc<[String]>>,
    groups: Option<Arc<[String]>>,
}

/// How far an endpoint reaches, which decides what a token that is limited to queues may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The queue in its path.
    Queue,
    /// The queue of the job in its path.
    Job,
    /// Its handler keeps to the token's queues.
    Handler,
    /// More than some queues: not for such a token.
    All,
}

impl Reach {
    /// Endpoints that say nothing else are not for limited tokens.
    pub(super) fn of(path: &str) -> Self {
        match () {
            () if path.contains("{queue}") => Self::Queue,
            () if path.contains("{job_id}") => Self::Job,
            () => Self::All,
        }
    }
}

impl Scope {
    pub(super) fn new(queues: Option<Vec<String>>, groups: Option<Vec<String>>) -> Self {
        Self { queues: queues.map(Into::into), groups: groups.map(Into::into) }
    }

    /// Whether it is limited to some queues.
    pub(super) fn is_limited(&self) -> bool {
        self.queues.is_some()
    }

    pub(super) fn has_queue(&self, queue: &str) -> bool {
        has(self.queues.as_deref(), queue)
    }

    /// Refuses a queue that is not the token's.
    pub(super) fn check_queue(&self, queue: &str) -> Result<()> {
        match self.has_queue(queue) {
            true => Ok(()),
            false => Err(self.refuse(&format!("may not use the queue {queue:?}")).about("queue")),
        }
    }

    /// Refuses what concerns all queues if only some are the token's.
    pub(super) fn check_all(&self, what: &str) -> Result<()> {
        if self.is_limited() { Err(self.refuse(what)) } else { Ok(()) }
    }

    /// As [`Self::check_queue`], where no queue means all.
    pub(super) fn check_named(&self, queue: Option<&str>) -> Result<()> {
        match queue {
            Some(queue) => self.check_queue(queue),
            None => self
                .check_all("must name one of its queues here")
                .map_err(|problem| problem.about("queue")),
        }
    }

    /// Refuses a consumer group that is not the token's.
    pub(super) fn check_group(&self, group: &str) -> Result<()> {
        let groups = self.groups.as_deref();
        if has(groups, group) {
            return Ok(());
        }
        let may = listed(groups.unwrap_or_default());
        let detail = format!(
            "this token may not use the consumer group {group:?}: it is limited to the consumer groups {may}"
        );
        Err(Problem::new(StatusCode::FORBIDDEN, detail).about("consumer_group"))
    }

    /// Refuses a job of a queue or a consumer group that is not the token's.
    pub(super) fn check_job(&self, job: &Job) -> Result<()> {
        self.check_queue(&job.queue)?;
        let Some(group) = job.options.consumer_group.as_deref() else { return Ok(()) };
        let its = self.check_group(group);
        if build_of(group).is_some() { its.map_err(|problem| problem.about("build")) } else { its }
    }

    /// Refuses a job that [`Self::check_job`] refuses, an idempotency key of the whole store, whose answer would name
    /// jobs of other queues, and a batch, which may have some.
    pub(super) fn check_push(&self, job: &Job) -> Result<()> {
        if job.options.idempotency_scope == IdempotencyScope::Store {
            let checked = self.check_all("may not use the idempotency_scope `store`");
            checked.map_err(|problem| problem.about("idempotency_scope"))?;
        }
        if job.options.batch.is_some() {
            let checked = self.check_all("may not use batches, which may include any queue");
            checked.map_err(|problem| problem.about("batch"))?;
        }
        self.check_job(job)
    }

    /// Refuses a job that is not there or of a queue that is not the token's.
    pub(super) async fn check_id(&self, store: &dyn Store, id: JobId) -> Result<()> {
        if !self.is_limited() {
            return Ok(());
        }
        match store.job(id).await? {
            Some(job) if self.has_queue(&job.queue) => Ok(()),
            _ => Err(self.no_job(id)),
        }
    }

    /// Refuses something that is about more than the token's queues.
    pub(super) fn refuse(&self, what: &str) -> Problem {
        let queues = self.queues.as_deref().unwrap_or_default();
        let may = listed(queues);
        let detail = format!("this token {what}: it is limited to the queues {may}");
        Problem::new(StatusCode::FORBIDDEN, detail)
    }

    /// The same for a job that is not there and for one of another queue: a caller that may not use a queue does
    /// not learn which jobs it has.
    pub(super) fn no_job(&self, id: JobId) -> Problem {
        let may = listed(self.queues.as_deref().unwrap_or_default());
        Problem::missing(format!("no job {id} in the queues of this token: {may}"))
    }
}

fn has(names: Option<&[String]>, name: &str) -> bool {
    names.is_none_or(|names| names.iter().any(|known| known == name))
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_without_limits_may_use_all_and_one_with_limits_what_it_names() {
        let all = Scope::default();
        assert!(all.check_queue("a").is_ok() && all.check_group("g").is_ok() && !all.is_limited());
        let queues = (0..12).map(|i| format!("q{i}")).collect();
        let some = Scope::new(Some(queues), Some(vec!["eu".to_owned()]));
        assert!(some.check_queue("q11").is_ok() && some.check_group("eu").is_ok());
        assert_eq!(some.check_group("us").unwrap_err().status(), StatusCode::FORBIDDEN);
        let refused = format!("{:?}", some.check_queue("mails").unwrap_err());
        assert!(refused.contains("mails") && refused.contains("q9 and 2 more"), "{refused}");
    }

    #[test]
    fn a_path_says_how_far_its_endpoint_reaches() {
        let of = |path| Reach::of(path);
        assert_eq!(of("/api/v1/queues/{queue}/lane"), Reach::Queue);
        assert_eq!(of("/api/v1/jobs/{job_id}"), Reach::Job);
        assert_eq!(of("/api/v1/nodes/{node}"), Reach::All);
    }
}
