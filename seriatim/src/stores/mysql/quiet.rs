//! Queues that had nothing to claim when they were looked at: a node asks for all its queues again and again, and the
//! answer stays the same until a wake-up names the queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::contract::{QueueDue, Wake};
use crate::lock::lock;
use crate::model::Timestamp;

/// A look is repeated after this time: a wake-up may have been lost.
pub(super) const BELIEVED: Duration = Duration::from_secs(10);
/// Nothing is believed if other processes' wake-ups were last read longer ago.
const DEAF_AFTER: Duration = Duration::from_secs(2);

/// The quiet queues.
#[derive(Default)]
pub(super) struct Quiet(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// When other processes' wake-ups were last read; `None`: they are not.
    heard: Option<Instant>,
    /// When each of these queues is due, and until when that is believed.
    queues: HashMap<Arc<str>, (Option<Timestamp>, Instant)>,
    /// Wake-ups so far, and how many they were at the last one for each queue, and for all.
    rings: u64,
    rung: HashMap<Arc<str>, u64>,
    rung_all: u64,
}

/// When a look began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Instant,
    rings: u64,
}

impl Quiet {
    /// Notes that all wake-ups of other processes until now have been given to [`Self::rung`].
    pub(super) fn heard(&self, at: Instant) {
        self.memory().heard = Some(at);
    }

    /// Forgets all: wake-ups of other processes may have been missed.
    pub(super) fn deafen(&self) {
        self.memory().heard = None;
        self.rung(&Wake::All);
    }

    /// Forgets the queues of a wake-up, before anybody hears of it.
    pub(super) fn rung(&self, wake: &Wake) {
        let memory = &mut *self.memory();
        memory.rings += 1;
        match wake {
            Wake::All => {
                memory.queues.clear();
                memory.rung.clear();
                memory.rung_all = memory.rings;
            }
            Wake::Queues(queues) => {
                for queue in queues {
                    memory.queues.remove(queue);
                    memory.rung.insert(queue.clone(), memory.rings);
                }
            }
        }
    }

    /// Answers for those of these queues that are quiet, and the others.
    pub(super) fn split(&self, queues: Vec<Arc<str>>) -> (Vec<QueueDue>, Vec<Arc<str>>) {
        let (memory, now) = (self.memory(), Instant::now());
        if memory.heard.is_none_or(|heard| now - heard > DEAF_AFTER) {
            return (Vec::new(), queues);
        }
        let (mut quiet, mut others) = (Vec::new(), Vec::new());
        for queue in queues {
            match memory.queues.get(&queue) {
                Some((due, until)) if now < *until => quiet.push(QueueDue::new(queue, *due)),
                _ => others.push(queue),
            }
        }
        (quiet, others)
    }

    pub(super) fn begin(&self) -> Begun {
        Begun { at: Instant::now(), rings: self.memory().rings }
    }

    /// Remembers those queues of a look that are quiet, without those with a wake-up since it began. `now`: the store's time.
    pub(super) fn keep(&self, begun: Begun, now: Timestamp, found: &[QueueDue]) {
        let memory = &mut *self.memory();
        if memory.heard.is_none() || memory.rung_all > begun.rings {
            return;
        }
        for QueueDue { queue, due, .. } in found {
            let length = due.map_or(BELIEVED, |due| due.since(now).min(BELIEVED));
            if length > Duration::ZERO
                && memory.rung.get(queue).is_none_or(|rung| *rung <= begun.rings)
            {
                memory.queues.insert(queue.clone(), (*due, begun.at + length));
            }
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn found(queue: &str, due: Option<Timestamp>) -> QueueDue {
        QueueDue::new(queue.into(), due)
    }

    fn known(quiet: &Quiet) -> Vec<String> {
        let asked = ["a", "b", "c"].map(Arc::from).to_vec();
        quiet.split(asked).0.into_iter().map(|one| one.queue.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_quiet_until_it_is_due_or_a_wake_up_names_it() {
        let quiet = Quiet::default();
        quiet.heard(Instant::now());
        let looks = [
            found("a", None),
            found("b", Some(NOW + Duration::from_secs(1))),
            found("c", Some(NOW)),
        ];
        quiet.keep(quiet.begin(), NOW, &looks);
        assert_eq!(known(&quiet), ["a", "b"], "c is due");
        quiet.rung(&Wake::of(["b", "c"]));
        assert_eq!(known(&quiet), ["a"]);
        quiet.keep(quiet.begin(), NOW, &looks);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(known(&quiet), ["a"], "b is due");
        quiet.rung(&Wake::All);
        assert_eq!(known(&quiet), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_a_wake_up_overtook_is_not_believed() {
        let quiet = Quiet::default();
        quiet.heard(Instant::now());
        let begun = quiet.begin();
        quiet.rung(&Wake::of(["a"]));
        quiet.keep(begun, NOW, &[found("a", None), found("b", None)]);
        assert_eq!(known(&quiet), ["b"]);
        let begun = quiet.begin();
        quiet.rung(&Wake::All);
        quiet.keep(begun, NOW, &[found("a", None), found("b", None)]);
        assert_eq!(known(&quiet), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_believed_for_long_or_while_wake_ups_are_not_read() {
        let quiet = Quiet::default();
        quiet.keep(quiet.begin(), NOW, &[found("a", None)]);
        assert_eq!(known(&quiet), [""; 0], "nobody reads wake-ups");
        quiet.heard(Instant::now());
        quiet.keep(quiet.begin(), NOW, &[found("a", None)]);
        tokio::time::advance(DEAF_AFTER + Duration::from_millis(1)).await;
        assert_eq!(known(&quiet), [""; 0]);
        quiet.heard(Instant::now());
        assert_eq!(known(&quiet), ["a"]);
        tokio::time::advance(BELIEVED).await;
        quiet.heard(Instant::now());
        assert_eq!(known(&quiet), [""; 0]);
        quiet.keep(quiet.begin(), NOW, &[found("a", None)]);
        quiet.deafen();
        quiet.heard(Instant::now());
        assert_eq!(known(&quiet), [""; 0]);
    }
}
