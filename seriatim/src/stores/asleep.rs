//! The queues in which a process waits for work, as the other processes of the store know it: a push wakes two of the processes
//! that wait. All of it is hints.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::contract::{Claimed, QueueDue};
use crate::model::Timestamp;

/// A process that leaves something in a queue calls the next two at most once in this time: they may be unable to take it.
const CALLED_FOR: Duration = Duration::from_secs(1);

/// Whether the caller has to wait after this answer. By this machine's clock, since it is a hint.
pub(super) fn waits(answer: &QueueDue) -> bool {
    answer.due.is_none_or(|due| due > Timestamp::of_this_machine())
}

/// Whether a claim left something in the queue that is due.
pub(super) fn leaves_some(claimed: &Claimed) -> bool {
    let now = claimed.turns.first().map(|turn| turn.claimed_at);
    claimed.next_due.zip(now).is_some_and(|(due, now)| due <= now)
}

/// What the others are to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Where this process waits, and where no more.
    pub enters: BTreeSet<Arc<str>>,
    pub leaves: BTreeSet<Arc<str>>,
    /// Queues of which something is left: for the next two that wait.
    pub next: BTreeSet<Arc<str>>,
    /// Queues for which it was woken and does not claim: for the next two that wait, or for all.
    pub passed_on: BTreeSet<Arc<str>>,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        let all = [&self.enters, &self.leaves, &self.next, &self.passed_on];
        all.iter().all(|queues| queues.is_empty())
    }
}

#[derive(Debug, Default)]
pub(super) struct Asleep {
    queues: HashSet<Arc<str>>,
    /// Where it was one of two that were woken, and has not claimed since.
    named: HashSet<Arc<str>>,
    /// When it last called others to what it left.
    called: HashMap<Arc<str>, Instant>,
    news: News,
}

impl Asleep {
    /// Nothing is due in the queue, so this process waits for it now. Whether that is news.
    pub(super) fn falls_asleep(&mut self, queue: &Arc<str>) -> bool {
        if self.queues.contains(queue) {
            return false;
        }
        self.queues.insert(queue.clone());
        self.news.leaves.remove(queue);
        self.news.enters.insert(queue.clone())
    }

    /// It takes no more of the queue for now.
    fn has_enough(&mut self, queue: &str) {
        if let Some(queue) = self.queues.take(queue) {
            self.news.enters.remove(&queue);
            self.news.leaves.insert(queue);
        }
    }

    /// More is due in the queue than this process takes now. Whether there is news.
    pub(super) fn leaves_some(&mut self, queue: &str, now: Instant) -> bool {
        self.called.retain(|_, at| now - *at < CALLED_FOR);
        if self.called.contains_key(queue) {
            return false;
        }
        self.called.insert(queue.into(), now);
        self.has_enough(queue);
        self.news.next.insert(queue.into())
    }

    /// It was woken for the queue with one other. If nobody here waits for it any more, that is for others.
    pub(super) fn is_named(&mut self, queue: &str, is_awaited: bool) {
        self.named.insert(queue.into());
        // This is something new, of which it may leave some.
        self.called.remove(queue);
        if !is_awaited {
            self.pass_on(queue);
        }
    }

    /// A claim is sent: if it was woken, it has come.
    pub(super) fn claims(&mut self, queue: &str) {
        self.named.remove(queue);
    }

    /// It does not claim, though it was woken. Whether there is news, because it was one of two.
    pub(super) fn pass_on(&mut self, queue: &str) -> bool {
        if !self.named.remove(queue) {
            return false;
        }
        self.has_enough(queue);
        self.news.passed_on.insert(queue.into())
    }

    /// The others know nothing of it any more, or will soon have forgotten it.
    pub(super) fn repeat(&mut self) {
        self.news.enters.extend(self.queues.iter().cloned());
    }

    /// It ends.
    pub(super) fn ends(&mut self) {
        self.news.enters.clear();
        self.news.leaves.extend(self.queues.drain());
        self.news.passed_on.extend(self.named.drain());
    }

