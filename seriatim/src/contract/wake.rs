//! Wake-ups: hints that lanes of some queues may have become claimable.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::lock::lock;
use crate::model::Job;

/// Most queues that a wake-up names; one for more of them is for all.
pub const WAKE_QUEUES_MAX: usize = 100;

/// The queues that a wake-up is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Any queue may have claimable lanes.
    All,
    /// These queues may have claimable lanes; at most [`WAKE_QUEUES_MAX`].
    Queues(BTreeSet<Arc<str>>),
}

impl Wake {
    /// A wake-up for these queues.
    pub fn of<'a>(queues: impl IntoIterator<Item = &'a str>) -> Self {
        let mut wake = Self::Queues(BTreeSet::new());
        let mut last = None;
        for queue in queues {
            // The jobs of a batch are mostly of one queue.
            if last.replace(queue) != Some(queue) {
                wake.add(queue);
            }
        }
        wake
    }

    /// A wake-up for the queues of these jobs.
    pub fn of_jobs(jobs: &[Job]) -> Self {
        Self::of(jobs.iter().map(|job| &*job.queue))
    }

    /// Whether it is for this queue.
    pub fn names(&self, queue: &str) -> bool {
        match self {
            Self::All => true,
            Self::Queues(queues) => queues.contains(queue),
        }
    }

    /// Whether it is for no queue.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Queues(queues) if queues.is_empty())
    }

    /// Adds the queues of another wake-up.
    pub fn merge(&mut self, other: &Self) {
        match other {
            Self::All => *self = Self::All,
            Self::Queues(queues) => queues.iter().for_each(|queue| self.add(queue)),
        }
    }

    /// Adds a queue.
    pub fn add(&mut self, queue: &str) {
        let Self::Queues(queues) = self else { return };
        if queues.contains(queue) {
            return;
        }
        if queues.len() == WAKE_QUEUES_MAX {
            *self = Self::All;
        } else {
            queues.insert(queue.into());
        }
    }
}

/// The sender of a store's wake-ups: rings when a lane may have become claimable.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Rope>);

#[derive(Debug, Default)]
struct Rope {
    /// In the order in which they were added: their tasks wake in this order, so that a seed repeats a run.
    ears: Mutex<Vec<Arc<Ear>>>,
    /// Notified when a listener is added.
    listened: Notify,
}

/// What the bell and one listener share.
#[derive(Debug, Default)]
struct Ear {
    heard: Mutex<Heard>,
    rung: Notify,
}

#[derive(Debug, Default)]
struct Heard {
    wake: Option<Wake>,
    /// The queues that matter to the listener; unset: all.
    only: Option<HashSet<Arc<str>>>,
}

impl Heard {
    /// True if the wake-up is for this listener.
    fn add(&mut self, wake: &Wake) -> bool {
        let own = match (wake, &self.only) {
            (Wake::Queues(queues), Some(only)) => &Wake::Queues(
                queues.iter().filter(|queue| only.contains(*queue)).cloned().collect(),
            ),
            _ => wake,
        };
        if own.is_empty() {
            return false;
        }
        match &mut self.wake {
            Some(wake) => wake.merge(own),
            None => self.wake = Some(own.clone()),
        }
        true
    }
}

impl Bell {
    /// Wakes the listeners to these queues. Several rings before a listener wakes count as one.
    pub fn ring(&self, wake: &Wake) {
        for ear in self.ears().iter() {
            if lock(&ear.heard).add(wake) {
                ear.rung.notify_one();
            }
        }
    }

    /// Whether there are listeners.
    pub fn has_listeners(&self) -> bool {
        !self.ears().is_empty()
    }

    /// Whether a listener waits for this queue, and not merely for any: who claims from it.
    pub fn is_awaited(&self, queue: &str) -> bool {
        self.ears()
            .iter()
            .any(|ear| lock(&ear.heard).only.as_ref().is_some_and(|queues| queues.contains(queue)))
    }

    /// Returns when there is a listener.
    pub async fn listened(&self) {
        while !self.has_listeners() {
            self.0.listened.notified().await;
        }
    }

