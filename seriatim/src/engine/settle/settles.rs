//! The turns that wait to be settled.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::engine::limits::{BUSY_AGAIN, PUT_ASIDE_FOR};
use crate::engine::settle::ended::Ended;
use crate::lock::lock;

/// The turns that wait to be settled.
#[derive(Default)]
pub(in crate::engine) struct Settles {
    waiting: Mutex<Waiting>,
    some: Notify,
    aside: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    ended: Vec<Ended>,
    /// Turns that the store refuses: retried rarely, so that they do not delay the others.
    aside: Vec<Ended>,
    aside_again: Option<Instant>,
    /// Turns whose lanes another transaction had locked: sent apart from the others, which they may hold up a little. And
    /// those whose calls of the hook the store did not take.
    busy: Vec<Ended>,
    busy_again: Option<Instant>,
    closed: bool,
    /// Whether the turns put aside have been retried since the queue was closed.
    tried: bool,
}

impl Settles {
    pub(in crate::engine) fn add(&self, ended: impl IntoIterator<Item = Ended>) {
        let mut waiting = lock(&self.waiting);
        let was_empty = waiting.ended.is_empty();
        waiting.ended.extend(ended);
        let wake = was_empty && !waiting.ended.is_empty();
        drop(waiting);
        if wake {
            self.some.notify_one();
        }
    }

    /// Keeps a turn that is to be sent again: soon if its lane is locked, otherwise the store refuses it.
    pub(super) fn add_again(&self, mut ended: Ended, is_locked: bool) {
        let mut waiting = lock(&self.waiting);
        if is_locked {
            ended.kept.busy = true;
            waiting.busy.push(ended);
            waiting.busy_again.get_or_insert_with(|| Instant::now() + BUSY_AGAIN);
        } else {
            ended.kept.aside = true;
            waiting.aside.push(ended);
            waiting.aside_again.get_or_insert_with(|| Instant::now() + PUT_ASIDE_FOR);
            self.aside.store(waiting.aside.len(), Ordering::Relaxed);
        }
        drop(waiting);
        self.some.notify_one();
    }

    /// Keeps turns whose calls of the hook cannot be pushed now.
    pub(in crate::engine) fn add_later(&self, ended: impl IntoIterator<Item = Ended>) {
        let mut waiting = lock(&self.waiting);
        waiting.busy.extend(ended);
        waiting.busy_again.get_or_insert_with(|| Instant::now() + BUSY_AGAIN);
        drop(waiting);
        self.some.notify_one();
    }

    pub(super) fn counts_aside(&self) {
        self.aside.store(lock(&self.waiting).aside.len(), Ordering::Relaxed);
    }

    /// The number of turns put aside.
    pub(in crate::engine) fn aside(&self) -> usize {
        self.aside.load(Ordering::Relaxed)
    }

    /// Lets the settlers end once they have settled all turns.
    pub(in crate::engine) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.some.notify_one();
    }

    /// All waiting turns; `None` when the queue is closed and empty.
    pub(super) async fn take(&self) -> Option<Vec<Ended>> {
        loop {
            let again = {
                let mut waiting = lock(&self.waiting);
                if let Some(again) = waiting.take_busy().or_else(|| waiting.take_aside()) {
                    return Some(again);
                }
                if !waiting.ended.is_empty() {
                    return Some(std::mem::take(&mut waiting.ended));
                }
                if waiting.closed && waiting.busy.is_empty() {
                    // The other settlers end, too.
                    self.some.notify_one();
                    return None;
                }
                waiting.aside_again.into_iter().chain(waiting.busy_again).min()
            };
            match again {
                None => self.some.notified().await,
                Some(time) => {
                    let _ = timeout_at(time, self.some.notified()).await;
                }
            }
        }
    }
}

impl Waiting {
    /// The turns that had to wait, when they are due again.
    fn take_busy(&mut self) -> Option<Vec<Ended>> {
        self.busy_again.take_if(|time| *time <= Instant::now())?;
        Some(std::mem::take(&mut self.busy))
    }

    /// The turns put aside, when they are due again; once more at the end, after all others are settled.
    fn take_aside(&mut self) -> Option<Vec<Ended>> {
        let last = self.closed && !self.tried && self.ended.is_empty() && self.busy.is_empty();
        if !last && self.aside_again.is_none_or(|time| time > Instant::now()) {
            return None;
        }
        self.aside_again = None;
        if self.aside.is_empty() {
            return None;
        }
        self.tried |= last;
        Some(std::mem::take(&mut self.aside))
    }
}
