//! The plan of a run, drawn from a seed: its queues, nodes and faults.
//!
//! Every seed leaves out many kinds of faults: a run with all of them together hides more than it finds.

use std::time::Duration;

use fastrand::Rng;
use seriatim::store::Throttled;
use seriatim::{
    Backoff, DueRule, Exhaustion, Groups, Merge, Mode, Queue, Rate, Share, Window,
    engine::Scheduler,
};

use super::Mode as RunMode;

/// The plan of a run.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) queues: Vec<Queue>,
    pub(super) nodes: Vec<NodePlan>,
    pub(super) producers: usize,
    /// Pushes of each producer.
    pub(super) pushes: usize,
    /// Keys of each queue.
    pub(super) keys: u32,
    /// How long faults are injected.
    pub(super) length: Duration,
    pub(super) wire: WirePlan,
    pub(super) handlers: HandlerPlan,
    pub(super) events: Vec<Happening>,
    /// The mean time between two events.
    pub(super) event_every: Duration,
    /// The mean time between two administrative actions. `None`: no actions.
    pub(super) people_every: Option<Duration>,
    /// Probabilities of delays, priorities, expiry times, tasks and so on.
    pub(super) jobs: JobPlan,
    /// See [`seriatim::store::Capabilities::claim_split`].
    pub(super) claim_split: Option<usize>,
    /// Whether each producer fills a batch.
    pub(super) batches: bool,
}

/// How a node is configured.
#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) group: Option<String>,
    pub(super) concurrency: usize,
    pub(super) lease: Duration,
    pub(super) heartbeat: Duration,
    pub(super) poll_interval: Duration,
    pub(super) prefetch_max: usize,
    pub(super) shutdown_timeout: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) scheduler: Scheduler,
    /// Most concurrent calls for each queue.
    pub(super) limit: Option<usize>,
    /// Works only on the first queues, up to this number.
    pub(super) queues: usize,
    pub(super) observed: bool,
}

/// Faults of store calls, as probabilities.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WirePlan {
    /// Fails before execution.
    pub(super) refused: f64,
    /// Executed, but the answer is lost.
    pub(super) lost: f64,
    /// The answer is lost immediately, and the call is executed later.
    pub(super) late: f64,
    /// Takes up to a second.
    pub(super) slow: f64,
    /// Takes up to 20 s.
    pub(super) stalled: f64,
}

/// What handlers do, as weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandlerPlan {
    pub(super) quick: u32,
    pub(super) short: u32,
    pub(super) long: u32,
    pub(super) fail: u32,
    pub(super) panic: u32,
    pub(super) hang: u32,
    pub(super) heed: u32,
    pub(super) by_lane: u32,
    pub(super) put_off: u32,
    pub(super) give_up: u32,
    pub(super) unstartable: u32,
}

/// Options of jobs, as probabilities.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobPlan {
    pub(super) delayed: f64,
    pub(super) urgent: f64,
    pub(super) expiring: f64,
    pub(super) with_task: f64,
    pub(super) idempotent: f64,
    pub(super) routed: f64,
    pub(super) own_rules: f64,
    pub(super) undecodable: f64,
    pub(super) scored: f64,
    /// The number of different payloads: with few, many jobs are equal.
    pub(super) payloads: u64,
}

/// An occasional fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// No caller can reach the store.
    Outage,
    /// One node cannot reach it.
    Partition,
    /// The store's clock jumps.
    StoreClock,
    /// A machine's clock jumps.
    NodeClock,
    /// A node pauses, and then continues.
    Pause,
    /// A node dies and is restarted.
    Kill,
    /// A node is stopped and restarted.
    Stop,
}

impl Happening {
    const ALL: [Self; 7] = [
        Self::Outage,
        Self::Partition,
        Self::StoreClock,
        Self::NodeClock,
        Self::Pause,
        Self::Kill,
        Self::Stop,
    ];
}

fn secs(rng: &mut Rng, least: u64, most: u64) -> Duration {
    Duration::from_millis(rng.u64(least * 1_000..=most * 1_000))
}

fn sometimes<T>(rng: &mut Rng, chance: f64, value: T) -> Option<T> {
    (rng.f64() < chance).then_some(value)
}

