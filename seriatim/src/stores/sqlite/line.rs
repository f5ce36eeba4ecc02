//! The calls that wait for a thread. Their number and bytes are limited: a caller waits until there is room.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::sentry::Alarm;
use crate::lock::lock;

/// Most KiB of payloads that wait; one push may be larger, and then waits alone.
const WAITING_KIB_MAX: u32 = 64 << 10;
/// What a waiting call counts beside its payloads, in KiB; so at most 16,384 wait.
const CALL_KIB: u32 = 4;

/// The order in which calls are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Before all others: what running turns and leases depend on.
    First,
    /// In order of arrival.
    Usual,
}

/// Room for a call in the line.
pub(super) type Room = OwnedSemaphorePermit;

/// A line of messages, and the room for calls in it.
#[derive(Debug)]
pub(super) struct Line<M> {
    waiting: Mutex<Waiting<M>>,
    news: Condvar,
    /// Each rank has its own: a call of the first rank waits for no push.
    rooms: [Arc<Semaphore>; 2],
}

#[derive(Debug)]
struct Waiting<M> {
    first: VecDeque<M>,
    usual: VecDeque<M>,
    is_closed: bool,
    /// What wakes the thread if it does not sleep here.
    alarm: Option<Arc<Alarm>>,
}

/// The next message.
pub(super) enum Next<M> {
    Message(M),
    TimedOut,
    Closed,
}

impl<M> Line<M> {
    pub(super) fn new() -> Self {
        let (first, usual) = (VecDeque::new(), VecDeque::new());
        let waiting = Waiting { first, usual, is_closed: false, alarm: None };
        let room = || Arc::new(Semaphore::new(WAITING_KIB_MAX as usize));
        Self { waiting: Mutex::new(waiting), news: Condvar::new(), rooms: [room(), room()] }
    }

    /// Waits for room for a call with this many bytes.
    pub(super) async fn room(&self, rank: Rank, bytes: usize) -> Option<Room> {
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX).saturating_add(CALL_KIB);
        let room = self.rooms[rank as usize].clone();
        room.acquire_many_owned(kib.min(WAITING_KIB_MAX)).await.ok()
    }

    /// Adds a message. Gives it back if the line is closed.
    pub(super) fn add(&self, rank: Rank, message: M) -> Result<(), M> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_closed {
            return Err(message);
        }
        match rank {
            Rank::First => waiting.first.push_back(message),
            Rank::Usual => waiting.usual.push_back(message),
        }
        self.wake(waiting);
        Ok(())
    }

    fn wake(&self, mut waiting: MutexGuard<'_, Waiting<M>>) {
        let alarm = waiting.alarm.take();
        drop(waiting);
        match alarm {
            Some(alarm) => alarm.ring(),
            None => self.news.notify_one(),
        }
    }

    /// The next message; waits for one, at most as long as `timeout`.
    pub(super) fn next(&self, timeout: Option<Duration>) -> Next<M> {
        let waiting = lock(&self.waiting);
        let is_idle = |waiting: &mut Waiting<M>| waiting.is_idle();
        let mut waiting = match timeout {
            None => {
                let woken = self.news.wait_while(waiting, is_idle);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(timeout) => {
                let woken = self.news.wait_timeout_while(waiting, timeout, is_idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        waiting.next()
    }

    /// The next message. If there is none, it may come during `sleep`, which must end when the alarm rings.
    pub(super) fn next_after(&self, alarm: &Arc<Alarm>, sleep: impl FnOnce()) -> Next<M> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_idle() {
            waiting.alarm = Some(alarm.clone());
            drop(waiting);
            sleep();
            waiting = lock(&self.waiting);
            waiting.alarm = None;
        }
        waiting.next()
    }

    /// The next message of a rank, if one waits.
    pub(super) fn try_next(&self, rank: Rank) -> Option<M> {
        let mut waiting = lock(&self.waiting);
        match rank {
            Rank::First => waiting.first.pop_front(),
            Rank::Usual => waiting.usual.pop_front(),
        }
    }

    /// The sum of something over all messages that wait.
    #[cfg(test)]
    pub(super) fn sum(&self, of: impl Fn(&M) -> usize) -> usize {
        let waiting = lock(&self.waiting);
        waiting.first.iter().chain(&waiting.usual).map(of).sum()
    }

    /// Refuses further messages; the thread still gets those that wait.
    pub(super) fn close(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_closed = true;
        self.wake(waiting);
    }

    /// Drops the messages that wait, and refuses further ones.
    pub(super) fn clear(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_closed = true;
        let dropped = (std::mem::take(&mut waiting.first), std::mem::take(&mut waiting.usual));
        drop(waiting);
        drop(dropped);
    }
}

impl<M> Waiting<M> {
    fn is_idle(&self) -> bool {
        self.first.is_empty() && self.usual.is_empty() && !self.is_closed
    }

    fn next(&mut self) -> Next<M> {
        match self.first.pop_front().or_else(|| self.usual.pop_front()) {
            Some(message) => Next::Message(message),
            None if self.is_closed => Next::Closed,
            None => Next::TimedOut,
        }
    }
}
