//! What listeners are told while it happens: turns, and every second the numbers of all queues.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use seriatim::{LaneId, Timestamp, Token, Turn};
use tokio::sync::broadcast;

use crate::output::text::{cut, one_line};
use crate::output::time::absolute;

/// Messages that a listener may be behind before it is dropped.
const BEHIND_MAX: usize = 1_024;
/// Messages that are kept for those who come back with `Last-Event-ID`.
const RECENT_MAX: usize = 1_024;
/// Turns that are told in a second; others are counted, and the numbers say how many.
const TURNS_PER_SECOND_MAX: u32 = 200;
/// Columns of an error that are told.
const ERROR_COLUMNS_MAX: usize = 300;

/// A message.
pub(crate) struct Told {
    pub(crate) id: u64,
    pub(crate) event: &'static str,
    pub(crate) queue: Option<Arc<str>>,
    pub(crate) data: String,
}

/// Tells all listeners.
pub(crate) struct Feed {
    sender: broadcast::Sender<Arc<Told>>,
    line: Mutex<Line>,
    /// Whether somebody takes the numbers of the queues every second.
    sampled: AtomicBool,
}

struct Line {
    next: u64,
    recent: VecDeque<Arc<Told>>,
    second: Instant,
    turns: u32,
    left_out: u64,
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

impl Default for Feed {
    fn default() -> Self {
        // Another process, or this one started again, gives other numbers.
        let next = Timestamp::of_this_machine().as_micros().unsigned_abs();
        let recent = VecDeque::new();
        let line = Line { next, recent, second: Instant::now(), turns: 0, left_out: 0 };
        let sender = broadcast::Sender::new(BEHIND_MAX);
        Self { sender, line: Mutex::new(line), sampled: AtomicBool::new(false) }
    }
}

impl Feed {
    pub(crate) fn is_heard(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens from now on; before that come the messages behind `last`, as far as they are kept.
    pub(crate) fn listen(
        &self,
        last: Option<u64>,
    ) -> (Vec<Arc<Told>>, broadcast::Receiver<Arc<Told>>) {
        // Under the lock, so that no message is missed or told twice.
        let line = self.line();
        let behind = |told: &&Arc<Told>| last.is_some_and(|last| told.id > last);
        let is_ours = last.is_some_and(|last| line.recent.iter().any(|told| told.id == last));
        let missed = line.recent.iter().filter(|_| is_ours).filter(behind).cloned().collect();
        (missed, self.sender.subscribe())
    }

    /// A turn began or ended.
    pub(crate) fn turn(&self, turn: Place, event: &'static str, error: Option<&str>) {
        if !self.is_heard() || !self.admit() {
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
        // Texts and numbers only: nothing of it can fail to be written.
        let data = serde_json::to_string(&told).unwrap_or_default();
        self.tell("turn", Some(turn.queue), data);
    }

    fn admit(&self) -> bool {
        let mut line = self.line();
        if line.second.elapsed() >= Duration::from_secs(1) {
            (line.second, line.turns) = (Instant::now(), 0);
        }
        line.turns += 1;
        let is_admitted = line.turns <= TURNS_PER_SECOND_MAX;
        line.left_out += u64::from(!is_admitted);
        is_admitted
    }

    /// The numbers of all queues.
    pub(crate) fn stats(&self, mut stats: Value) {
        let left_out = std::mem::take(&mut self.line().left_out);
        stats["turns_left_out"] = left_out.into();
        self.tell("stats", None, stats.to_string());
    }

    fn tell(&self, event: &'static str, queue: Option<Arc<str>>, data: String) {
        let mut line = self.line();
        let told = Arc::new(Told { id: line.next, event, queue, data });
        line.next += 1;
        if line.recent.len() == RECENT_MAX {
            line.recent.pop_front();
        }
        line.recent.push_back(told.clone());
        // Nobody may listen by now.
        let _ = self.sender.send(told);
    }

    /// Whether the caller is the one that is to take samples, until [`Feed::is_over`].
    pub(crate) fn begins(&self) -> bool {
        !self.sampled.swap(true, Ordering::AcqRel)
    }

    /// Whether nobody listens any more; then somebody else may begin.
    pub(crate) fn is_over(&self) -> bool {
        if self.is_heard() {
            return false;
        }
        self.sampled.store(false, Ordering::Release);
        // Somebody who came in between has seen that samples are taken.
        !self.is_heard() || !self.begins()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(feed: &Feed) {
        let (queue, lane) = ("q".into(), LaneId { queue: 1, shard: 0, number: 1 });
        let place = Place { queue, key: None, lane, token: Token(1), jobs: 1 };
        feed.turn(place, "started", None);
    }

    #[test]
    fn a_flood_of_turns_is_counted_and_the_numbers_say_so() {
        let feed = Feed::default();
        let (_, mut told) = feed.listen(None);
        (0..TURNS_PER_SECOND_MAX + 7).for_each(|_| turn(&feed));
        feed.stats(serde_json::json!({}));
        let mut all = std::iter::from_fn(|| told.try_recv().ok());
        let last = all.find(|told| told.event == "stats").map(|told| told.data.clone());
        assert_eq!(last.as_deref(), Some(r#"{"turns_left_out":7}"#));
    }

    #[test]
    fn who_comes_back_is_told_what_it_missed_and_a_stranger_nothing() {
        let feed = Feed::default();
        let (_, mut first) = feed.listen(None);
        (0..3).for_each(|_| turn(&feed));
        let id = first.try_recv().map(|told| told.id).unwrap_or_default();
        assert_eq!(feed.listen(Some(id)).0.len(), 2);
        assert_eq!(feed.listen(Some(7)).0.len(), 0);
        assert_eq!(feed.listen(None).0.len(), 0);
    }
}