/// A probability below `most`, or 0 for half of all seeds.
fn chance(rng: &mut Rng, most: f64) -> f64 {
    if rng.bool() { 0.0 } else { most * rng.f64() * rng.f64() }
}

impl Scene {
    pub(super) fn of(rng: &mut Rng, late: &mut Rng, mode: RunMode) -> Self {
        let lease = secs(rng, 6, 40);
        let queues = queues(rng, lease);
        let count = rng.usize(1..=4);
        let alike = rng.u8(0..4) == 0;
        let first = node(rng, 0, lease, queues.len());
        let mut nodes = vec![first.clone()];
        for place in 1..count {
            let plan = node(rng, place, lease, queues.len());
            nodes.push(if alike { first.clone() } else { plan });
        }
        let length = match mode {
            RunMode::Safety => secs(rng, 40, 160),
            RunMode::Liveness => secs(rng, 20, 90),
        };
        let mut scene = Self {
            queues,
            nodes,
            producers: rng.usize(1..=3),
            pushes: rng.usize(5..=60),
            keys: rng.u32(1..=6),
            length,
            wire: WirePlan {
                refused: chance(rng, 0.3),
                lost: chance(rng, 0.3),
                late: if late.bool() { 0.0 } else { 0.4 * late.f64() },
                slow: chance(rng, 0.3),
                stalled: chance(rng, 0.02),
            },
            handlers: handlers(rng),
            events: Happening::ALL.into_iter().filter(|_| rng.bool()).collect(),
            event_every: secs(rng, 2, 15),
            people_every: rng.bool().then(|| secs(rng, 1, 8)),
            jobs: jobs(rng),
            claim_split: sometimes(rng, 0.5, 1),
            batches: false,
        };
        let accumulates = |queue: &&mut Queue| queue.mode == Mode::Accumulate;
        for queue in scene.queues.iter_mut().filter(accumulates) {
            if late.bool() {
                queue.window = Some(window(late));
                queue.due = DueRule::First;
            }
        }
        scene.queues.iter_mut().for_each(|queue| share_out(queue, late));
        scene.queues.iter_mut().for_each(|queue| throttle(queue, late));
        scene.batches = late.u8(0..3) == 0;
        scene
    }
}

/// Gives groups to some queues, and limits.
fn share_out(queue: &mut Queue, rng: &mut Rng) {
    if rng.u8(0..3) == 0 {
        let mut groups = Groups::each(share(rng));
        if rng.bool() {
            groups = groups.named(GROUPS[0], share(rng));
        }
        queue.groups = Some(groups);
    }
    if rng.u8(0..3) == 0 {
        queue.limit = share(rng).limit;
    }
}

/// Lets some queues throttle their keys.
fn throttle(queue: &mut Queue, rng: &mut Rng) {
    if queue.mode.is_keyed() && rng.u8(0..4) == 0 {
        queue.throttle = Some(Duration::from_millis(rng.u64(50..8_000)));
        queue.throttled = if rng.bool() { Throttled::Merge } else { Throttled::Refuse };
    }
}

/// The groups that jobs have, if their queue has some.
pub(super) const GROUPS: [&str; 2] = ["a", "b"];

fn share(rng: &mut Rng) -> Share {
    let mut share = Share::default().weight(rng.u32(1..4));
    if rng.bool() {
        share = share.running(rng.u32(1..5));
    }
    if rng.u8(0..3) == 0 {
        share = share.rate(Rate::per_second(rng.u32(3..20))).burst(rng.u32(1..5));
    }
    share
}

fn window(rng: &mut Rng) -> Window {
    let quiet = Duration::from_millis(rng.u64(50..5_000));
    let mut window = Window::new(quiet, quiet + Duration::from_millis(rng.u64(0..10_000)));
    window.max_jobs = rng.bool().then(|| rng.u32(2..12));
    window.max_bytes = rng.bool().then(|| rng.u64(10..500));
    window
}

fn queues(rng: &mut Rng, lease: Duration) -> Vec<Queue> {
    let mut modes = Mode::ALL.to_vec();
    modes.push(*rng.choice(&Mode::ALL).unwrap_or(&Mode::Fifo));
    rng.shuffle(&mut modes);
    modes.truncate(rng.usize(1..=modes.len()));
    modes.into_iter().enumerate().map(|(place, mode)| queue(rng, place, mode, lease)).collect()
}

