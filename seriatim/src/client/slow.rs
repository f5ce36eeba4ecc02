//! Pushes that take long, as behind a key that a user's transaction has locked. Others go beside them, but for jobs that
//! would have to wait for the same.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

use crate::lock::lock;
use crate::model::Job;

/// A push that takes longer is slow.
pub(super) const SLOW_AFTER: Duration = Duration::from_millis(50);
/// Most slow pushes that others go beside: the store has other calls too.
const SLOW_MAX: usize = 3;

/// What a transaction may have locked: a key of a queue, or a batch, which has no queue.
pub(super) type Lock = (String, String);

/// The slow pushes of a client.
pub(super) struct Slow {
    places: Semaphore,
    /// Notified when a place gets free.
    freed: Notify,
    /// What their jobs may wait for.
    locks: Mutex<HashSet<Lock>>,
}

/// One of them.
pub(super) struct SlowPush<'a> {
    slow: &'a Slow,
    locks: Vec<Lock>,
    place: Option<SemaphorePermit<'a>>,
}

impl Default for Slow {
    fn default() -> Self {
        let places = Semaphore::new(SLOW_MAX);
        Self { places, freed: Notify::new(), locks: Mutex::default() }
    }
}

impl Slow {
    /// Whether the job would wait for the same as one of them.
    pub(super) fn holds_up(&self, job: &Job) -> bool {
        let locks = lock(&self.locks);
        !locks.is_empty() && locks_of(job).any(|lock| locks.contains(&lock))
    }

    /// Ready when a push that begins now is slow, and others may go beside it. `locks`: those of its jobs. Until then
    /// `is_polled` is called every [`SLOW_AFTER`].
    pub(super) async fn begin(
        &self,
        is_polled: impl Fn(),
        locks: impl FnOnce() -> Vec<Lock>,
    ) -> SlowPush<'_> {
        // What is around the push may use up the task's budget.
        unconstrained(tokio::time::sleep(SLOW_AFTER)).await;
        let place = loop {
            is_polled();
            let freed = self.freed.notified();
            if let Ok(place) = self.places.try_acquire() {
                break place;
            }
            // It does not wait in line: a place must not go to a push whose future nobody polls any more.
            let _ = unconstrained(timeout(SLOW_AFTER, freed)).await;
        };
        let jobs = locks();
        lock(&self.locks).extend(jobs.iter().cloned());
        SlowPush { slow: self, locks: jobs, place: Some(place) }
    }
}

impl Drop for SlowPush<'_> {
    fn drop(&mut self) {
        let mut locks = lock(&self.slow.locks);
        for lock in &self.locks {
            locks.remove(lock);
        }
        drop(locks);
        self.place = None;
        self.slow.freed.notify_waiters();
    }
}

pub(super) fn locks_of(job: &Job) -> impl Iterator<Item = Lock> {
    let key = job.key.as_ref().map(|key| (job.queue.clone(), key.clone()));
    let batch = job.options.batch.as_ref().map(|batch| (String::new(), batch.clone()));
    key.into_iter().chain(batch)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::watch;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::store::Pushed;
    use crate::stores::Memory;
    use crate::{Client, Queue, Result};

    /// A client whose pushes of locked keys wait until they are opened, and how many are under way.
    fn client(opened: watch::Receiver<bool>) -> (Client, Arc<AtomicUsize>) {
        let under_way = Arc::<AtomicUsize>::default();
        let count = under_way.clone();
        let client = Client::new(Arc::new(Memory::new())).queues([Queue::fifo("q")]);
        let client = client.around(move |jobs: Vec<Job>, next| {
            let (mut opened, count) = (opened.clone(), count.clone());
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                let mut keys = jobs.iter().filter_map(|job| job.key.as_deref());
                if keys.any(|key| key.starts_with("locked")) {
                    opened.wait_for(|opened| *opened).await.unwrap();
                }
                let answer = next.run(jobs).await;
                count.fetch_sub(1, Ordering::SeqCst);
                answer
            }
        });
        (client, under_way)
    }

    fn push(client: &Client, key: &str, number: usize) -> JoinHandle<Result<Pushed>> {
        let (client, job) = (client.clone(), Job::new("q", &number).unwrap().key(key));
        tokio::spawn(async move { client.push(job).await })
    }

    #[tokio::test(start_paused = true)]
    async fn a_push_behind_a_locked_key_holds_up_those_of_its_key_alone() {
        let (open, opened) = watch::channel(false);
        let (client, _) = client(opened);
        let mut behind = Vec::new();
        for number in 0..20 {
            behind.push(push(&client, "locked", number));
            tokio::task::yield_now().await;
            let free = push(&client, "free", number);
            timeout(SLOW_AFTER * 2, free).await.expect("it is not held up").unwrap().unwrap();
        }
        assert!(behind.iter().all(|push| !push.is_finished()));
        open.send(true).unwrap();
        let mut ids = Vec::new();
        for push in behind {
            ids.push(push.await.unwrap().unwrap().job_id);
        }
        assert!(ids.is_sorted(), "in the order of their callers");
    }

    #[tokio::test(start_paused = true)]
    async fn only_some_slow_pushes_go_side_by_side() {
        let (open, opened) = watch::channel(false);
        let (client, under_way) = client(opened);
        let mut pushes = Vec::new();
        for number in 0..SLOW_MAX + 3 {
            let mut one = push(&client, &format!("locked {number}"), number);
            assert!(timeout(SLOW_AFTER * 2, &mut one).await.is_err());
            pushes.push(one);
        }
        assert_eq!(under_way.load(Ordering::SeqCst), SLOW_MAX + 1);
        open.send(true).unwrap();
        pushes.push(push(&client, "free", 0));
        for push in pushes {
            push.await.unwrap().unwrap();
        }
        assert_eq!(under_way.load(Ordering::SeqCst), 0);
    }

    /// As between two items of a stream.
    #[tokio::test(start_paused = true)]
    async fn a_push_that_waits_for_a_place_and_is_polled_no_more_holds_up_no_other() {
        let (open, opened) = watch::channel(false);
        let (client, _) = client(opened);
        let mut slow = Vec::new();
        for number in 0..SLOW_MAX {
            slow.push(push(&client, &format!("locked {number}"), number));
            tokio::time::sleep(SLOW_AFTER * 2).await;
        }
        let job = Job::new("q", &SLOW_MAX).unwrap().key("locked too");
        let mut left = Box::pin(client.push(job));
        assert!(timeout(SLOW_AFTER * 3 / 2, &mut left).await.is_err());
        let free = push(&client, "free", 0);
        timeout(SLOW_AFTER * 10, free).await.expect("it is not held up").unwrap().unwrap();
        open.send(true).unwrap();
        left.await.unwrap();
        for push in slow {
            push.await.unwrap().unwrap();
        }
    }
}
