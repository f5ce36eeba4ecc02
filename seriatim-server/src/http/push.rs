//! Pushing jobs: one, an array (all or nothing), or a stream of them.

use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};
use seriatim::Job;
use seriatim::limits::PUSH_JOBS_MAX;
use seriatim::store::PushStatus;

use super::auth::Access;
use super::caller::Caller;
use super::input::{self, Elements, JSON, NDJSON, Object, Part};
use super::limits::{
    BULK_BODY_BYTES_MAX, INLINE_BYTES_MAX, JOB_BYTES, LINE_BYTES_MAX, STREAM_BATCH_BYTES_MAX,
    STREAM_BATCH_JOBS_MAX, next_frame, off_thread,
};
use super::problem::Problem;
use super::route::{Answer, Route};
use super::schema::Schema;
use super::scope::Scope;
use super::state::{App, Shared};
use crate::protocol::job_input::{JobInput, split_place};
use crate::trace::Sending;

pub(super) fn routes() -> Vec<Route> {
    let jobs = Schema::either(&[Schema::named("Job"), Schema::list(Schema::named("Job"))]);
    let pushed = Schema::object(&[
        ("job_id", Schema::text()),
        ("status", Schema::one_of(&["queued", "merged", "duplicate"])),
    ]);
    let streamed = ["pushed", "merged", "duplicate"].map(|name| (name, Schema::integer()));
    let streamed = [&streamed[..], &[("created", Schema::truth())]].concat();
    let answer = Schema::either(&[
        Schema::object(&[("jobs", Schema::list(pushed)), ("created", Schema::truth())]),
        Schema::object(&streamed),
    ]);
    vec![
        Route::post("/api/v1/queues/{queue}/jobs", Access::Produce, push)
            .says(
                "Pushes a job, an array of jobs (all or none), or a stream of jobs, one on a line",
            )
            .body(jobs)
            .streams()
            .traffic()
            .answers(answer),
    ]
}

/// What [`JobInput`] takes.
pub(super) fn job_schema() -> Schema {
    let text = Schema::text;
    Schema::object(&[
        ("key", Schema(json!({ "type": ["string", "integer"] }))),
        ("id", Schema(json!({ "type": ["string", "integer"], "description": "the same as key" }))),
        ("payload", Schema::any()),
        ("score", Schema::number()),
        ("task", text()),
        ("run_at", Schema::time()),
        ("perform_in", Schema(json!({ "description": "the same as run_at" }))),
        ("available_at", Schema(json!({ "description": "the same as run_at" }))),
        ("delay", Schema::length()),
        ("priority", Schema::within(0, 32_767)),
        ("max_retries", Schema::integer()),
        ("max_attempts", Schema::integer()),
        ("backoff", Schema::named("Backoff")),
        ("timeout", Schema::length()),
        ("lease_ttl", Schema::length()),
        ("lease_ttl_sec", Schema(json!({ "description": "the same as lease_ttl" }))),
        ("expires_at", Schema::time()),
        ("idempotency_key", text()),
        ("node", text()),
        ("consumer_group", text()),
        ("partition_key", text()),
        ("producer", text()),
        ("traceparent", text()),
    ])
    .closed()
    .one_at_most(&["delay", "run_at", "perform_in", "available_at"])
    .spelled_once(&["run_at", "perform_in", "available_at"])
    .spelled_once(&["key", "id"])
    .spelled_once(&["lease_ttl", "lease_ttl_sec"])
}

async fn push(
    State(app): State<Shared>,
    Part(queue): Part<String>,
    caller: Caller,
    request: Request,
) -> Result<Answer, Problem> {
    let media = input::expect(request.headers(), &[JSON, NDJSON])?;
    seriatim::store::validate_queue_name(&queue)?;
    let (parts, body) = request.into_parts();
    let sending = app.traces.sending(&queue, traceparent(&parts.headers));
    let target = Target { queue: &queue, sending: &sending, scope: &caller.scope };
    let answer = async {
        let (mut answer, made) = match media {
            NDJSON => stream(&app, &caller, &target, body).await?,
            _ => at_once(&app, &caller, &target, body).await?,
        };
        if made {
            // A slip in its name shows.
            answer["created"] = true.into();
        }
        Ok(Answer(answer))
    };
    answer.await.inspect_err(|problem: &Problem| sending.failed(problem.status()))
}

/// Where jobs go, and the trace that they belong to unless they name their own.
struct Target<'a> {
    queue: &'a str,
    sending: &'a Sending,
    scope: &'a Scope,
}

impl Target<'_> {
    /// Refuses a job that is bound to a group which is not the token's.
    fn check(&self, job: &Job) -> Result<(), Problem> {
        let group = job.options.consumer_group.as_deref();
        group.map_or(Ok(()), |group| self.scope.check_group(group))
    }
}

/// The job, in the trace of its request unless it names its own.
fn job_of(input: JobInput, queue: &str, trace: Option<&str>) -> seriatim::Result<Job> {
    let mut job = input.into_job(queue)?;
    let own = job.options.traceparent.take();
    job.options.traceparent = own.or_else(|| trace.map(str::to_owned));
    // Here, as what a large one takes would hold up others where the store asks for it.
    if job.key.is_some() && job.payload.as_bytes().len() > INLINE_BYTES_MAX {
        job.digest = Some(job.payload_digest());
    }
    Ok(job)
}

/// The trace context of a request; what is none is ignored, as the standard says.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let said = headers.get("traceparent")?.to_str().ok()?;
    crate::trace::id(said).map(|_| said.to_owned())
}