fn queue(rng: &mut Rng, place: usize, mode: Mode, lease: Duration) -> Queue {
    let mut queue = Queue::new(format!("{}{place}", mode.as_str()), mode);
    queue.batch_size = *rng.choice(&[1, 1, 3, 10]).unwrap_or(&1);
    queue.max_retries = rng.u32(0..5);
    queue.max_crashes = rng.u32(1..6);
    queue.exhausted = match rng.u8(0..4) {
        0 => Exhaustion::Hold,
        1 => Exhaustion::Drop,
        _ => Exhaustion::Bury,
    };
    let base = Duration::from_millis(rng.u64(100..3_000));
    queue.backoff = match rng.u8(0..3) {
        0 => Backoff::Constant { base },
        1 => Backoff::Linear { base },
        _ => Backoff::Exponential { base, cap: Duration::from_secs(10), jitter: 50 },
    };
    queue.timeout = rng.bool().then(|| secs(rng, 1, 20));
    // Longer than the node's, or shorter: three heartbeats fit into either.
    let part =
        if place.is_multiple_of(2) { 0.75 + rng_part(place) / 4.0 } else { 1.0 + rng_part(place) };
    queue.lease = sometimes(rng, 0.2, lease.mul_f64(part));
    match mode {
        Mode::Fifo => queue.take = *rng.choice(&[1, 1, 2, 4]).unwrap_or(&1),
        Mode::Accumulate => {
            queue.merge =
                *rng.choice(&[Merge::Min, Merge::Max, Merge::None]).unwrap_or(&Merge::Min);
            queue.due = if rng.bool() { DueRule::First } else { DueRule::Earliest };
        }
        _ => {}
    }
    queue
}

/// A different fraction of one for each place.
fn rng_part(place: usize) -> f64 {
    1.0 / (place + 2) as f64
}

const SCHEDULERS: [Scheduler; 4] =
    [Scheduler::Lag, Scheduler::Seq, Scheduler::Weighted, Scheduler::Strict];

fn node(rng: &mut Rng, place: usize, lease: Duration, queues: usize) -> NodePlan {
    let heartbeat = lease / rng.u32(4..8);
    NodePlan {
        name: format!("n{place}"),
        group: sometimes(rng, 0.3, "blue".to_owned()),
        concurrency: rng.usize(1..=6),
        lease,
        heartbeat,
        poll_interval: Duration::from_millis(rng.u64(200..3_000)),
        prefetch_max: *rng.choice(&[0, 3, 20, 1_000]).unwrap_or(&0),
        shutdown_timeout: secs(rng, 0, 15),
        cancel_grace: Duration::from_millis(rng.u64(0..5_000)),
        scheduler: *rng.choice(&SCHEDULERS).unwrap_or(&Scheduler::Lag),
        limit: rng.bool().then(|| rng.usize(1..=3)),
        queues: if place == 0 || rng.bool() { queues } else { rng.usize(1..=queues) },
        observed: rng.bool(),
    }
}

fn handlers(rng: &mut Rng) -> HandlerPlan {
    let weight = |rng: &mut Rng| if rng.bool() { 0 } else { rng.u32(0..8) };
    HandlerPlan {
        quick: rng.u32(1..20),
        short: rng.u32(1..20),
        long: weight(rng) / 2,
        fail: weight(rng),
        panic: weight(rng) / 2,
        hang: weight(rng) / 2,
        heed: weight(rng) / 2,
        by_lane: weight(rng),
        put_off: weight(rng) / 2,
        give_up: weight(rng) / 3,
        unstartable: weight(rng) / 7,
    }
}

fn jobs(rng: &mut Rng) -> JobPlan {
    JobPlan {
        delayed: chance(rng, 0.5),
        urgent: chance(rng, 0.5),
        expiring: chance(rng, 0.3),
        with_task: chance(rng, 0.8),
        idempotent: chance(rng, 1.0),
        routed: chance(rng, 0.3),
        own_rules: chance(rng, 0.3),
        undecodable: chance(rng, 0.1),
        scored: if rng.bool() { 1.0 } else { rng.f64() },
        payloads: *rng.choice(&[3, 12, 1_000]).unwrap_or(&12),
    }
}
