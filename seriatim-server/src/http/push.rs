//! Pushes of a job, an array (all or nothing), or a stream of jobs.

use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use seriatim::limits::PUSH_JOBS_MAX;
use seriatim::store::Pushed;
use seriatim::{Job, Queue};

use super::input::{self, Elements, JSON, NDJSON, Object};
use super::limits::{
    BULK_BODY_BYTES_MAX, INLINE_BYTES_MAX, JOB_BYTES, LINE_BYTES_MAX, STREAM_CHUNK_BYTES_MAX,
    STREAM_CHUNK_JOBS_MAX, held, next_frame, off_thread,
};
use super::route::bytes_of;
use super::waiting::{Place, Wait};
use super::{Access, Answer, App, Caller, Part, Problem, Result, Route, Scope, Shared};
use crate::base::text::MARK;
use crate::protocol::document::{PushAnswer, PushedJobs, Streamed};
use crate::protocol::job_input::{JobInput, split_place};
use crate::trace::Sending;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/api/v1/queues/{queue}/jobs", Access::Produce, push)
            .says("Pushes a job, an array of jobs (all or none), or a stream of jobs, one per line; with wait, answers when the job has ended or time is up")
            .reads::<OneOrSeveral>()
            .answers::<PushAnswer>()
            .streams()
            .traffic(),
    ]
}

/// A body that is not a stream.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum OneOrSeveral {
    One(Box<JobInput>),
    Several(Vec<JobInput>),
}

async fn push(
    app: Shared,
    Part(queue): Part<String>,
    caller: Caller,
    wait: Wait,
    request: Request,
) -> Result<Response> {
    let media = input::expect(request.headers(), &[JSON, NDJSON])?;
    seriatim::store::validate_queue_name(&queue)?;
    if wait.is_asked() && media == NDJSON {
        return Err(one_job_only());
    }
    let place = wait.place(&app)?;
    let (parts, body) = request.into_parts();
    let sending = app.traces.sending(&queue, traceparent(&parts.headers));
    let waits = place.is_some();
    let target = Target { queue: &queue, sending: &sending, scope: &caller.scope, waits };
    let pushing = async {
        Ok(match media {
            NDJSON => PushAnswer::Stream(stream(&app, &caller, &target, body).await?),
            _ => PushAnswer::Jobs(at_once(&app, &caller, &target, body).await?),
        })
    };
    let pushed = pushing.await.inspect_err(|problem: &Problem| sending.failed(problem.status()))?;
    match (place, pushed) {
        (Some(place), PushAnswer::Jobs(pushed)) => ended(&app, &place, pushed).await,
        (_, pushed) => Ok(Answer::of(&pushed).into_response()),
    }
}

/// The answer with the job when it has ended.
async fn ended(app: &App, place: &Place<'_>, pushed: PushedJobs) -> Result<Response> {
    let Some(id) = pushed.first() else { return Err(one_job_only()) };
    let (job, share) = place.end_of(app, id).await.map_err(|problem| problem.of_job(id))?;
    let bytes = bytes_of(&job);
    let answer = Answer::written(bytes, move || PushAnswer::Jobs(pushed.with_job(job))).await?;
    Ok(held(answer.into_response(), share))
}

fn one_job_only() -> Problem {
    Problem::invalid("wait", "goes with one job: push it as an object, not in an array or a stream")
}

/// Where jobs go, and the trace that they belong to unless they name their own.
struct Target<'a> {
    queue: &'a str,
    sending: &'a Sending,
    scope: &'a Scope,
    /// Whether the request waits for the end of its job.
    waits: bool,
}

/// The job, in the trace of its request unless it names its own.
fn job_of(input: JobInput, queue: &str, trace: Option<&str>) -> seriatim::Result<Job> {
    let mut job = input.into_job(queue)?;
    let own = job.options.traceparent.take();
    job.options.traceparent = own.or_else(|| trace.map(str::to_owned));
    // Here, because a large one would delay others where the store asks for it.
    if job.key.is_some() && job.payload.as_bytes().len() > INLINE_BYTES_MAX {
        job.digest = Some(job.payload_digest());
    }
    Ok(job)
}

/// The trace context of a request; an invalid one is ignored, as the standard demands.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    crate::trace::id(text).map(|_| text.to_owned())
}

