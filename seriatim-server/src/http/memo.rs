//! Parts of pages, made once for all who ask for the same, at most once a second.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderValue;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};

use crate::base::lock::lock;
use crate::base::random::random;

/// How long a part is as good as new: longer if it took long to make, and if many different ones are looked at.
const FRESH_MIN: Duration = Duration::from_secs(1);
const FRESH_MAX: Duration = Duration::from_secs(60);
/// To make a part again and again takes at most 1/SHARE of the time.
const SHARE: u32 = 20;
/// Different parts that are made in a second: of more, each lasts longer, up to [`CROWD_MAX`]. So the store is asked little
/// however many pages are open.
const A_SECOND: u32 = 5;
const CROWD_MAX: Duration = Duration::from_secs(10);
/// Parts that are made at the same time, and how long one waits for its turn.
const AT_ONCE_MAX: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Bytes of all parts, with their names: addresses, which their visitors may write at any length.
const BYTES_MAX: usize = 16 << 20;

/// The parts that are as good as new.
pub(super) struct Memo {
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    at_once: Semaphore,
    /// Stands in parts where each visitor's forms have a mark. Nobody can guess it.
    pub(super) stand_in: String,
}

/// A part, and how long it took to make.
type Slot = OnceCell<(Part, Duration)>;

/// A part, and when it was made.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) text: Bytes,
    pub(super) mark: HeaderValue,
    pub(super) as_of: HeaderValue,
    pub(super) at: Instant,
}

/// Why there is no part.
#[derive(Debug)]
pub(super) enum Missing<E> {
    /// Too many others are made.
    Busy,
    Failed(E),
}

impl Default for Memo {
    fn default() -> Self {
        let bytes = random().unwrap_or_else(|_| fastrand::u128(..).to_ne_bytes());
        let stand_in = format!("{:032x}", u128::from_ne_bytes(bytes));
        Self { slots: Mutex::default(), at_once: Semaphore::new(AT_ONCE_MAX), stand_in }
    }
}

impl Memo {
    /// The part with this name, made for the first caller. If that one fails or leaves, the next makes it.
    pub(super) async fn part<E, F: Future<Output = Result<Part, E>>>(
        &self,
        name: String,
        make: impl FnOnce() -> F,
    ) -> Result<Part, Missing<E>> {
        let slot = self.slot(&name);
        let made = slot.get_or_try_init(async || {
            let place = timeout(WAIT_MAX, self.at_once.acquire()).await;
            let Ok(Ok(_place)) = place else { return Err(Missing::Busy) };
            let begun = Instant::now();
            let part = make().await.map_err(Missing::Failed)?;
            Ok((part, begun.elapsed()))
        });
        let part = made.await.map(|(part, _)| part.clone());
        self.bound(&name, &slot);
        part
    }

