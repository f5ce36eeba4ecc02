//! What this process counts itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::ErrorKind;
use seriatim::store::Turn;

use super::text::{Metric, label};
use crate::app::history::{Task, TaskPoint};
use crate::base::lock::lock;

/// Upper bounds of the latency buckets, in microseconds.
const BUCKETS_US: [u64; 12] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// Upper bounds of the buckets of handlers, in microseconds: from a millisecond to an hour.
const HANDLER_BUCKETS_US: [u64; 12] = [
    1_000,
    5_000,
    25_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];
/// Most queues whose handlers are timed one by one; all others together are `other`.
const TIMED_QUEUES_MAX: usize = 1_000;
/// Most tasks, each of a queue, whose turns are timed and counted one by one; all others of a queue are its `other`.
const TIMED_TASKS_MAX: usize = 500;

/// Outcomes that the history counts as failed.
const FAILED: [&str; 3] = ["retry", "bury", "crash"];

/// The operations whose time is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timed {
    Push,
    Claim,
    Settle,
}

/// A queue and one of its tasks.
type Named = (Arc<str>, Arc<str>);

/// Counters and histograms.
#[derive(Default)]
pub(crate) struct Meter {
    times: [Histogram; 3],
    /// Of handlers, by queue.
    handlers: Mutex<BTreeMap<Arc<str>, OfQueue>>,
    tasks: Mutex<BTreeMap<Named, OfTask>>,
    wakeups: AtomicU64,
    rescued: AtomicU64,
    refused_logins: AtomicU64,
    /// By operation and kind. Both are few.
    errors: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// By method, route and status: as many as there are routes, times a few.
    requests: Mutex<BTreeMap<(&'static str, &'static str, u16), u64>>,
}

/// Turns of a queue.
#[derive(Default)]
struct OfQueue {
    times: Histogram,
    /// Those that the history does not have yet.
    recent: TaskPoint,
}

/// Turns of a task.
#[derive(Default)]
struct OfTask {
    times: Histogram,
    /// By outcome. These are few.
    turns: BTreeMap<&'static str, u64>,
    /// Those that the history does not have yet.
    recent: TaskPoint,
}