/// Pushes a job or an array of them. The answer, and whether that made the queue.
async fn at_once(
    app: &App,
    caller: &Caller,
    target: &Target<'_>,
    body: Body,
) -> Result<(Value, bool), Problem> {
    let mut held = app.budgets.read(caller, body, BULK_BODY_BYTES_MAX).await?;
    let first = held.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_array = first == Some(&b'[');
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
        target.check(job).map_err(|problem| if is_array { place(problem) } else { problem })?;
    }
    // The text is copied by now; what was made of it takes its place.
    held.bytes.clear();
    let bytes: usize = jobs.iter().map(|job| job.payload.as_bytes().len() + JOB_BYTES).sum();
    if bytes > held.room() {
        held.hold(app.budgets.hold(caller, bytes - held.room())?);
    }
    if jobs.is_empty() {
        return Ok((json!({ "jobs": [] }), false));
    }
    // Behind the body, which may have come slowly: others make queues meanwhile.
    let made = app.queues.makes(&*app.store, target.queue).await?;
    let pushed = match is_array {
        true => app.client.push_all(jobs).await?,
        false => match jobs.into_iter().next() {
            Some(job) => vec![app.client.push(job).await?],
            None => Vec::new(),
        },
    };
    target.sending.sent(&pushed);
    Ok((json!({ "jobs": pushed }), made))
}

/// Reads an array job by job: none is built before it is known that it may be one more.
fn read_array(bytes: &[u8], queue: &str, trace: Option<&str>) -> Result<Vec<Job>, Problem> {
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

/// Pushes what comes, a batch at a time; while one is pushed nothing more is read, so that memory
/// stays bounded and a fast sender is held back.
async fn stream(
    app: &App,
    caller: &Caller,
    target: &Target<'_>,
    body: Body,
) -> Result<(Value, bool), Problem> {
    let place = app.budgets.streams.try_take(&caller.party, 1);
    let _place =
        place.ok_or_else(|| Problem::too_many("too many streams of jobs are under way"))?;
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
    Ok((loading.counted(), loading.made))
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
    pushed: u64,
    merged: u64,
    duplicate: u64,
    /// The queue is new.
    made: bool,
}

impl<'a> Loading<'a> {
    fn new(app: &'a App, target: &'a Target<'a>) -> Self {
        let (jobs, lines) = (Vec::new(), Vec::new());
        let (bytes, number, pushed, merged, duplicate, made) = (0, 0, 0, 0, 0, false);
        Self { app, target, jobs, lines, bytes, number, pushed, merged, duplicate, made }
    }

    async fn line(&mut self, text: &[u8]) -> Result<(), Problem> {
        self.number += 1;
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let read = self.read(text).await;
        match read.and_then(|job| self.target.check(&job).map(|()| job)) {
            Ok(job) => self.jobs.push(job),
            Err(problem) => return Err(self.stop(problem).await),
        }
        self.lines.push(self.number);
        self.bytes += text.len();
        if self.jobs.len() >= STREAM_BATCH_JOBS_MAX || self.bytes >= STREAM_BATCH_BYTES_MAX {
            self.send().await?;
        }
        Ok(())
    }

    async fn read(&self, text: &[u8]) -> Result<Job, Problem> {
        let (queue, trace) = (self.target.queue, self.target.sending.traceparent());
        if text.len() <= INLINE_BYTES_MAX {
            return read_line(text, queue, trace.as_deref());
        }
        let (text, queue) = (text.to_vec(), queue.to_owned());
        off_thread(text.len(), move || read_line(&text, &queue, trace.as_deref())).await?
    }

    /// A line is wrong: what stands before it goes, and the line is where to go on.
    async fn stop(&mut self, problem: Problem) -> Problem {
        let line = self.number;
        match self.send().await {
            Ok(()) => self.tell(problem.with("line", line)),
            Err(earlier) => earlier,
        }
    }

    async fn send(&mut self) -> Result<(), Problem> {
        let (jobs, lines) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.lines));
        self.bytes = 0;
        let Some(first) = lines.first().copied() else { return Ok(()) };
        let made = self.app.queues.makes(&*self.app.store, self.target.queue).await;
        self.made |= made.map_err(|problem| self.tell(problem))?;
        match self.app.client.push_all(jobs).await {
            Ok(pushed) => {
                self.target.sending.sent(&pushed);
                let count =
                    |status| pushed.iter().filter(|one| one.status == status).count() as u64;
                self.pushed += pushed.len() as u64;
                self.merged += count(PushStatus::Merged);
                self.duplicate += count(PushStatus::Duplicate);
                Ok(())
            }
            Err(error) => {
                // The store names the job by its place in the batch, of which nothing was pushed.
                let place = error.field().and_then(split_place);
                let line = place.and_then(|(place, _)| lines.get(place)).copied().unwrap_or(first);
                let problem =
                    Problem::from(error).with("line", line).with("go_on_from_line", first);
                Err(self.tell(problem))
            }
        }
    }

    /// Says how much was pushed before.
    fn tell(&self, problem: Problem) -> Problem {
        problem.with("pushed", self.pushed)
    }

    fn counted(&self) -> Value {
        json!({ "pushed": self.pushed, "merged": self.merged, "duplicate": self.duplicate })
    }
}

fn read_line(text: &[u8], queue: &str, trace: Option<&str>) -> Result<Job, Problem> {
    let job = job_of(input::parse::<JobInput>(text)?, queue, trace)?;
    job.validate()?;
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_names_what_a_job_takes() {
        let error = serde_json::from_str::<JobInput>(r#"{"":0}"#).map(|_| ()).unwrap_err();
        let error = error.to_string();
        let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        for name in job_schema().fields() {
            assert!(known.contains(&name.as_str()), "{name} is documented and not taken: {error}");
        }
        assert_eq!(known.len(), job_schema().fields().len(), "{error}");
    }
}
