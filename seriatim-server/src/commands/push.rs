//! `seriatim push`: pushes jobs from the command line, a file or standard input.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use seriatim::store::Pushed;
use seriatim::{Client, Job, Payload, RunAt, Timestamp};

use super::args::StoreArg;
use super::{duration, time};
use crate::output::{Failure, say};

/// Jobs of a file that are pushed together.
const FILE_BATCH: usize = 1_000;
/// Longest line of a file, in bytes.
const LINE_BYTES_MAX: u64 = 8 << 20;

#[derive(Args)]
pub(crate) struct Push {
    /// The queue
    queue: String,
    /// Payloads: JSON documents, one job each; `null` when none is given
    payload: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// The key: jobs of one key never overlap
    #[arg(long)]
    key: Option<String>,
    /// The place among the jobs of the key; lower first
    #[arg(long, allow_negative_numbers = true)]
    score: Option<f64>,
    /// The task
    #[arg(long)]
    task: Option<String>,
    /// Due after this long: 250ms, 10s, 5m, 1h, 3d
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "at")]
    r#in: Option<Duration>,
    /// Due at this time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
    /// Lower is sooner, 0 to 32767
    #[arg(long)]
    priority: Option<u16>,
    /// A repeat returns the first job and changes nothing
    #[arg(long)]
    idempotency_key: Option<String>,
    /// Jobs as lines of JSON ({"key","payload","score","task","run_at","delay","priority",…}); - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A job of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(alias = "id")]
    key: Option<String>,
    payload: Option<Box<RawValue>>,
    score: Option<f64>,
    task: Option<String>,
    run_at: Option<f64>,
    delay: Option<f64>,
    priority: Option<u16>,
    idempotency_key: Option<String>,
    max_retries: Option<u32>,
    node: Option<String>,
    consumer_group: Option<String>,
}

impl Push {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        self.store.using(async |store| self.push(Client::new(store)).await).await
    }

    async fn push(&self, client: Client) -> Result<(), Failure> {
        if let Some(path) = self.file.clone() {
            return self.push_file(&client, &path).await;
        }
        let payloads =
            if self.payload.is_empty() { vec!["null".to_owned()] } else { self.payload.clone() };
        let mut jobs = Vec::with_capacity(payloads.len());
        for text in &payloads {
            jobs.push(
                self.with_options(Job::with_payload(&self.queue, Payload::from_json_text(text)?)),
            );
        }
        let pushed = client.push_all(jobs).await?;
        self.show(&pushed)
    }

    fn with_options(&self, mut job: Job) -> Job {
        job.key = job.key.or_else(|| self.key.clone());
        job.task = job.task.or_else(|| self.task.clone());
        job.score = job.score.or(self.score);
        job.priority = self.priority.unwrap_or(job.priority);
        if job.run_at == RunAt::Now {
            job.run_at = match (self.r#in, self.at) {
                (Some(length), _) => RunAt::In(length),
                (None, Some(time)) => RunAt::At(time),
                (None, None) => RunAt::Now,
            };
        }
        job.options.idempotency_key =
            job.options.idempotency_key.or_else(|| self.idempotency_key.clone());
        job
    }

    async fn push_file(&self, client: &Client, path: &PathBuf) -> Result<(), Failure> {
        let reader: Box<dyn Read> = if path.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            let opened = std::fs::File::open(path);
            Box::new(opened.map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?)
        };
        let mut reader = BufReader::new(reader);
        let (mut jobs, mut number, mut total) = (Vec::new(), 0_u64, 0_usize);
        let mut text = String::new();
        loop {
            text.clear();
            number += 1;
            let at = |e: &dyn std::fmt::Display| {
                Failure::failed(format!(
                    "{}:{number}: {e} ({total} jobs before it are pushed)",
                    path.display()
                ))
            };
            let read =
                reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut text).map_err(|e| at(&e))?;
            if read as u64 == LINE_BYTES_MAX {
                return Err(at(&format!("the line is longer than {LINE_BYTES_MAX} bytes")));
            }
            if read > 0 && !text.trim().is_empty() {
                let line: Line = serde_json::from_str(&text).map_err(|e| at(&e))?;
                jobs.push(self.with_options(line.into_job(&self.queue).map_err(|e| at(&e))?));
            }
            if jobs.len() == FILE_BATCH || (read == 0 && !jobs.is_empty()) {
                let pushed =
                    client.push_all(std::mem::take(&mut jobs)).await.map_err(|e| at(&e))?;
                total += pushed.len();
            }
            if read == 0 {
                break;
            }
        }
        say(if self.json {
            format!("{{\"pushed\":{total}}}")
        } else {
            format!("pushed {total} jobs")
        });
        Ok(())
    }

    fn show(&self, pushed: &[Pushed]) -> Result<(), Failure> {
        if self.json {
            let jobs = serde_json::json!({ "jobs": pushed });
            say(serde_json::to_string(&jobs).map_err(Failure::failed)?);
            return Ok(());
        }
        for pushed in pushed {
            say(format!("{} {}", pushed.job_id, format!("{:?}", pushed.status).to_lowercase()));
        }
        Ok(())
    }
}

impl Line {
    fn into_job(self, queue: &str) -> seriatim::Result<Job> {
        let text = self.payload.as_ref().map_or("null", |payload| payload.get());
        let mut job = Job::with_payload(queue, Payload::from_json_text(text)?);
        (job.key, job.task, job.score) = (self.key, self.task, self.score);
        job.priority = self.priority.unwrap_or(job.priority);
        job.run_at = match (self.delay, self.run_at) {
            (Some(seconds), _) => RunAt::In(delay(seconds)?),
            (None, Some(seconds)) => RunAt::At(Timestamp::from_secs_f64(seconds)),
            (None, None) => RunAt::Now,
        };
        job.options.idempotency_key = self.idempotency_key;
        job.options.max_retries = self.max_retries;
        job.options.node = self.node;
        job.options.consumer_group = self.consumer_group;
        Ok(job)
    }
}

fn delay(seconds: f64) -> seriatim::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        seriatim::Error::invalid("delay", format!("must be 0 seconds or more, not {seconds}"))
    })
}
