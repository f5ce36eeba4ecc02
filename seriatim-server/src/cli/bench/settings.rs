//! The measurements and their jobs.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use seriatim::limits::PAYLOAD_BYTES_MAX;
use seriatim::store::Declare;
use seriatim::{Job, Mode, Payload, Queue, SharedStore};

use crate::cli::args::StoreArg;
use crate::cli::output::{Failure, Result};

/// Jobs in one bulk push.
pub(super) const PUSH_BATCH: usize = 1_000;

/// What the jobs have in every second round.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Extra {
    /// One batch that has all jobs
    Batch,
    /// A limit of running turns that is never reached, so only counting them costs. Also one that is as high
    /// as the concurrency, so that nothing can be claimed ahead
    Limit,
    /// An idempotency key for each job
    IdempotencyKeys,
    /// The same number of other keys, which wait for a limit of their group
    ParkedKeys,
    /// 4 KiB of payload, an idempotency key and a report of progress for each job; each twentieth fails once
    Work,
}

#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(super) store: StoreArg,
    /// Number of jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(super) jobs: u64,
    /// Maximum concurrent handler calls
    #[arg(long, default_value_t = 5)]
    pub(super) concurrency: usize,
    /// The mode of the queue
    #[arg(long, default_value = "parallel", value_parser = modes())]
    pub(super) mode: Mode,
    /// Number of different keys. Default: one for each job
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) keys: Option<u64>,
    /// Payload size in bytes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=PAYLOAD_BYTES_MAX as i64))]
    pub(super) payload_bytes: u32,
    /// Keep finished jobs for this long, as `retain_completed` does
    #[arg(long, value_parser = crate::cli::args::duration)]
    pub(super) retain: Option<Duration>,
    /// Instead measure claims of 100 lanes, alone and beside this many jobs: a tenth finished, a tenth scheduled, a
    /// hundredth behind one busy key, the rest waiting
    #[arg(long, conflicts_with_all = ["mode", "keys", "payload_bytes", "retain", "limit"],
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(super) backlog: Option<u64>,
    /// Instead measure single pushes to one key of a queue that has keys: alone, and behind this many payloads;
    /// then the first and the last tenth of a drain of them all
    #[arg(long, value_name = "PAYLOADS", conflicts_with_all = ["jobs", "keys", "payload_bytes", "limit", "backlog"],
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(super) hot: Option<u64>,
    /// Instead push and drain for this long at full speed, and compare the first tenth of it with the last:
    /// jobs per second, and the size of the store
    #[arg(long, value_name = "DURATION", value_parser = crate::cli::args::duration,
          conflicts_with_all = ["jobs", "backlog", "hot", "limit"])]
    pub(super) churn: Option<Duration>,
    /// Instead push and drain the jobs without and with this, in turn, and compare
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["limit", "backlog", "hot", "churn"])]
    pub(super) with: Option<Extra>,
    /// Also measure the bare limit: the least work of this store for the same guarantees
    #[arg(long)]
    pub(super) limit: bool,
    /// Print one JSON object on one line
    #[arg(long)]
    pub(super) json: bool,
    /// Only push jobs with the time of their push (internal)
    #[arg(long, hide = true)]
    pub(super) as_pusher: bool,
}

fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::as_str))
        .map(|word| Mode::from_name(&word).unwrap_or(Mode::Parallel))
}

impl Bench {
    pub(super) fn queue(&self) -> Queue {
        let mut queue = Queue::new(format!("bench-{}", self.mode), self.mode);
        queue.retain_completed = self.retain.or(Some(Duration::ZERO));
        queue
    }

    pub(super) fn job(&self, queue: &Queue, number: u64) -> Job {
        let text = match queue.mode {
            // Different payloads, which do not merge.
            Mode::Accumulate => number.to_string(),
            _ => String::new(),
        };
        let fill = (self.payload_bytes as usize).saturating_sub(2 + text.len());
        let payload = Payload::from_bytes(format!("\"{text}{}\"", " ".repeat(fill)));
        let job = Job::with_payload(queue.name.as_str(), payload);
        match queue.mode.is_keyed() {
            true => job.key(format!("key-{}", number % self.keys.unwrap_or(u64::MAX))),
            false => job,
        }
    }
}

/// Declares the queue, which must be empty.
pub(super) async fn declare_empty(store: &SharedStore, queue: &Queue) -> Result<()> {
    store.declare(Declare { now: None, queues: vec![queue.clone()] }).await?;
    let stats = store.stats(None).await?;
    if stats.iter().any(|stats| *stats.queue == queue.name && stats.jobs > 0) {
        let name = &queue.name;
        let message =
            format!("queue {name:?} of this store is not empty: bench on a store of its own");
        return Err(Failure::failed(message));
    }
    Ok(())
}
