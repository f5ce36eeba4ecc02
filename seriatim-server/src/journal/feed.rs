//! Live events for listeners: turns, and every second the figures of all queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use seriatim::{
    Timestamp,
    store::{LaneId, Token, Turn},
};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::app::figures::{Figures, busiest, statistics};
use crate::base::lock::lock;
use crate::base::text::{cut, one_line};
use crate::base::time::absolute;
use crate::protocol::document::Stats;

/// A listener further behind is dropped.
const BEHIND_MAX: usize = 1_024;
/// Messages kept for listeners that return with `Last-Event-ID`, and their bytes.
const RECENT_MAX: usize = 1_024;
const RECENT_BYTES_MAX: usize = 1 << 20;
/// How long turns are kept after the last listener has left.
const RETURN_MAX: Duration = Duration::from_secs(600);
/// Queues sent with figures; the others are only in the sums.
const STATS_QUEUES_MAX: usize = 1_000;
/// Turns sent per second; the figures contain the number of the others.
const TURNS_PER_SECOND_MAX: u32 = 200;
/// Columns sent of an error.
const ERROR_COLUMNS_MAX: usize = 300;

/// What happened to a turn.
pub(crate) struct Told {
    pub(crate) id: u64,
    pub(crate) queue: Arc<str>,
    /// The server-sent event.
    pub(crate) text: Bytes,
}

/// Receives events: each turn, and only the newest figures.
pub(crate) struct Hearing {
    /// Earlier messages after the last one received.
    missed: VecDeque<Arc<Told>>,
    turns: broadcast::Receiver<Arc<Told>>,
    stats: watch::Receiver<Bytes>,
}

/// An event.
pub(crate) enum News {
    Turn(Arc<Told>),
    Stats(Bytes),
}

impl Hearing {
    /// The next event; none if too far behind.
    pub(crate) async fn next(&mut self) -> Option<News> {
        if let Some(told) = self.missed.pop_front() {
            return Some(News::Turn(told));
        }
        tokio::select! {
            biased;
            told = self.turns.recv() => told.ok().map(News::Turn),
            Ok(()) = self.stats.changed() => Some(News::Stats(self.stats.borrow_and_update().clone())),
        }
    }
}

/// Sends events to all listeners.
pub(crate) struct Feed {
    sender: broadcast::Sender<Arc<Told>>,
    stats: watch::Sender<Bytes>,
    line: Mutex<Line>,
    /// Whether a task samples the figures every second.
    sampled: AtomicBool,
}

struct Line {
    next: u64,
    recent: VecDeque<Arc<Told>>,
    recent_bytes: usize,
    second: Instant,
    turns: u32,
    left_out: u64,
    /// When the last listener was missed.
    left_at: Option<Instant>,
}

/// Which turn.
pub(crate) struct Place {
    pub(crate) queue: Arc<str>,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) lane: LaneId,
    pub(crate) token: Token,
    pub(crate) jobs: usize,
}

impl From<&Turn> for Place {
    fn from(turn: &Turn) -> Self {
        let (queue, key) = (turn.queue.clone(), turn.key.clone());
        Self { queue, key, lane: turn.lane, token: turn.token, jobs: turn.jobs.len() }
    }
}

#[derive(Serialize)]
struct TurnTold<'a> {
    at: String,
    event: &'static str,
    queue: &'a str,
    key: Option<&'a str>,
    lane: LaneId,
    token: Token,
    jobs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct StatsTold {
    #[serde(flatten)]
    stats: Stats,
    turns_left_out: u64,
    queues_left_out: usize,
}

impl Default for Feed {
    fn default() -> Self {
        // Another process, or this one started again, gives other numbers.
        let next = Timestamp::of_this_machine().as_micros().unsigned_abs();
        let recent = VecDeque::new();
        let second = Instant::now();
        let line =
            Line { next, recent, recent_bytes: 0, second, turns: 0, left_out: 0, left_at: None };
        let (sender, stats) = (broadcast::Sender::new(BEHIND_MAX), watch::Sender::default());
        Self { sender, stats, line: Mutex::new(line), sampled: AtomicBool::new(false) }
    }
}