#[derive(Default)]
struct Histogram {
    /// One for each bucket, and one for what is slower.
    counts: [AtomicU64; BUCKETS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Meter {
    /// An HTTP request was answered.
    pub(crate) fn requested(&self, method: &'static str, route: &'static str, status: u16) {
        *lock(&self.requests).entry((method, route, status)).or_default() += 1;
    }

    /// A handler worked on a turn for this long, with this outcome.
    pub(crate) fn handled(&self, turn: &Turn, outcome: &'static str, length: Duration) {
        let has_failed = FAILED.contains(&outcome);
        let queue = self.handled_in(&turn.queue, length, has_failed);
        if let Some(task) = turn.task() {
            let mut tasks = lock(&self.tasks);
            let place = (turn.queue.clone(), task.clone());
            let is_one_more = tasks.len() >= TIMED_TASKS_MAX && !tasks.contains_key(&place);
            let place = if is_one_more { (queue, "other".into()) } else { place };
            let of = tasks.entry(place).or_default();
            of.times.add(length, &HANDLER_BUCKETS_US);
            *of.turns.entry(outcome).or_default() += 1;
            of.recent.add(length, has_failed);
        }
    }

    /// The turns of each queue and task since the last call.
    pub(crate) fn recent_turns(&self) -> Vec<(Task, TaskPoint)> {
        let mut seen = Vec::new();
        for (queue, of) in lock(&self.handlers).iter_mut().filter(|(_, of)| of.recent.turns > 0) {
            seen.push(((queue.clone(), None), std::mem::take(&mut of.recent)));
        }
        for ((queue, task), of) in
            lock(&self.tasks).iter_mut().filter(|(_, of)| of.recent.turns > 0)
        {
            let place = (queue.clone(), Some(task.clone()));
            seen.push((place, std::mem::take(&mut of.recent)));
        }
        seen
    }

    /// Returns the name under which the queue is counted.
    fn handled_in(&self, queue: &Arc<str>, length: Duration, has_failed: bool) -> Arc<str> {
        let mut handlers = lock(&self.handlers);
        let is_one_more = handlers.len() >= TIMED_QUEUES_MAX && !handlers.contains_key(queue);
        let name = if is_one_more { "other".into() } else { queue.clone() };
        let of = handlers.entry(name.clone()).or_default();
        of.times.add(length, &HANDLER_BUCKETS_US);
        of.recent.add(length, has_failed);
        name
    }

    /// The store rang.
    pub(crate) fn woken(&self) {
        self.wakeups.fetch_add(1, Ordering::Relaxed);
    }

    /// This process took over this many expired turns.
    pub(super) fn rescued(&self, turns: usize) {
        self.rescued.fetch_add(turns as u64, Ordering::Relaxed);
    }

    /// Counts a request with an unknown token.
    pub(crate) fn refused_login(&self) {
        self.refused_logins.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn took(&self, what: Timed, length: Duration) {
        self.times[what as usize].add(length, &BUCKETS_US);
    }

    pub(super) fn failed(&self, operation: &'static str, kind: ErrorKind) {
        *lock(&self.errors).entry((operation, kind.as_str())).or_default() += 1;
    }

    /// Writes all of it in Prometheus' format.
    pub(super) fn write(&self, text: &mut String) {
        let says = "Duration of store operations";
        let mut operations = Metric::histogram(text, "store_operation_seconds", says);
        for (what, name) in
            [(Timed::Push, "push"), (Timed::Claim, "claim"), (Timed::Settle, "settle")]
        {
            let labels = format!("operation=\"{name}\"");
            self.times[what as usize].write(&mut operations, &labels, &BUCKETS_US);
        }
        let says = "Duration of turns in their handlers; for remote workers, from claim to settle";
        let mut handlers = Metric::histogram(text, "handler_seconds", says);
        for (queue, of) in lock(&self.handlers).iter() {
            of.times.write(&mut handlers, &format!("queue=\"{queue}\""), &HANDLER_BUCKETS_US);
        }
        self.write_tasks(text);
        for (name, says, counter) in [
            ("store_wakeups_total", "Wake-ups from the store to this process", &self.wakeups),
            ("rescued_total", "Expired turns that this process took over", &self.rescued),
            ("http_refused_logins_total", "Requests with an unknown token", &self.refused_logins),
        ] {
            Metric::new(text, name, says).is(counter.load(Ordering::Relaxed));
        }
        let says = "Operations that the store refused or failed";
        let mut errors = Metric::new(text, "store_errors_total", says);
        for ((operation, kind), count) in lock(&self.errors).iter() {
            errors.add(format_args!("operation=\"{operation}\",kind=\"{kind}\""), count);
        }
        let mut requests = Metric::new(text, "http_requests_total", "Requests that were answered");
        for ((method, route, status), count) in lock(&self.requests).iter() {
            let labels = format_args!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            requests.add(labels, count);
        }
    }

    fn write_tasks(&self, text: &mut String) {
        let tasks = lock(&self.tasks);
        let labels = |(queue, task): &Named| format!("queue=\"{queue}\",task={}", label(task));
        let says = "Duration of turns of a task, as handler_seconds";
        let mut times = Metric::histogram(text, "task_seconds", says);
        for (place, of) in tasks.iter() {
            of.times.write(&mut times, &labels(place), &HANDLER_BUCKETS_US);
        }
        let mut turns = Metric::new(text, "task_turns_total", "Turns of a task by outcome");
        for (place, of) in tasks.iter() {
            for (outcome, count) in &of.turns {
                turns.add(format_args!("{},outcome=\"{outcome}\"", labels(place)), count);
            }
        }
    }
}

impl Histogram {
    fn add(&self, length: Duration, bounds_us: &[u64; 12]) {
        let us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let bucket = bounds_us.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn write(&self, metric: &mut Metric<'_>, label: &str, bounds_us: &[u64; 12]) {
        let mut below = 0;
        for (count, bound) in self.counts.iter().zip(bounds_us) {
            below += count.load(Ordering::Relaxed);
            let bound = *bound as f64 / 1e6;
            metric.add_part("_bucket", format_args!("{label},le=\"{bound}\""), below);
        }
        let all = below + self.counts[bounds_us.len()].load(Ordering::Relaxed);
        metric.add_part("_bucket", format_args!("{label},le=\"+Inf\""), all);
        metric.add_part("_sum", label, self.sum_us.load(Ordering::Relaxed) as f64 / 1e6);
        metric.add_part("_count", label, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(task: &str) -> Turn {
        let job = seriatim::store::TurnJob {
            id: seriatim::JobId::from_bytes([1; 16]),
            task: Some(task.into()),
            payload: seriatim::Payload::from_bytes(Vec::new()),
            score: 0.0,
            priority: 100,
            run_at: seriatim::Timestamp::of_this_machine(),
            attempt: 1,
            options: None,
        };
        Turn {
            lane: seriatim::store::LaneId { queue: 1, shard: 0, number: 1 },
            queue: "orders".into(),
            key: None,
            token: seriatim::store::Token(1),
            retry_count: -1,
            crashes: 0,
            error: None,
            claimed_at: seriatim::Timestamp::of_this_machine(),
            jobs: vec![job],
        }
    }

    #[test]
    fn d15_turns_are_timed_and_counted_by_task_up_to_a_limit() {
        let meter = Meter::default();
        meter.handled(&turn("say \"hi\""), "done", Duration::from_millis(1));
        for number in 0..TIMED_TASKS_MAX {
            meter.handled(&turn(&format!("task-{number}")), "retry", Duration::from_secs(2));
        }
        let mut text = String::new();
        meter.write(&mut text);
        for line in [
            "seriatim_task_turns_total{queue=\"orders\",task=\"say \\\"hi\\\"\",outcome=\"done\"} 1",
            "seriatim_task_seconds_bucket{queue=\"orders\",task=\"say \\\"hi\\\"\",le=\"0.001\"} 1",
            "seriatim_task_seconds_sum{queue=\"orders\",task=\"task-0\"} 2",
            "seriatim_task_turns_total{queue=\"orders\",task=\"other\",outcome=\"retry\"} 1",
            "seriatim_handler_seconds_count{queue=\"orders\"} 501",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}");
        }
    }

    #[test]
    fn d15_the_history_takes_the_turns_of_a_task_once() {
        let (meter, mut all) = (Meter::default(), TaskPoint::default());
        for (outcome, ms) in [("done", 100), ("crash", 300), ("snooze", 20)] {
            meter.handled(&turn("sync"), outcome, Duration::from_millis(ms));
            all.add(Duration::from_millis(ms), outcome == "crash");
        }
        assert_eq!((all.turns, all.failed, all.took_ms, all.longest_ms), (3, 1, 420, 300));
        let of = |task: Option<&str>| (("orders".into(), task.map(Into::into)), all);
        assert_eq!(meter.recent_turns(), [of(None), of(Some("sync"))]);
        assert_eq!(meter.recent_turns(), []);
    }

    #[test]
    fn d15_what_was_counted_is_written_in_the_format_of_prometheus() {
        let meter = Meter::default();
        meter.took(Timed::Push, Duration::from_millis(1));
        meter.took(Timed::Push, Duration::from_secs(60));
        meter.failed("claim", ErrorKind::Unavailable);
        meter.requested("GET", "/health", 200);
        meter.requested("GET", "/health", 200);
        let mut text = String::new();
        meter.write(&mut text);
        for line in [
            "seriatim_store_operation_seconds_bucket{operation=\"push\",le=\"0.0005\"} 0",
            "seriatim_store_operation_seconds_bucket{operation=\"push\",le=\"0.001\"} 1",
            "seriatim_store_operation_seconds_bucket{operation=\"push\",le=\"+Inf\"} 2",
            "seriatim_store_operation_seconds_count{operation=\"settle\"} 0",
            "seriatim_store_errors_total{operation=\"claim\",kind=\"unavailable\"} 1",
            "seriatim_http_requests_total{method=\"GET\",route=\"/health\",status=\"200\"} 2",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }
}