    /// Takes what the others do not know yet.
    pub(super) fn news(&mut self, is_awaited: impl Fn(&str) -> bool) -> News {
        let left: Vec<_> = self.queues.iter().filter(|queue| !is_awaited(queue)).cloned().collect();
        left.iter().for_each(|queue| self.has_enough(queue));
        std::mem::take(&mut self.news)
    }

    /// It could not be said.
    pub(super) fn put_back(&mut self, news: News) {
        self.news.next.extend(news.next);
        self.news.passed_on.extend(news.passed_on);
        let still = |queue: &Arc<str>| self.queues.contains(queue);
        let (enters, leaves): (Vec<_>, Vec<_>) =
            news.enters.into_iter().chain(news.leaves).partition(still);
        self.news.enters.extend(enters);
        self.news.leaves.extend(leaves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(queues: &[&str]) -> BTreeSet<Arc<str>> {
        queues.iter().map(|queue| Arc::from(*queue)).collect()
    }

    fn asleep_in(queues: &[&str]) -> Asleep {
        let mut asleep = Asleep::default();
        queues.iter().for_each(|queue| assert!(asleep.falls_asleep(&(*queue).into())));
        assert_eq!(asleep.news(|_| true).enters, names(queues));
        asleep
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_something_has_enough_and_calls_others_once_a_second() {
        let (mut asleep, now) = (asleep_in(&["a", "b"]), Instant::now());
        assert!(!asleep.falls_asleep(&"a".into()), "it is known");
        assert!(asleep.leaves_some("a", now));
        assert!(!asleep.leaves_some("a", now + CALLED_FOR / 2));
        let next = News { next: names(&["a"]), leaves: names(&["a"]), ..News::default() };
        assert_eq!(asleep.news(|_| true), next);
        assert!(asleep.leaves_some("a", now + CALLED_FOR));
        assert!(asleep.falls_asleep(&"a".into()));
        assert!(!asleep.news(|_| true).is_empty());
        asleep.is_named("a", true);
        assert!(asleep.leaves_some("a", now + CALLED_FOR), "of a new push");
    }

    #[test]
    fn a_wake_up_is_passed_on_once_and_at_once_if_nobody_waits_for_the_queue() {
        let mut asleep = asleep_in(&["a", "b"]);
        assert!(!asleep.pass_on("a"), "others were woken too");
        asleep.is_named("a", true);
        assert!(asleep.news(|_| true).is_empty());
        asleep.claims("a");
        assert!(!asleep.pass_on("a"), "it came");
        asleep.is_named("a", true);
        assert!(asleep.pass_on("a"));
        assert!(!asleep.pass_on("a"));
        asleep.is_named("b", false);
        let news = asleep.news(|_| true);
        assert_eq!((news.passed_on, news.leaves), (names(&["a", "b"]), names(&["a", "b"])));
    }

    #[test]
    fn who_waits_for_a_queue_no_more_says_so() {
        let mut asleep = asleep_in(&["a", "b"]);
        assert_eq!(asleep.news(|queue| queue == "a").leaves, names(&["b"]));
        asleep.repeat();
        assert_eq!(asleep.news(|_| true).enters, names(&["a"]));
        asleep.is_named("a", true);
        asleep.ends();
        let news = asleep.news(|_| true);
        assert_eq!((news.leaves, news.passed_on), (names(&["a"]), names(&["a"])));
    }

    #[test]
    fn what_could_not_be_said_is_said_later_as_it_is_then() {
        let mut asleep = asleep_in(&["a", "b"]);
        asleep.is_named("a", false);
        asleep.repeat();
        let news = asleep.news(|_| true);
        assert_eq!((&news.leaves, &news.enters), (&names(&["a"]), &names(&["b"])));
        assert!(asleep.falls_asleep(&"a".into()));
        asleep.is_named("b", false);
        asleep.put_back(news);
        let news = asleep.news(|_| true);
        assert_eq!((news.enters, news.leaves), (names(&["a"]), names(&["b"])));
        assert_eq!(news.passed_on, names(&["a", "b"]));
    }
}