impl Feed {
    pub(crate) fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Whether there are listeners, or were lately: they may come back for what they missed.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaits(&lock(&self.line))
    }

    fn awaits(&self, line: &Line) -> bool {
        let lately = line.left_at.is_some_and(|at| at.elapsed() < RETURN_MAX);
        self.is_heard() || lately || self.sampled.load(Ordering::Acquire)
    }

    /// Listens from now on, after the kept messages behind `last`.
    pub(crate) fn listen(&self, last: Option<u64>) -> Hearing {
        // Under the lock, so that no message is lost or sent twice.
        let mut line = lock(&self.line);
        if !self.awaits(&line) {
            // Behind these, turns were not kept: who knows the last of them would take them for all.
            line.forget();
        }
        let behind = |told: &&Arc<Told>| last.is_some_and(|last| told.id > last);
        let is_ours = last.is_some_and(|last| line.recent.iter().any(|told| told.id == last));
        let missed = line.recent.iter().filter(|_| is_ours).filter(behind).cloned().collect();
        let mut stats = self.stats.subscribe();
        stats.mark_unchanged();
        Hearing { missed, turns: self.sender.subscribe(), stats }
    }

    /// A turn began or ended.
    pub(crate) fn turn(&self, turn: Place, event: &'static str, error: Option<&str>) {
        if !self.is_awaited() || !self.admit() {
            return;
        }
        let told = TurnTold {
            at: absolute(Timestamp::of_this_machine()),
            event,
            queue: &turn.queue,
            key: turn.key.as_deref(),
            lane: turn.lane,
            token: turn.token,
            jobs: turn.jobs,
            error: error.map(|error| cut(&one_line(error), ERROR_COLUMNS_MAX)),
        };
        // Texts and numbers only: writing them cannot fail.
        let data = serde_json::to_string(&told).unwrap_or_default();
        self.tell(turn.queue, &data);
    }

    fn tell(&self, queue: Arc<str>, data: &str) {
        let mut line = lock(&self.line);
        let text = format!("id: {}\nevent: turn\ndata: {data}\n\n", line.next).into();
        let told = Arc::new(Told { id: line.next, queue, text });
        line.keep(&told);
        // There may be no listener by now.
        let _ = self.sender.send(told);
    }

    fn admit(&self) -> bool {
        let mut line = lock(&self.line);
        if line.second.elapsed() >= Duration::from_secs(1) {
            (line.second, line.turns) = (Instant::now(), 0);
        }
        line.turns += 1;
        let is_admitted = line.turns <= TURNS_PER_SECOND_MAX;
        line.left_out += u64::from(!is_admitted);
        is_admitted
    }

    /// The figures of the queues. They have no id: a returning listener gets new ones.
    pub(crate) fn stats(&self, figures: Vec<Figures>) {
        let left_out = std::mem::take(&mut lock(&self.line).left_out);
        let queues_left_out = figures.len().saturating_sub(STATS_QUEUES_MAX);
        let (listed, others) = busiest(figures, STATS_QUEUES_MAX);
        let stats = statistics(&listed, others.as_ref());
        let told = StatsTold { stats, turns_left_out: left_out, queues_left_out };
        let document = serde_json::to_string(&told).unwrap_or_default();
        self.stats.send_replace(format!("event: stats\ndata: {document}\n\n").into());
    }

    /// Enough turns to drop a listener that received none of them.
    #[cfg(test)]
    pub(crate) fn flood(&self) {
        (0..=BEHIND_MAX).for_each(|_| self.tell("q".into(), "{}"));
    }

    /// Whether the caller becomes the sampler, until [`Feed::is_over`].
    pub(crate) fn begins(&self) -> bool {
        !self.sampled.swap(true, Ordering::AcqRel)
    }

    /// Whether there are no listeners left; then another sampler may begin.
    pub(crate) fn is_over(&self) -> bool {
        if self.is_heard() {
            return false;
        }
        lock(&self.line).left_at = Some(Instant::now());
        self.sampled.store(false, Ordering::Release);
        // A listener that came in between relied on the present sampler.
        !self.is_heard() || !self.begins()
    }
}

