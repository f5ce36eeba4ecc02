//! `seriatim push`: pushes jobs from the command line, a file or standard input.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use seriatim::limits::PRIORITY_MAX;
use seriatim::names::did_you_mean;
use seriatim::store::{IdempotencyScope, JobState, Pushed, QueueView, Store};
use seriatim::{Client, Job, Payload, Queue, RunAt, SharedStore, Timestamp};

use super::args::{FORGETS, StoreArg, duration};
use super::push_file::{self, Source};
use crate::app::find;
use crate::app::words::{push_status, state_name};
use crate::base::text::{count, toml_key};
use crate::base::time::{self, length};
use crate::cli::output::{Failure, Result, hint, say, say_json, tell};
use crate::config::Config;
use crate::protocol::document::{self, PushedJobs};
use crate::protocol::job_input::{JobInput, split_place};

#[derive(Args)]
pub(crate) struct Push {
    /// The queue
    queue: String,
    /// Payloads: JSON documents, one job each. Default: null
    payload: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Key: jobs with the same key never overlap
    #[arg(long)]
    key: Option<String>,
    /// Position among the jobs of the key, lowest first. Default: now in Unix seconds; in fifo 0
    #[arg(long, allow_negative_numbers = true, value_parser = number)]
    score: Option<f64>,
    /// The task
    #[arg(long)]
    task: Option<String>,
    /// Due after this long: 250ms, 10s, 5m, 1h, 3d
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "at")]
    r#in: Option<Duration>,
    /// Due at this time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time::read)]
    at: Option<Timestamp>,
    /// The group of the key, such as a tenant: the groups of a queue take turns
    #[arg(long)]
    group: Option<String>,
    /// Only nodes of this name may claim it
    #[arg(long)]
    node: Option<String>,
    /// Only members of this consumer group may claim it
    #[arg(long, value_name = "GROUP", conflicts_with = "build")]
    consumer_group: Option<String>,
    /// Only workers that run this build of their program may claim it
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    build: Option<String>,
    /// Priority, 0 to 32767; lower runs first. Default: 100
    #[arg(long, allow_negative_numbers = true, value_parser = priority)]
    priority: Option<u16>,
    /// Retries after the first attempt. Default: the queue's
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// How long its call may take. Default: the worker's or the queue's
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Cancelled if it has not started after this long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires_in: Option<Duration>,
    /// A repeated push with the same key and idempotency key returns the first job
    #[arg(long, conflicts_with = "file")]
    idempotency_key: Option<String>,
    /// Where the idempotency key is unique: for its queue and key, or in the whole store
    #[arg(long, value_name = "key|store", value_parser = scope)]
    idempotency_scope: Option<IdempotencyScope>,
    /// Batch that the jobs join; it must not have ended
    #[arg(long)]
    batch: Option<String>,
    /// Jobs as lines of JSON ({"key","payload","score","task","run_at","delay","priority",…}); - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
    /// The first line of the file to push; earlier lines are skipped
    #[arg(long, value_name = "N", default_value_t = 1, requires = "file", value_parser = clap::value_parser!(u64).range(1..))]
    from_line: u64,
    /// Wait until the job has ended, but no longer than this, and print its result: --wait=20s. Default: 60 s
    #[arg(long, value_name = "DURATION", value_parser = duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "60s", conflicts_with = "file")]
    wait: Option<Duration>,
    /// Check the jobs, and push none: opens no store
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Checked, or to be read.
enum Jobs<'a> {
    Given(Vec<Job>),
    File(Source<'a>),
}

/// The time of the store, which decides when jobs expire: asked once, and counted on.
struct Clock {
    said: Timestamp,
    at: Instant,
}

impl Clock {
    async fn of(store: &dyn Store) -> Result<Self> {
        Ok(Self { said: store.now().await?, at: Instant::now() })
    }

    fn now(&self) -> Timestamp {
        self.said + self.at.elapsed()
    }
}

impl Push {
    pub(crate) async fn run(self) -> Result<()> {
        let config = self.store.config()?;
        if self.store.url_with(&config).starts_with("memory:") {
            return Err(Failure::usage(FORGETS));
        }
        let declared = self.store.declared(&config, &self.queue)?;
        // What is wrong with them must not create a store.
        let jobs = match &self.file {
            None => Jobs::Given(self.jobs()?),
            Some(path) => Jobs::File(Source::open(path, self.from_line)?),
        };
        if self.dry_run {
            return self.check(jobs);
        }
        self.store.creating(async |store| self.push_to(store, declared, &config, jobs).await).await
    }

