//! A call as one transaction, repeated if the server rolls it back because of concurrent calls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{Fail, held_open};
use super::gates::{Lock, Patience};
use super::pool::Pool;
use crate::model::Error;

/// Most attempts at a call that the server rolls back because of concurrent calls.
pub(super) const TRIES_MAX: usize = 8;
/// Pause of a call that has given way: who waits behind it gets through.
const GIVEN_WAY: Duration = Duration::from_millis(500);
/// Most that the next attempt may take: the server looks for lock waits that are over once a second, so a wait of 1 s
/// may last 2 s.
const ATTEMPT: Duration = Duration::from_secs(2);

/// How a call is attempted, and the number of failed attempts.
pub(super) struct Attempt {
    pub(super) lock: Lock,
    pub(super) reserves: bool,
    /// Whether all jobs of each lane are read.
    pub(super) whole: bool,
    /// Whether it begins with the statements sent ahead.
    pub(super) fast: bool,
    pub(super) tries: usize,
    begun: Instant,
    /// Whether the last attempt has given way to a transaction that keeps lanes locked.
    gave_way: bool,
}

impl Attempt {
    pub(super) fn new(lock: Lock) -> Self {
        let (reserves, whole, fast, tries) = (false, false, true, 0);
        Self { lock, reserves, whole, fast, tries, begun: Instant::now(), gave_way: false }
    }

    /// Handles a failure. `None`: try again.
    pub(super) fn after(&mut self, fail: Fail, pool: &Pool) -> Option<Error> {
        if matches!(fail, Fail::Alone) && !self.lock.is_alone() {
            self.lock = Lock::ALONE;
            return None;
        }
        if let (Fail::Open(queues), Lock::Alone(closed)) = (&fail, &mut self.lock) {
            closed.extend(queues);
            return None;
        }
        if matches!(fail, Fail::Partial) && !self.whole {
            (self.whole, self.fast) = (true, false);
            return None;
        }
        if matches!(fail, Fail::NotFast) && self.fast {
            self.fast = false;
            return None;
        }
        if fail.is_lock_wait() && self.lock.waits_briefly() {
            if self.lock.is_alone() {
                self.gave_way = true;
                let next_ends = self.begun.elapsed() + GIVEN_WAY + ATTEMPT;
                return (next_ends > pool.options.call_timeout).then(held_open);
            }
            (self.lock, self.fast) = (Lock::Settle(Patience::Skip), false);
            return None;
        }
        if fail.is_taken() && !self.reserves {
            self.reserves = true;
            return None;
        }
        self.tries += 1;
        if !fail.is_retriable() || self.tries >= TRIES_MAX {
            return Some(fail.into());
        }
        tracing::debug!("a call that met others was rolled back; it is repeated");
        pool.repeated.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Lets others through, if the last attempt has given way.
    pub(super) async fn pause(&mut self) {
        if std::mem::take(&mut self.gave_way) {
            tokio::time::sleep(GIVEN_WAY).await;
        }
    }
}

/// Runs an operation in a transaction, repeated if the server rolls it back because of concurrent calls.
macro_rules! transact {
    ($store:expr, $lock:expr, $now:expr, $work:ident => $body:expr) => {
        transact!($store, $lock, $now, String::new(), $work => $body)
    };
    // With statements sent ahead.
    ($store:expr, $lock:expr, $now:expr, $ahead:expr, $work:ident => $body:expr) => {{
        let mut attempt = $crate::stores::mysql::transact::Attempt::new($lock);
        // An abandoned call drops its connection, and the server rolls back.
        let call = async {
            loop {
                let tried = async {
                    let ahead = if attempt.fast { $ahead } else { String::new() };
                    let (pool, definitions) = (&$store.pool, &$store.definitions);
                    let mut begun =
                        $crate::stores::mysql::work::Work::begin(pool, definitions, attempt.lock.clone(), $now, &ahead).await?;
                    (begun.reserves, begun.whole) = (attempt.reserves, attempt.whole);
                    let $work = &mut begun;
                    let done = match $body.await {
                        Ok(_) if $work.check_read().is_err() => Err($crate::stores::mysql::error::Fail::Partial),
                        Ok(answer) => $work.commit().await.map(|()| answer),
                        Err(fail) => Err(fail),
                    };
                    match done {
                        Ok(answer) => {
                            begun.session.give_back();
                            Ok(answer)
                        }
                        Err(fail) => Err::<_, $crate::stores::mysql::error::Fail>(begun.undo_after(fail).await),
                    }
                };
                match tried.await {
                    Ok(answer) => break Ok(answer),
                    Err(fail) => {
                        if let Some(error) = attempt.after(fail, &$store.pool) {
                            break Err(error);
                        }
                        attempt.pause().await;
                    }
                }
            }
        };
        let limit = $store.pool.options.call_timeout;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            Err($crate::stores::mysql::pool::timed_out(limit))
        })
    }};
}