    /// Forgets a part, also if it is being made: no part is older than the page that it renews.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.slots).remove(name);
    }

    /// Forgets all of them: something was changed.
    pub(super) fn forget_all(&self) {
        lock(&self.slots).clear();
    }

    /// What is there of this name, or where it will be.
    fn slot(&self, name: &str) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        let crowd = (Duration::from_secs(slots.len() as u64) / A_SECOND).min(CROWD_MAX);
        let fresh_for = |took: Duration| (took * SHARE).max(crowd).clamp(FRESH_MIN, FRESH_MAX);
        let is_fresh = |slot: &Arc<Slot>| match slot.get() {
            Some((part, took)) => part.at.elapsed() < fresh_for(*took),
            // Somebody makes it.
            None => Arc::strong_count(slot) > 1,
        };
        slots.retain(|_, slot| is_fresh(slot));
        slots.entry(name.to_owned()).or_default().clone()
    }

    /// Forgets a part that would be too much, or that could not be made.
    fn bound(&self, name: &str, slot: &Arc<Slot>) {
        let mut slots = lock(&self.slots);
        let size = |(name, slot): (&String, &Arc<Slot>)| {
            slot.get().map_or(0, |(part, _)| name.len() + part.text.len())
        };
        let bytes: usize = slots.iter().map(size).sum();
        let is_ours = slots.get(name).is_some_and(|known| Arc::ptr_eq(known, slot));
        if is_ours && bytes > BYTES_MAX {
            slots.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;
    use tokio::task::JoinSet;
    use tokio::time::{advance, sleep};

    use super::*;

    fn of(text: impl Into<Bytes>) -> Part {
        let (mark, as_of) = (HeaderValue::from_static("m"), HeaderValue::from_static("now"));
        Part { text: text.into(), mark, as_of, at: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_equal_askers_cost_one_rendering_a_second() {
        let (memo, made) = (Arc::new(Memo::default()), Arc::new(AtomicUsize::new(0)));
        for second in 1..=3 {
            let mut askers = JoinSet::new();
            for _ in 0..50 {
                let (memo, made) = (memo.clone(), made.clone());
                askers.spawn(async move {
                    let make = || async move {
                        tokio::task::yield_now().await;
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, ()>(of("text"))
                    };
                    memo.part("/queues reader".to_owned(), make).await.unwrap().text
                });
            }
            assert!(askers.join_all().await.iter().all(|text| text == "text"));
            assert_eq!(made.load(Ordering::Relaxed), second);
            advance(FRESH_MIN).await;
        }
    }

    /// Asks for a part that takes so long to make; `true` if it was made now.
    async fn is_made(memo: &Memo, name: &str, took: Duration) -> bool {
        let made = AtomicUsize::new(0);
        let make = || async {
            sleep(took).await;
            made.fetch_add(1, Ordering::Relaxed);
            Ok::<_, ()>(of("text"))
        };
        memo.part(name.to_owned(), make).await.unwrap();
        made.load(Ordering::Relaxed) > 0
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_took_two_seconds_lasts_forty_unless_something_is_changed() {
        let (memo, took) = (Memo::default(), Duration::from_secs(2));
        assert!(is_made(&memo, "/jobs", took).await);
        advance(Duration::from_secs(39)).await;
        assert!(!is_made(&memo, "/jobs", took).await);
        advance(Duration::from_secs(1)).await;
        assert!(is_made(&memo, "/jobs", took).await);
        // What was begun before a change is not kept either.
        advance(Duration::from_secs(40)).await;
        let (begun, ()) = tokio::join!(is_made(&memo, "/jobs", took), async { memo.forget_all() });
        assert!(begun && is_made(&memo, "/jobs", took).await);
        memo.forget("/jobs");
        assert!(is_made(&memo, "/jobs", took).await);
        let longest = Duration::from_secs(10);
        assert!(is_made(&memo, "/", longest).await);
        advance(FRESH_MAX).await;
        assert!(is_made(&memo, "/", longest).await);
    }

    #[tokio::test(start_paused = true)]
    async fn of_twenty_parts_that_are_asked_for_each_second_five_are_made() {
        let (memo, mut made) = (Memo::default(), 0);
        for _ in 0..60 {
            for i in 0..20 {
                made += usize::from(is_made(&memo, &format!("/page/{i}"), Duration::ZERO).await);
            }
            advance(Duration::from_secs(1)).await;
        }
        assert!((200..=320).contains(&made), "{made}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fifth_page_waits_and_is_then_refused() {
        let (memo, gate) = (Arc::new(Memo::default()), Arc::new(Notify::new()));
        let mut askers = JoinSet::new();
        for i in 0..AT_ONCE_MAX {
            let (memo, gate) = (memo.clone(), gate.clone());
            askers.spawn(async move {
                let make = || async move {
                    gate.notified().await;
                    Ok::<_, ()>(of("slow"))
                };
                memo.part(format!("page {i}"), make).await.is_ok()
            });
        }
        tokio::task::yield_now().await;
        let fifth = memo.part("page 5".to_owned(), async || Ok::<_, ()>(of("never"))).await;
        assert!(matches!(fifth, Err(Missing::Busy)));
        gate.notify_waiters();
        assert!(askers.join_all().await.into_iter().all(|is_made| is_made));
        assert!(memo.part("page 5".to_owned(), async || Ok::<_, ()>(of("now"))).await.is_ok());
    }

    #[tokio::test]
    async fn who_fails_leaves_it_to_the_next_and_memory_is_bounded() {
        let memo = Memo::default();
        let failed = memo.part("a".to_owned(), async || Err::<Part, _>("down")).await;
        assert!(matches!(failed, Err(Missing::Failed("down"))));
        assert!(memo.part("a".to_owned(), async || Ok::<_, ()>(of("up"))).await.is_ok());
        for i in 0..40 {
            let large = || async { Ok::<_, ()>(of(vec![b'x'; 512 << 10])) };
            memo.part(format!("page {i} {}", "y".repeat(512 << 10)), large).await.unwrap();
        }
        let slots = lock(&memo.slots);
        let made = slots.iter().filter_map(|(name, slot)| Some((name, &slot.get()?.0)));
        let kept: usize = made.map(|(name, part)| name.len() + part.text.len()).sum();
        assert!(kept <= BYTES_MAX, "{kept}");
    }
}
