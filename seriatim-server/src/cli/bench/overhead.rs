//! What a batch, a limit, idempotency keys, parked keys or real work cost: jobs without and with it are pushed and drained, in turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use seriatim::limits::RUNNING_LIMIT_MAX;
use seriatim::store::{Claim, Declare, Heartbeat, Lease, NodeId, NodeInfo, delete_queue};
use seriatim::{Backoff, Batch, Client, Context, Groups, Job, Payload, Queue, Share, SharedStore};

use super::settings::{Bench, declare_empty};
use crate::cli::output::Failure;

/// Rounds of each; the median counts.
const ROUNDS: usize = 3;
/// The group of the keys that wait, and how long its only turn runs.
const PARKED: &str = "parked";
const HOLDS: Duration = Duration::from_secs(30 * 60);
/// The payload of work, and of how many calls one fails.
const WORK_BYTES: usize = 4_096;
const FAILS: u64 = 20;
/// The queue of the callbacks.
const AFTER: &str = "bench-after";

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

impl Bench {
    /// Compares them.
    pub(super) async fn with_and_without(
        &self,
        extra: Extra,
        store: &SharedStore,
    ) -> Result<serde_json::Value, Failure> {
        let queue = match extra {
            Extra::ParkedKeys => self.queue().groups(one_group_limited()),
            Extra::Work => self.queue().backoff(Backoff::Constant { base: Duration::ZERO }),
            _ => self.queue(),
        };
        declare_empty(store, &queue).await?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let alone = self.round(store, &queue, &|_| {}).await?;
            let with = match extra {
                Extra::Batch => self.round_in_batch(store, &queue).await?,
                Extra::Limit => self.round_with_limit(store, &queue, self.jobs).await?,
                Extra::ParkedKeys => self.round_beside_parked(store, &queue).await?,
                Extra::Work => self.round_of_work(store, &queue).await?,
                Extra::IdempotencyKeys => {
                    let name = |job: &mut Job| job.options.idempotency_key = Some(unique());
                    self.round(store, &queue, &name).await?
                }
            };
            let at_capacity = match extra {
                Extra::Limit => {
                    Some(self.round_with_limit(store, &queue, self.concurrency as u64).await?)
                }
                _ => None,
            };
            rounds.push((alone, with, at_capacity));
        }
        let rate = |part: &dyn Fn(&Turns) -> Duration| {
            (self.jobs as f64 / median(&rounds, |round| part(round).as_secs_f64())).round()
        };
        let percent =
            |ratio: &dyn Fn(&Turns) -> f64| ((median(&rounds, ratio) - 1.0) * 1e3).round() / 10.0;
        let mut result = serde_json::json!({
            "store": store.capabilities().name, "mode": queue.mode, "jobs": self.jobs,
            "concurrency": self.concurrency,
            "push_per_s": rate(&|(alone, ..)| alone.push), "push_per_s_with": rate(&|(_, with, _)| with.push),
            "drain_per_s": rate(&|(alone, ..)| alone.drain), "drain_per_s_with": rate(&|(_, with, _)| with.drain),
            "overhead_percent": percent(&|(alone, with, _)| times(with.took(), alone.took())),
            "drain_overhead_percent": percent(&|(alone, with, _)| times(with.drain, alone.drain)),
        });
        if matches!(extra, Extra::Limit) {
            let drain =
                |(.., tight): &Turns| tight.as_ref().map_or(Duration::ZERO, |round| round.drain);
            result["drain_per_s_at_capacity"] = rate(&drain).into();
            let ratio = |round: &Turns| times(drain(round), round.0.drain);
            result["drain_overhead_percent_at_capacity"] = percent(&ratio).into();
        }
        Ok(result)
    }

    async fn round_in_batch(&self, store: &SharedStore, queue: &Queue) -> Result<Round, Failure> {
        let client = Client::new(store.clone());
        let id = unique();
        client.open_batch(&*id, Job::new(AFTER, &id)?).await?;
        let join = |job: &mut Job| job.options.batch = Some(id.clone());
        let round = self.round(store, queue, &join).await?;
        let batch = client.seal_batch(&*id).await?;
        if (batch.done, batch.pending) != (self.jobs, 0) || batch.callback.is_none() {
            return Err(Failure::failed(format!("the batch is wrong: {batch:?}")));
        }
        delete_queue(&**store, AFTER, true).await?;
        Ok(round)
    }

    async fn round_with_limit(
        &self,
        store: &SharedStore,
        queue: &Queue,
        running: u64,
    ) -> Result<Round, Failure> {
        let limited = queue.clone().running(running.clamp(1, RUNNING_LIMIT_MAX.into()) as u32);
        let declare = async |queue: &Queue| {
            store.declare(Declare { now: None, queues: vec![queue.clone()] }).await
        };
        declare(&limited).await?;
        let round = self.round(store, &limited, &|_| {}).await?;
        declare(queue).await?;
        Ok(round)
    }

    async fn round_beside_parked(
        &self,
        store: &SharedStore,
        queue: &Queue,
    ) -> Result<Round, Failure> {
        let park = |job: &mut Job| {
            job.options.group = Some(PARKED.to_owned());
            job.key = job.key.take().map(|key| format!("{PARKED}-{key}"));
        };
        self.push_all(store, queue, &park).await?;
        let node = NodeInfo::new(NodeId::from(&*unique()), HOLDS);
        let claim = Claim::new(&*queue.name, node.id.clone(), 1, Lease::Node { ttl: HOLDS });
        store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await?;
        if store.claim(claim).await?.turns.is_empty() {
            return Err(Failure::failed(
                "the turn that holds the place of the others was not given",
            ));
        }
        let round = self.round(store, queue, &|_| {}).await?;
        delete_queue(&**store, &queue.name, true).await?;
        store.declare(Declare { now: None, queues: vec![queue.clone()] }).await?;
        Ok(round)
    }

    async fn round_of_work(&self, store: &SharedStore, queue: &Queue) -> Result<Round, Failure> {
        let dress = |job: &mut Job| {
            job.payload = Payload::from_bytes(filled(WORK_BYTES));
            job.options.idempotency_key = Some(unique());
        };
        let started = Instant::now();
        self.push_all(store, queue, &dress).await?;
        let pushed = Instant::now();
        let calls = AtomicU64::new(0);
        let work = move |batch: &Batch<Payload>, call: &Context| {
            for lane in batch.lanes() {
                call.progress(lane, &"half of it")?;
            }
            let number = calls.fetch_add(1, Ordering::Relaxed);
            let is_new = batch.lanes().iter().all(|lane| lane.attempt() == 1);
            match is_new && number.is_multiple_of(FAILS) {
                true => Err("now and then".into()),
                false => Ok(()),
            }
        };
        self.drain_by(store, queue, self.jobs, work).await?;
        Ok(Round { push: pushed - started, drain: pushed.elapsed() })
    }

    async fn round(
        &self,
        store: &SharedStore,
        queue: &Queue,
        dress: &(dyn Fn(&mut Job) + Sync),
    ) -> Result<Round, Failure> {
        let started = Instant::now();
        self.push_all(store, queue, dress).await?;
        let pushed = Instant::now();
        self.drain(store, queue).await?;
        Ok(Round { push: pushed - started, drain: pushed.elapsed() })
    }
}

fn one_group_limited() -> Groups {
    Groups::each(Share::default()).named(PARKED, Share::default().running(1))
}

/// An id that no run of the program has had.
fn unique() -> String {
    format!("bench-{:016x}", fastrand::u64(..))
}

/// A JSON string of this many bytes that a compressing store cannot make much smaller.
fn filled(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    text.push('"');
    text.extend(std::iter::repeat_with(fastrand::alphanumeric).take(bytes - 2));
    text.push('"');
    text
}

/// The rounds without and with it, and with a limit equal to the concurrency.
type Turns = (Round, Round, Option<Round>);

fn median(rounds: &[Turns], of: impl Fn(&Turns) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn times(with: Duration, alone: Duration) -> f64 {
    with.as_secs_f64() / alone.as_secs_f64()
}

struct Round {
    push: Duration,
    drain: Duration,
}

impl Round {
    fn took(&self) -> Duration {
        self.push + self.drain
    }
}