    /// Pushes, and says if that has made the queue.
    async fn push_to(
        &self,
        store: SharedStore,
        declared: Option<Queue>,
        config: &Config,
        jobs: Jobs<'_>,
    ) -> Result<()> {
        let known = find::known(&*store, &self.queue).await?;
        let client = Client::new(store.clone()).queues(declared);
        let pushed = self.push(&*store, client, jobs).await;
        if known.is_none() {
            // Also when only a part of a file came so far. It is only a hint: if the store is away, what the push says
            // of it counts.
            let made = find::known(&*store, &self.queue).await.ok().flatten();
            let others = config.queues.keys().filter(|name| **name != self.queue);
            let near = did_you_mean(&self.queue, others.map(String::as_str));
            made.iter().filter(|view| !view.declared).for_each(|view| tell_made(view, &near));
        }
        pushed
    }

    /// Tells how many jobs are right, as far as can be seen without the store.
    fn check(&self, jobs: Jobs<'_>) -> Result<()> {
        let right = match jobs {
            Jobs::Given(jobs) => jobs.len() as u64,
            Jobs::File(source) => {
                source.check(|line| self.job_of(line, Timestamp::of_this_machine()))?
            }
        };
        say(match self.json {
            true => format!("{{\"checked\":{right}}}"),
            false => format!("checked {}, pushed none", count(right, "job")),
        });
        Ok(())
    }

    /// The jobs of the command line, checked as far as possible without the store.
    fn jobs(&self) -> Result<Vec<Job>> {
        if self.wait.is_some()
            && let [_, last] = &*self.payload
            && duration(last).is_ok()
        {
            return Err(Failure::usage(format!("did you mean --wait={last}?")));
        }
        let null = ["null".to_owned()];
        let payloads = if self.payload.is_empty() { &null[..] } else { &self.payload };
        let several = payloads.len() > 1;
        if several && self.idempotency_key.is_some() {
            // The others would be taken for the first one, and dropped.
            return Err(Failure::usage("--idempotency-key goes with one payload"));
        }
        let job = |(place, text): (usize, &String)| {
            let payload = Payload::from_json_text(text)
                .map_err(|error| unreadable(error, text, several.then_some(place)))?;
            let mut job = Job::with_payload(&self.queue, payload);
            job.priority = self.priority.unwrap_or(job.priority);
            job.options.idempotency_scope = self.idempotency_scope.unwrap_or_default();
            let job = self.with_options(job, Timestamp::of_this_machine());
            let wrong = |error: seriatim::Error| error.in_field(format!("jobs[{place}]"));
            job.validate().map_err(|error| told_of_one(wrong(error), several))?;
            Ok(job)
        };
        payloads.iter().enumerate().map(job).collect()
    }

    async fn push(&self, store: &dyn Store, client: Client, jobs: Jobs<'_>) -> Result<()> {
        let clock = Clock::of(store).await?;
        let mut jobs = match jobs {
            Jobs::Given(jobs) => jobs,
            Jobs::File(source) => return self.push_file(&client, source, &clock).await,
        };
        // They were made before there was a store.
        jobs.iter_mut().for_each(|job| job.options.expires_at = self.expires_at(clock.now()));
        let several = jobs.len() > 1;
        if let Some(wait) = self.wait {
            let (Some(job), false) = (jobs.pop(), several) else {
                return Err(Failure::usage("--wait goes with one payload"));
            };
            return self.push_and_wait(&client, job, wait).await;
        }
        let keys: Vec<Option<String>> = jobs.iter().map(|job| job.key.clone()).collect();
        let pushed = client.push_all(jobs).await.map_err(|error| told_of_one(error, several))?;
        self.show(&pushed, &keys, clock.now())
    }

    async fn push_file(&self, client: &Client, source: Source<'_>, clock: &Clock) -> Result<()> {
        let job = |line| self.job_of(line, clock.now());
        let loaded = push_file::push(client, source, job).await?;
        let told = format!("pushed {}{}", count(loaded.counts.pushed, "job"), loaded.known());
        tell(self.json, &loaded.counts, told);
        loaded.check()
    }