    /// A new listener, for the rings from now on.
    pub fn listen(&self) -> Wakeups {
        let ear = Arc::new(Ear::default());
        self.ears().push(ear.clone());
        self.0.listened.notify_one();
        Wakeups { rope: self.0.clone(), ear, certain: false }
    }

    fn ears(&self) -> MutexGuard<'_, Vec<Arc<Ear>>> {
        lock(&self.0.ears)
    }
}

/// A listener to a store's wake-ups.
#[derive(Debug)]
pub struct Wakeups {
    rope: Arc<Rope>,
    ear: Arc<Ear>,
    certain: bool,
}

impl Wakeups {
    /// The store loses no wake-up: within a second it rings for every change, also of other processes, that may make a
    /// lane claimable sooner than it answered ([`Claimed::next_due`](crate::store::Claimed::next_due),
    /// [`Views::due`](crate::store::Views::due)), for rows in the inbox, and for deleted queues. So an idle engine need not
    /// poll it.
    #[must_use]
    pub fn certain(mut self) -> Self {
        self.certain = true;
        self
    }

    /// Whether the store loses none.
    pub fn are_certain(&self) -> bool {
        self.certain
    }

    /// Listens to wake-ups for these queues alone.
    #[must_use]
    pub fn only(self, queues: impl IntoIterator<Item = Arc<str>>) -> Self {
        lock(&self.ear.heard).only = Some(queues.into_iter().collect());
        self
    }

    /// Waits for a wake-up since the last call, at most for `at_most`.
    pub async fn wait(&mut self, at_most: Duration) -> Option<Wake> {
        tokio::time::timeout(at_most, self.rang()).await.ok()
    }

    /// Ignores the wake-ups so far.
    pub fn forget(&mut self) {
        lock(&self.ear.heard).wake = None;
    }

    async fn rang(&mut self) -> Wake {
        loop {
            if let Some(wake) = lock(&self.ear.heard).wake.take() {
                return wake;
            }
            self.ear.rung.notified().await;
        }
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        lock(&self.rope.ears).retain(|ear| !Arc::ptr_eq(ear, &self.ear));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wake: Option<Wake>) -> Vec<String> {
        match wake {
            None => Vec::new(),
            Some(Wake::All) => vec!["*".to_owned()],
            Some(Wake::Queues(queues)) => queues.iter().map(ToString::to_string).collect(),
        }
    }

    async fn heard(wakeups: &mut Wakeups) -> Vec<String> {
        names(wakeups.wait(Duration::ZERO).await)
    }

    #[tokio::test]
    async fn listeners_hear_of_their_queues_alone() {
        let bell = Bell::default();
        let (mut all, mut mail) = (bell.listen(), bell.listen().only(["mail".into()]));
        assert!(bell.is_awaited("mail") && !bell.is_awaited("orders"), "one only watches");
        bell.ring(&Wake::of(["orders", "orders", "mail", "orders"]));
        assert_eq!(heard(&mut all).await, ["mail", "orders"]);
        assert_eq!(heard(&mut mail).await, ["mail"]);
        bell.ring(&Wake::of(["orders"]));
        bell.ring(&Wake::of(["stock"]));
        assert_eq!(heard(&mut all).await, ["orders", "stock"], "two rings count as one");
        assert_eq!(heard(&mut mail).await, [""; 0]);
        bell.ring(&Wake::All);
        assert_eq!(
            (heard(&mut all).await, heard(&mut mail).await),
            (vec!["*".into()], vec!["*".into()])
        );
        drop((all, mail));
        assert!(!bell.has_listeners());
    }

    #[test]
    fn a_wake_up_for_too_many_queues_is_for_all() {
        let queues: Vec<String> = (0..=WAKE_QUEUES_MAX).map(|i| format!("q{i}")).collect();
        let most = Wake::of(queues[1..].iter().map(String::as_str));
        assert!(most.names("q1") && !most.names("q0"));
        assert_eq!(Wake::of(queues.iter().map(String::as_str)), Wake::All);
    }

    #[tokio::test]
    async fn the_first_listener_is_announced() {
        let bell = Bell::default();
        assert!(tokio::time::timeout(Duration::ZERO, bell.listened()).await.is_err());
        let _wakeups = bell.listen();
        bell.listened().await;
    }
}
