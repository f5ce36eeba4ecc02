//! Requests that wait for the end of a job: `?wait=20s`. Any node can answer, since the job's state is in the store.

use std::time::Duration;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::JobId;
use seriatim::store::JobView;

use super::limits::{ANSWER_WAIT_MAX, JOB_ANSWER_BYTES, RESULT_WAIT_MAX};
use super::pool::Held;
use super::signature::{Signature, Takes};
use super::{App, Caller, Connection, Problem, Query, Result, Shared};
use crate::app::find;
use crate::protocol::value::Length;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Asked {
    /// How long to wait for the end of the job, at most 60 s
    wait: Option<Length>,
}

/// Whether a request waits for the end of a job.
pub(super) fn waits(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "wait")
}

/// How long a request waits, and for which job.
pub(super) struct Wait {
    length: Option<Duration>,
    caller: Caller,
    client: Connection,
}

/// A place among those who wait.
pub(super) struct Place<'w> {
    wait: &'w Wait,
    length: Duration,
    _held: Held,
}

impl FromRequestParts<Shared> for Wait {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &Shared) -> Result<Self> {
        let Query(Asked { wait }) = Query::from_request_parts(parts, state).await?;
        let length = wait.map(|Length(length)| length);
        if length.is_some_and(|length| length > RESULT_WAIT_MAX) {
            let most = seriatim::duration::format(RESULT_WAIT_MAX);
            return Err(Problem::invalid("wait", format!("must be at most {most}")));
        }
        let Ok(caller) = Caller::from_request_parts(parts, state).await;
        let Ok(client) = Connection::from_request_parts(parts, state).await;
        Ok(Self { length, caller, client })
    }
}

impl Takes for Wait {
    fn add_to(signature: &mut Signature) {
        Query::<Asked>::add_to(signature);
    }
}

impl Wait {
    pub(super) fn is_asked(&self) -> bool {
        self.length.is_some()
    }

    /// A place, if it is to wait.
    pub(super) fn place(&self, app: &App) -> Result<Option<Place<'_>>> {
        let Some(length) = self.length else { return Ok(None) };
        let full =
            || Problem::too_many("too many requests wait for jobs: retry later, or without wait");
        let held = app.budgets.waits.try_take(&self.caller.party, 1).ok_or_else(full)?;
        Ok(Some(Place { wait: self, length, _held: held }))
    }
}

impl Place<'_> {
    /// The job when it has ended, time is up, or this node drains; and memory for the answer.
    pub(super) async fn end_of(&self, app: &App, id: JobId) -> Result<(JobView, Held)> {
        let job = tokio::select! {
            job = app.client.wait(id, self.length) => job?,
            () = app.draining() => find::job(&*app.store, id).await?,
            // Nobody reads it.
            () = self.wait.client.left() => return Err(Problem::unavailable("the client is gone")),
        };
        let (pool, party) = (&app.budgets.answers, &self.wait.caller.party);
        let share = pool.take(party, JOB_ANSWER_BYTES, ANSWER_WAIT_MAX).await;
        let full = || Problem::too_many("other requests use all memory for answers");
        Ok((job, share.ok_or_else(full)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::{Body, to_bytes};
    use axum::http::StatusCode;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::{Declare, Memory, Queues};
    use seriatim::{Job, Queue};

    use super::super::caller::Party;
    use super::super::limits::ANSWERS_BYTES;
    use super::super::router::build;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_cannot_wait_needs_memory_for_its_answer_whatever_its_query_says() {
        let app = App::open(Arc::new(Memory::in_tokio_time()));
        let service = TowerToHyperService::new(build(&app));
        let job = Job::new("orders", &1).unwrap();
        let id = app.client.push(job).await.unwrap().job_id;
        let ask = async || {
            let path = format!("/api/v1/jobs/{id}/events?wait=1s");
            let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
            service.call(request).await.unwrap().status()
        };
        let all = app.budgets.answers.try_take(&Party::Unknown, ANSWERS_BYTES.party).unwrap();
        assert_eq!(ask().await, StatusCode::TOO_MANY_REQUESTS);
        drop(all);
        assert_eq!(ask().await, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_without_memory_for_its_answer_says_that_it_is_done_and_is_not_to_be_repeated() {
        let store = Arc::new(Memory::in_tokio_time());
        let queues = vec![Queue::fifo("orders").retain_completed(Duration::from_secs(60))];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let app = App::open(store);
        let service = TowerToHyperService::new(build(&app));
        let _all = app.budgets.answers.try_take(&Party::Unknown, ANSWERS_BYTES.party).unwrap();
        let request = axum::http::Request::post("/api/v1/queues/orders/jobs?wait=1s")
            .header("content-type", "application/json")
            .body(Body::from("{\"key\":\"k\"}"))
            .unwrap();
        let answer = service.call(request).await.unwrap();
        // Clients repeat a 429 of any push.
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let told = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("is pushed, but cannot be waited for: other requests"), "{told}");
    }
}