    /// Success is the job's: a dead or cancelled one fails the command, and so does one that has not ended in time.
    async fn push_and_wait(&self, client: &Client, job: Job, wait: Duration) -> Result<()> {
        let job = client.push_and_wait(job, wait).await?;
        let (id, state, error) = (job.id, job.state, job.error.clone());
        match (self.json, &job.result) {
            (true, _) => say_json(&document::Job::from(job)),
            (false, Some(result)) => say(result),
            (false, None) => {}
        }
        let why = error.map(|error| format!(": {error}")).unwrap_or_default();
        match state {
            JobState::Succeeded => Ok(()),
            JobState::Queued | JobState::Running => {
                let (state, wait) = (state_name(state), seriatim::duration::format(wait));
                Err(Failure::conflict(format!(
                    "job {id} is {state} after {wait}{why}; it continues: `seriatim jobs show {id}`"
                )))
            }
            JobState::Dead | JobState::Canceled => {
                Err(Failure::conflict(format!("job {id} is {}{why}", state_name(state))))
            }
        }
    }

    /// The job of a line. What the line names wins over the options.
    fn job_of(&self, line: JobInput, now: Timestamp) -> seriatim::Result<Job> {
        let line = line.or(self.priority, self.idempotency_scope);
        Ok(self.with_options(line.into_job(&self.queue)?, now))
    }

    /// The job with the options for what it lacks.
    fn with_options(&self, mut job: Job, now: Timestamp) -> Job {
        job.key = job.key.or_else(|| self.key.clone());
        job.task = job.task.or_else(|| self.task.clone());
        job.score = job.score.or(self.score);
        if job.run_at == RunAt::Now {
            job.run_at = match (self.r#in, self.at) {
                (Some(length), _) => RunAt::In(length),
                (None, Some(time)) => RunAt::At(time),
                (None, None) => RunAt::Now,
            };
        }
        let options = &mut job.options;
        let keep = |value: &mut Option<String>, given: Option<&String>| {
            *value = value.take().or_else(|| given.cloned());
        };
        keep(&mut options.group, self.group.as_ref());
        keep(&mut options.batch, self.batch.as_ref());
        keep(&mut options.node, self.node.as_ref());
        keep(&mut options.consumer_group, self.consumer_group.as_ref());
        keep(&mut options.idempotency_key, self.idempotency_key.as_ref());
        options.max_retries = options.max_retries.or(self.max_retries);
        options.timeout = options.timeout.or(self.timeout);
        options.expires_at = options.expires_at.or(self.expires_at(now));
        match &self.build {
            Some(build) if options.consumer_group.is_none() => job.build(build),
            _ => job,
        }
    }

    fn expires_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.expires_in.map(|length| now + length)
    }

    /// One line for each job. A refused one fails the command.
    fn show(&self, pushed: &[Pushed], keys: &[Option<String>], now: Timestamp) -> Result<()> {
        if self.json {
            say_json(&PushedJobs::new(pushed, false));
        }
        let mut refused = Ok(());
        for (pushed, key) in pushed.iter().zip(keys) {
            match pushed.taken(key.as_deref()) {
                Ok(id) if !self.json => say(match pushed.again_at {
                    Some(at) => {
                        let left = length(at.since(now));
                        format!("{id} {}: throttled for {left}", push_status(pushed.status))
                    }
                    None => format!("{id} {}", push_status(pushed.status)),
                }),
                Ok(_) => {}
                Err(error) => {
                    // The last one is the command's error. A document has all of them.
                    let earlier = std::mem::replace(&mut refused, Err(error));
                    earlier.err().filter(|_| !self.json).into_iter().for_each(hint);
                }
            }
        }
        Ok(refused?)
    }
}

fn scope(text: &str) -> Result<IdempotencyScope, String> {
    match text {
        "key" => Ok(IdempotencyScope::Key),
        "store" => Ok(IdempotencyScope::Store),
        _ => Err("must be key or store".to_owned()),
    }
}

/// A number of the command line.
fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "write a number, as in 7 or -1.5".to_owned())
}

fn priority(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("write a whole number from 0 to {PRIORITY_MAX}"))
}

/// Names the payload if there are several. Shells remove the quotes of a string, a common first mistake.
fn unreadable(error: seriatim::Error, text: &str, place: Option<usize>) -> Failure {
    let place = place.map(|place| format!(" {}", place + 1)).unwrap_or_default();
    let told = error.to_string();
    let told = told.strip_prefix("payload: ").unwrap_or(&told);
    let example = match text.trim_start().starts_with(['{', '[']) {
        true => "all names and strings need double quotes, as in '{\"status\":\"paid\"}'",
        false => "write a string as '\"text\"'",
    };
    let told = format!("payload{place}: {told}; {example}");
    Failure::from(error).reworded(told)
}

