//! The doctor's findings, repeated at most every 15 s.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seriatim::store::Store;
use seriatim::{Error, ErrorKind, Queue, SharedStore, Timestamp};
use tokio::time::{Instant, timeout};

use crate::app::doctor::{Finding, Seen, judge, look};
use crate::base::lock::lock;

/// How old findings may be. A check reads up to a few thousand rows of each queue that has trouble.
const OLD: Duration = Duration::from_secs(15);
/// A check takes at most 1/SHARE of the time.
const SHARE: u32 = 10;
/// How long a caller waits for new findings where there are older ones.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The last findings.
#[derive(Clone, Default)]
pub(super) struct Checkups(Arc<Kept>);

#[derive(Default)]
struct Kept {
    last: Mutex<Option<Arc<Checkup>>>,
    /// Who checks: one at a time.
    turn: tokio::sync::Mutex<()>,
    /// How often something was repaired.
    repairs: AtomicU64,
}

/// What was seen, and what it means.
pub(super) struct Checkup {
    /// When it began.
    pub(super) at: Instant,
    took: Duration,
    repairs: u64,
    pub(super) seen: Seen,
    pub(super) findings: Vec<Finding>,
}

impl Checkup {
    /// The store's time, which decides who is silent: this machine may have another one.
    pub(super) fn now(&self) -> Timestamp {
        self.seen.now + self.at.elapsed()
    }
}

impl Checkups {
    /// The findings of the last [`OLD`]; earlier ones if the check takes long.
    pub(super) async fn recent(
        &self,
        store: &SharedStore,
        declared: &[Queue],
    ) -> seriatim::Result<Arc<Checkup>> {
        if let Some(fresh) = self.0.fresh() {
            return Ok(fresh);
        }
        // In a task of its own: a caller that does not wait until its end does not end it.
        let (kept, store, declared) = (self.0.clone(), store.clone(), declared.to_vec());
        let mut looking = tokio::spawn(async move { kept.look(&*store, &declared).await });
        let last = lock(&self.0.last).clone();
        let looked = match (timeout(WAIT_MAX, &mut looking).await, last) {
            (Err(_), Some(last)) => return Ok(last),
            (Err(_), None) => looking.await,
            (Ok(looked), _) => looked,
        };
        looked.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
    }

    /// Something was repaired: the next caller looks again.
    pub(super) fn forget(&self) {
        self.0.repairs.fetch_add(1, Ordering::SeqCst);
    }
}

impl Kept {
    fn fresh(&self) -> Option<Arc<Checkup>> {
        let repairs = self.repairs.load(Ordering::SeqCst);
        let is_fresh = |last: &&Arc<Checkup>| {
            last.repairs == repairs && last.at.elapsed() < OLD.max(last.took * SHARE)
        };
        lock(&self.last).as_ref().filter(is_fresh).cloned()
    }

    /// Looks, unless another one just did.
    async fn look(&self, store: &dyn Store, declared: &[Queue]) -> seriatim::Result<Arc<Checkup>> {
        let _turn = self.turn.lock().await;
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let (at, repairs) = (Instant::now(), self.repairs.load(Ordering::SeqCst));
        let seen = look(store).await?;
        let findings = judge(&seen, declared);
        let checkup = Arc::new(Checkup { at, took: at.elapsed(), repairs, seen, findings });
        *lock(&self.last) = Some(checkup.clone());
        Ok(checkup)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use seriatim::store::{Memory, Wrapper};
    use tokio::sync::Semaphore;

    use super::*;

    /// A store that a check waits for, until it may go on.
    struct Slow {
        inner: SharedStore,
        checks: Arc<AtomicUsize>,
        may: Arc<Semaphore>,
    }

    impl Wrapper for Slow {
        fn inner(&self) -> &SharedStore {
            &self.inner
        }

        fn around<T: Send + 'static>(
            &self,
            operation: &'static str,
            call: impl Future<Output = seriatim::Result<T>> + Send + 'static,
        ) -> impl Future<Output = seriatim::Result<T>> + Send {
            let (checks, may) = (self.checks.clone(), self.may.clone());
            async move {
                if operation == "vitals" {
                    checks.fetch_add(1, Ordering::SeqCst);
                    may.acquire().await.unwrap().forget();
                }
                call.await
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_does_not_end_a_check_and_who_cannot_wait_gets_the_one_before() {
        let (checks, may) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
        let inner = Arc::new(Memory::new());
        let store: SharedStore = Arc::new(Slow { inner, checks: checks.clone(), may: may.clone() });
        let checkups = Checkups::default();
        let ask = || checkups.recent(&store, &[]);
        // As a browser does that waits for half a minute.
        assert!(timeout(Duration::from_secs(30), ask()).await.is_err(), "there is none yet");
        may.add_permits(1);
        let first = ask().await.unwrap();
        assert_eq!(checks.load(Ordering::SeqCst), 1, "the check went on");
        assert!(
            Arc::ptr_eq(&first, &ask().await.unwrap()),
            "half a minute of work is good for long"
        );
        checkups.forget();
        assert!(Arc::ptr_eq(&first, &ask().await.unwrap()), "that takes too long");
        may.add_permits(1);
        let second = ask().await.unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        // What began before a repair does not tell of it.
        checkups.forget();
        assert!(Arc::ptr_eq(&second, &ask().await.unwrap()));
        checkups.forget();
        may.add_permits(2);
        let third = ask().await.unwrap();
        assert_eq!((third.repairs, checks.load(Ordering::SeqCst)), (3, 4));
    }
}