/// Pushes a job or an array of them.
async fn at_once(
    app: &App,
    caller: &Caller,
    target: &Target<'_>,
    body: Body,
) -> Result<PushedJobs> {
    let mut held = app.budgets.read(caller, body, BULK_BODY_BYTES_MAX).await?;
    let first = held.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_array = first == Some(&b'[');
    if is_array && target.waits {
        return Err(one_job_only());
    }
    let (bytes, queue, trace) =
        (held.bytes.clone(), target.queue.to_owned(), target.sending.traceparent());
    let read = move || match is_array {
        true => read_array(&bytes, &queue, trace.as_deref()),
        false => {
            let input = input::parse::<JobInput>(&bytes)?;
            Ok(vec![job_of(input, &queue, trace.as_deref())?])
        }
    };
    let jobs = off_thread(held.bytes.len(), read).await??;
    for (i, job) in jobs.iter().enumerate() {
        let place = |problem: Problem| problem.inside(&format!("jobs[{i}]"));
        let checked = target.scope.check_push(job);
        checked.map_err(|problem| if is_array { place(problem) } else { problem })?;
    }
    // The text is copied by now; what was made of it takes its place.
    held.bytes.clear();
    let bytes: usize = jobs.iter().map(|job| job.payload.as_bytes().len() + JOB_BYTES).sum();
    if bytes > held.room() {
        held.hold(app.budgets.hold(caller, bytes - held.room())?);
    }
    if jobs.is_empty() {
        return Ok(PushedJobs::new(&[], false));
    }
    // Behind the body, which may have come slowly: others make queues meanwhile.
    let made = app.queues.makes(&*app.store, target.queue).await?;
    if let (true, Some(job)) = (target.waits, jobs.first()) {
        check_wait(app, job).await?;
    }
    let pushed = match is_array {
        true => app.client.push_all(jobs).await?,
        false => match jobs.into_iter().next() {
            Some(job) => vec![push_one(app, target, job).await?],
            None => Vec::new(),
        },
    };
    target.sending.sent(&pushed);
    Ok(PushedJobs::new(&pushed, made))
}

/// Pushes a job. If the request waits for it, it is not enough to tell that it was refused.
async fn push_one(app: &App, target: &Target<'_>, job: Job) -> seriatim::Result<Pushed> {
    let key = job.key.clone();
    let pushed = app.client.push(job).await?;
    if target.waits {
        pushed.taken(key.as_deref())?;
    }
    Ok(pushed)
}

/// Refuses to wait for a job whose end leaves no trace, before it is pushed.
async fn check_wait(app: &App, job: &Job) -> Result<()> {
    let known = app.queues.seen.known(&*app.store).await?;
    let declared = app.queues.declared().iter().find(|queue| queue.name == job.queue);
    let queue = known.named(&job.queue).map(|view| &view.queue).or(declared);
    let implied = || Queue::implied(&job.queue, job.key.is_some());
    Ok(queue.map_or_else(implied, Queue::clone).check_wait()?)
}

/// Reads an array job by job: none is built before it is known that it may be one more.
fn read_array(bytes: &[u8], queue: &str, trace: Option<&str>) -> Result<Vec<Job>> {
    let (mut jobs, mut wrong) = (Vec::new(), None);
    let take = |Object(input): Object<JobInput>| {
        let place = format!("jobs[{}]", jobs.len());
        job_of(input, queue, trace).map(|job| jobs.push(job)).map_err(|error| {
            let error = error.in_field(place);
            let said = error.message().to_owned();
            wrong = Some(error);
            said
        })
    };
    let elements = Elements { max: PUSH_JOBS_MAX, take, of: PhantomData };
    let read = input::parse_with(bytes, elements);
    match (read, wrong) {
        (_, Some(error)) => Err(error.into()),
        (Err(problem), None) => Err(problem.inside("jobs")),
        (Ok(()), None) => Ok(jobs),
    }
}

/// Pushes what comes, a chunk at a time; while one is pushed nothing more is read, so that memory
/// stays bounded and a fast sender is held back.
async fn stream(app: &App, caller: &Caller, target: &Target<'_>, body: Body) -> Result<Streamed> {
    let place = app.budgets.streams.try_take(&caller.party, 1);
    let _place = place.ok_or_else(|| Problem::too_many("too many streams of jobs"))?;
    let mut frames = body.into_data_stream();
    let mut loading = Loading::new(app, target);
    let (mut rest, mut looked) = (Vec::new(), 0);
    while let Some(frame) = next_frame(&mut frames).await {
        rest.extend_from_slice(&frame.map_err(|problem| loading.tell(problem))?);
        let mut start = 0;
        while let Some(end) = rest[looked..].iter().position(|byte| *byte == b'\n') {
            let end = looked + end;
            loading.line(&rest[start..end]).await?;
            (start, looked) = (end + 1, end + 1);
        }
        rest.drain(..start);
        looked = rest.len();
        if rest.len() > LINE_BYTES_MAX {
            loading.number += 1;
            let detail = format!("a line is longer than {LINE_BYTES_MAX} bytes");
            return Err(loading.stop(Problem::invalid("", detail)).await);
        }
    }
    loading.line(&rest).await?;
    loading.send().await?;
    Ok(loading.counts)
}