/// Names a job by the place of its payload, if there are several.
fn told_of_one(error: seriatim::Error, several: bool) -> Failure {
    let Some((place, field)) = error.field().and_then(split_place) else {
        return error.into();
    };
    let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
    let place = if several { format!("payload {}: ", place + 1) } else { String::new() };
    let told = format!("{place}{field}{}", error.message());
    Failure::from(error).reworded(told)
}

/// Tells which kind of queue this push created.
fn tell_made(view: &QueueView, near: &str) {
    let (name, mode) = (&view.queue.name, view.queue.mode);
    let why = match mode.is_keyed() {
        true => "with a key",
        false => "without a key",
    };
    hint(format!(
        "created queue {name}{near} with mode {mode}, the default for a push {why}; for another mode add [queues.{}] to seriatim.toml: the next `seriatim serve` converts the queue, if its jobs have the keys that the mode needs",
        toml_key(name)
    ));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use clap::Parser;
    use seriatim::ErrorKind;
    use seriatim::store::{JobQuery, Memory, Wrapper};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        push: Push,
    }

    #[tokio::test]
    async fn a_job_expires_by_the_clock_of_the_store() {
        let behind = || Timestamp::of_this_machine() - Duration::from_secs(7_200);
        let store: SharedStore = Arc::new(Memory::with_clock(behind));
        let push = Line::parse_from(["push", "orders", "1", "--expires-in", "1h"]).push;
        let jobs = Jobs::Given(push.jobs().unwrap());
        push.push(&*store, Client::new(store.clone()), jobs).await.unwrap();
        let query = JobQuery::new("orders", JobState::Queued);
        let id = store.jobs(query).await.unwrap().rows[0].id;
        let options = store.job(id).await.unwrap().unwrap().options.unwrap();
        let left = options.expires_at.unwrap().since(id.created_at()).as_secs();
        assert!((3_590..=3_600).contains(&left), "{left}");
    }

    #[test]
    fn what_a_line_names_wins_over_the_options_of_the_command_line() {
        let options = ["--priority", "7", "--idempotency-scope", "store", "--task", "sync"];
        let line = [&["push", "orders", "--file", "jobs.ndjson"][..], &options].concat();
        let push = Line::parse_from(line).push;
        let of = |line: &str| {
            let line = serde_json::from_str(line).unwrap();
            let job = push.job_of(line, Timestamp::of_this_machine()).unwrap();
            (job.priority, job.options.idempotency_scope, job.task)
        };
        let named = of(r#"{"priority":100,"idempotency_scope":"key","task":"own"}"#);
        assert_eq!(named, (100, IdempotencyScope::Key, Some("own".to_owned())));
        assert_eq!(of("{}"), (7, IdempotencyScope::Store, Some("sync".to_owned())));
    }

    /// A store that is away from the second push on.
    struct Away {
        inner: SharedStore,
        pushes: AtomicUsize,
    }

    impl Wrapper for Away {
        fn inner(&self) -> &SharedStore {
            &self.inner
        }

        async fn around<T: Send + 'static>(
            &self,
            operation: &'static str,
            call: impl Future<Output = seriatim::Result<T>> + Send + 'static,
        ) -> seriatim::Result<T> {
            let more = usize::from(operation == "push");
            if self.pushes.fetch_add(more, Ordering::SeqCst) + more > 1 {
                return Err(seriatim::Error::new(ErrorKind::Unavailable, "away"));
            }
            call.await
        }
    }

    #[tokio::test]
    async fn where_a_file_goes_on_is_said_also_if_the_store_stays_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.ndjson");
        std::fs::write(&path, "{\"payload\":1}\n".repeat(1_500)).unwrap();
        let away = Away { inner: Arc::new(Memory::new()), pushes: AtomicUsize::new(0) };
        let push = Line::parse_from(["push", "orders", "--file", "jobs.ndjson"]).push;
        let jobs = Jobs::File(Source::open(&path, 1).unwrap());
        let pushed = push.push_to(Arc::new(away), None, &Config::default(), jobs).await;
        let said = pushed.unwrap_err().to_string();
        assert!(said.contains("lines 1001 to 1500 may be in the store too"), "{said}");
    }
}
