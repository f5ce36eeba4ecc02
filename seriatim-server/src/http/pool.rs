//! A shared budget: an amount for all, and a share of it for each party, so that none takes all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::caller::Party;

use crate::base::lock::lock;

/// Above this many parties, those that hold nothing are forgotten when another one comes.
const PARTIES_KEPT: usize = 256;

/// A budget with a share for each party. A party that holds nothing costs nothing.
pub(super) struct Pool {
    all: Arc<Semaphore>,
    share: u32,
    parties: Mutex<HashMap<Party, Weak<Semaphore>>>,
}

/// What a party holds of a pool, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(all: u32, share: u32) -> Self {
        let all = Arc::new(Semaphore::new(all as usize));
        Self { all, share, parties: Mutex::default() }
    }

    /// The most that one party may hold.
    pub(super) fn share(&self) -> u32 {
        self.share
    }

    /// Takes this amount immediately, or nothing.
    pub(super) fn try_take(&self, party: &Party, amount: u32) -> Option<Held> {
        let own = self.share_of(party).try_acquire_many_owned(amount).ok()?;
        let all = self.all.clone().try_acquire_many_owned(amount).ok()?;
        Some(Held { own, all })
    }

    /// Takes this amount, and waits for it at most this long. A party that waits for its own share does not delay
    /// others.
    pub(super) async fn take(&self, party: &Party, amount: u32, wait: Duration) -> Option<Held> {
        let taking = async {
            let own = self.share_of(party).acquire_many_owned(amount).await.ok()?;
            let all = self.all.clone().acquire_many_owned(amount).await.ok()?;
            Some(Held { own, all })
        };
        timeout(wait, taking).await.ok().flatten()
    }

    fn share_of(&self, party: &Party) -> Arc<Semaphore> {
        let mut parties = lock(&self.parties);
        if let Some(share) = parties.get(party).and_then(Weak::upgrade) {
            return share;
        }
        if parties.len() >= PARTIES_KEPT {
            parties.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.share as usize));
        parties.insert(party.clone(), Arc::downgrade(&share));
        share
    }
}

impl Held {
    pub(super) fn amount(&self) -> usize {
        self.own.num_permits()
    }

    /// Gives back all but this amount.
    pub(super) fn keep(&mut self, amount: usize) {
        for permit in [&mut self.own, &mut self.all] {
            drop(permit.split(permit.num_permits().saturating_sub(amount)));
        }
    }

    /// Holds that too.
    pub(super) fn add(&mut self, more: Self) {
        self.own.merge(more.own);
        self.all.merge(more.all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(name: &str) -> Party {
        Party::Token(name.into())
    }

    #[test]
    fn a_party_takes_its_share_and_leaves_the_rest_to_others() {
        let pool = Pool::new(10, 6);
        let mut first = pool.try_take(&party("a"), 4).unwrap();
        assert!(pool.try_take(&party("a"), 3).is_none());
        first.add(pool.try_take(&party("a"), 2).unwrap());
        let second = pool.try_take(&party("b"), 4).unwrap();
        assert!(pool.try_take(&party("b"), 1).is_none(), "all of it is taken");
        first.keep(4);
        assert!(pool.try_take(&party("b"), 2).is_some());
        drop(first);
        assert!(pool.try_take(&party("b"), 2).is_some());
        drop(second);
        assert!(pool.try_take(&party("a"), 6).is_some());
    }

    #[test]
    fn parties_that_hold_nothing_are_forgotten() {
        let pool = Pool::new(10, 5);
        for i in 0..PARTIES_KEPT * 3 {
            drop(pool.try_take(&party(&i.to_string()), 1).unwrap());
        }
        assert!(pool.parties.lock().unwrap().len() <= PARTIES_KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_its_own_share_keeps_nobody_waiting() {
        let pool = Pool::new(10, 5);
        let held = pool.try_take(&party("a"), 5).unwrap();
        let wait = Duration::from_secs(1);
        let waiting = async { pool.take(&party("a"), 5, wait).await };
        let other = async { pool.take(&party("b"), 5, wait).await.is_some() };
        let (waited, other) = tokio::join!(waiting, other);
        assert!(waited.is_none() && other);
        drop(held);
        assert!(pool.take(&party("a"), 5, wait).await.is_some());
    }
}