/// A stream on its way into the store.
struct Loading<'a> {
    app: &'a App,
    target: &'a Target<'a>,
    jobs: Vec<Job>,
    /// The line of each job.
    lines: Vec<u64>,
    bytes: usize,
    /// Of the line read last, from 1.
    number: u64,
    counts: Streamed,
}

impl<'a> Loading<'a> {
    fn new(app: &'a App, target: &'a Target<'a>) -> Self {
        let (jobs, lines) = (Vec::new(), Vec::new());
        Self { app, target, jobs, lines, bytes: 0, number: 0, counts: Streamed::default() }
    }

    async fn line(&mut self, text: &[u8]) -> Result<()> {
        self.number += 1;
        let marked = text.strip_prefix(MARK.as_bytes()).filter(|_| self.number == 1);
        let text = marked.unwrap_or(text);
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let read = self.read(text).await;
        match read.and_then(|job| self.target.scope.check_push(&job).map(|()| job)) {
            Ok(job) => self.jobs.push(job),
            Err(problem) => return Err(self.stop(problem).await),
        }
        self.lines.push(self.number);
        self.bytes += text.len();
        if self.jobs.len() >= STREAM_CHUNK_JOBS_MAX || self.bytes >= STREAM_CHUNK_BYTES_MAX {
            self.send().await?;
        }
        Ok(())
    }

    async fn read(&self, text: &[u8]) -> Result<Job> {
        let (queue, trace) = (self.target.queue, self.target.sending.traceparent());
        if text.len() <= INLINE_BYTES_MAX {
            return read_line(text, queue, trace.as_deref());
        }
        let (text, queue) = (text.to_vec(), queue.to_owned());
        off_thread(text.len(), move || read_line(&text, &queue, trace.as_deref())).await?
    }

    /// A line is wrong: pushes the lines before it, and returns the line from which to continue.
    async fn stop(&mut self, problem: Problem) -> Problem {
        let line = self.number;
        match self.send().await {
            Ok(()) => self.tell(problem.at_line(line)),
            Err(earlier) => earlier,
        }
    }

    async fn send(&mut self) -> Result<()> {
        let (jobs, lines) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.lines));
        self.bytes = 0;
        let Some(first) = lines.first().copied() else { return Ok(()) };
        let made = self.app.queues.makes(&*self.app.store, self.target.queue).await;
        if made.map_err(|problem| self.tell(problem))? {
            self.counts.created = Some(true);
        }
        match self.app.client.push_all(jobs).await {
            Ok(pushed) => {
                self.target.sending.sent(&pushed);
                self.counts.add(&pushed);
                Ok(())
            }
            Err(error) => {
                // The store names the job by its place in the chunk, of which nothing was pushed.
                let place = error.field().and_then(split_place);
                let line = place.and_then(|(place, _)| lines.get(place)).copied().unwrap_or(first);
                let problem = Problem::from(error).at_line(line).go_on_from(first);
                Err(self.tell(problem))
            }
        }
    }

    /// With the number of jobs pushed before.
    fn tell(&self, problem: Problem) -> Problem {
        problem.having_pushed(self.counts.pushed)
    }
}

fn read_line(text: &[u8], queue: &str, trace: Option<&str>) -> Result<Job> {
    let job = job_of(input::parse::<JobInput>(text)?, queue, trace)?;
    job.validate()?;
    Ok(job)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::StatusCode;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use seriatim::store::Memory;

    use super::super::router::build;
    use super::*;

    #[tokio::test]
    async fn as_many_jobs_as_an_array_may_have_are_pushed_in_a_body_as_long_as_it_may_be() {
        let service = TowerToHyperService::new(build(&App::open(Arc::new(Memory::new()))));
        // The longest, with its comma, of which so many fit into a body.
        let job = |payload: &str| format!("{{\"payload\":\"{payload}\"}}");
        let free = BULK_BODY_BYTES_MAX / PUSH_JOBS_MAX - job("").len() - 1;
        let jobs = vec![job(&"x".repeat(free)); PUSH_JOBS_MAX];
        let body = format!("[{}]", jobs.join(","));
        assert!(body.len() > BULK_BODY_BYTES_MAX - PUSH_JOBS_MAX);
        let request = axum::http::Request::post("/api/v1/queues/orders/jobs");
        let request = request.header("content-type", JSON).body(Body::from(body)).unwrap();
        assert_eq!(service.call(request).await.unwrap().status(), StatusCode::OK);
    }
}