impl Line {
    fn keep(&mut self, told: &Arc<Told>) {
        self.next += 1;
        self.recent_bytes += told.text.len();
        self.recent.push_back(told.clone());
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_bytes -= oldest.text.len();
        }
    }

    fn forget(&mut self) {
        (self.recent, self.recent_bytes) = (VecDeque::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use seriatim::store::QueueStats;

    use super::*;

    fn turn(feed: &Feed) {
        let (queue, lane) = ("q".into(), LaneId { queue: 1, shard: 0, number: 1 });
        let place = Place { queue, key: None, lane, token: Token(1), jobs: 1 };
        feed.turn(place, "started", None);
    }

    async fn next(hearing: &mut Hearing) -> Option<(Option<u64>, String)> {
        let (id, text) = match hearing.next().await? {
            News::Turn(told) => (Some(told.id), told.text.clone()),
            News::Stats(text) => (None, text),
        };
        Some((id, String::from_utf8_lossy(&text).into_owned()))
    }

    #[tokio::test]
    async fn a_flood_of_turns_is_counted_and_the_numbers_say_so() {
        let feed = Feed::default();
        let mut hearing = feed.listen(None);
        (0..TURNS_PER_SECOND_MAX + 7).for_each(|_| turn(&feed));
        feed.stats(Vec::new());
        let mut last = String::new();
        while !last.starts_with("event: stats") {
            last = next(&mut hearing).await.unwrap_or_default().1;
        }
        assert!(last.contains(r#""turns_left_out":7"#), "{last}");
    }

    #[tokio::test]
    async fn who_comes_back_is_told_what_it_missed_and_a_stranger_nothing() {
        let feed = Feed::default();
        let mut first = feed.listen(None);
        (0..3).for_each(|_| turn(&feed));
        let id = next(&mut first).await.and_then(|(id, _)| id);
        assert_eq!(feed.listen(id).missed.len(), 2);
        assert_eq!(feed.listen(Some(7)).missed.len(), 0);
        assert_eq!(feed.listen(None).missed.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_only_listener_is_told_what_it_missed_while_nobody_listened() {
        let feed = Feed::default();
        turn(&feed);
        assert!(!feed.is_awaited() && lock(&feed.line).recent.is_empty(), "nobody listened yet");
        let mut only = feed.listen(None);
        assert!(feed.begins());
        turn(&feed);
        let id = next(&mut only).await.and_then(|(id, _)| id);
        drop(only);
        turn(&feed);
        assert!(feed.is_over(), "the sampler misses it");
        (0..2).for_each(|_| turn(&feed));
        tokio::time::advance(RETURN_MAX / 2).await;
        assert_eq!(feed.listen(id).missed.len(), 3);
        // This listener was gone at once, and no sampler began for it.
        let last = lock(&feed.line).recent.back().map(|told| told.id);
        tokio::time::advance(RETURN_MAX / 2).await;
        turn(&feed);
        assert!(feed.listen(last).missed.is_empty() && lock(&feed.line).recent.is_empty());
    }

    #[tokio::test]
    async fn of_ten_thousand_queues_the_busiest_are_told_and_nothing_is_kept_of_them() {
        let feed = Feed::default();
        let mut hearing = feed.listen(None);
        let queue = |i: u64| {
            let queue = format!("{}-{i}", "q".repeat(100)).into();
            let stats = QueueStats { queue, jobs: i, ..QueueStats::default() };
            Figures { stats, prefetched: 0 }
        };
        for _ in 0..3 {
            feed.stats((0..10_000).map(queue).collect());
        }
        let (_, told) = next(&mut hearing).await.unwrap_or_default();
        assert!(told.contains(r#""queues_left_out":9000"#) && told.contains("q-9999\""));
        assert!(told.contains(r#""jobs":49995000"#), "the sum is that of all");
        assert!(told.len() < 1 << 19, "{}", told.len());
        assert!(lock(&feed.line).recent.is_empty());
        (0..TURNS_PER_SECOND_MAX).for_each(|_| turn(&feed));
        assert!(
            lock(&feed.line).recent_bytes <= RECENT_BYTES_MAX && lock(&feed.line).recent_bytes > 0
        );
    }
}
