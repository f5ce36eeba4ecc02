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
/// A part that is not as good as new any more is kept so long for those who ask while another one makes it anew, or while
/// too many others are made. Pages ask every 5 s.
const LAST_MAX: Duration = Duration::from_secs(10);
/// Parts that are made at the same time, and how long one waits for its turn.
const AT_ONCE_MAX: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Bytes of all parts, with their names: addresses, which their visitors may write at any length.
const BYTES_MAX: usize = 16 << 20;

/// The parts that are as good as new.
pub(super) struct Memo {
    parts: Mutex<Parts>,
    at_once: Semaphore,
    /// Stands in parts where each visitor's forms have a mark. Nobody can guess it.
    pub(super) stand_in: String,
}

#[derive(Default)]
struct Parts {
    /// As good as new, or being made.
    slots: HashMap<String, Arc<Slot>>,
    /// Those before them, and since when they are not as good as new.
    last: HashMap<String, (Part, Instant)>,
}

/// A part, and how long it took to make.
type Slot = OnceCell<(Part, Duration)>;

/// A part, and when it was made.
#[derive(Clone, Debug, PartialEq)]
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
        Self { parts: Mutex::default(), at_once: Semaphore::new(AT_ONCE_MAX), stand_in }
    }
}

impl Memo {
    /// The part with this name if it is as good as new; the last one if another caller makes it anew.
    pub(super) fn ready(&self, name: &str) -> Option<Part> {
        let mut parts = lock(&self.parts);
        parts.renew();
        match parts.slots.get(name)?.get() {
            Some((part, _)) => Some(part.clone()),
            None => parts.last(name),
        }
    }

    /// The part with this name as it was, for callers whom nobody can make a new one for.
    pub(super) fn last(&self, name: &str) -> Option<Part> {
        lock(&self.parts).last(name)
    }

    /// The part with this name, made for the first caller. If that one fails or leaves, the next makes it.
    pub(super) async fn part<E, F: Future<Output = Result<Part, Missing<E>>>>(
        &self,
        name: &str,
        make: impl FnOnce() -> F,
    ) -> Result<Part, Missing<E>> {
        let slot = lock(&self.parts).slot(name);
        let made = slot.get_or_try_init(async || {
            let place = timeout(WAIT_MAX, self.at_once.acquire()).await;
            let Ok(Ok(_place)) = place else { return Err(Missing::Busy) };
            let begun = Instant::now();
            let part = make().await?;
            Ok((part, begun.elapsed()))
        });
        let made = made.await.map(|(part, _)| part.clone());
        lock(&self.parts).bound(name, &slot);
        match made {
            Err(Missing::Busy) => self.last(name).ok_or(Missing::Busy),
            made => made,
        }
    }

    /// Forgets a part, also if it is being made: no part is older than the page that it renews.
    pub(super) fn forget(&self, name: &str) {
        let mut parts = lock(&self.parts);
        parts.slots.remove(name);
        parts.last.remove(name);
    }

    /// Forgets all of them: something was changed.
    pub(super) fn forget_all(&self) {
        *lock(&self.parts) = Parts::default();
    }
}

impl Parts {
    /// What is there of this name, or where it will be.
    fn slot(&mut self, name: &str) -> Arc<Slot> {
        self.renew();
        self.slots.entry(name.to_owned()).or_default().clone()
    }

    fn last(&self, name: &str) -> Option<Part> {
        self.last.get(name).map(|(part, _)| part.clone())
    }

    /// Puts aside what is not as good as new any more.
    fn renew(&mut self) {
        let crowd = (Duration::from_secs(self.slots.len() as u64) / A_SECOND).min(CROWD_MAX);
        let fresh_for = |took: Duration| (took * SHARE).max(crowd).clamp(FRESH_MIN, FRESH_MAX);
        let is_old = |slot: &Arc<Slot>| match slot.get() {
            Some((part, took)) => part.at.elapsed() >= fresh_for(*took),
            // Unless a caller makes it now.
            None => Arc::strong_count(slot) == 1,
        };
        self.last.retain(|_, (_, since)| since.elapsed() < LAST_MAX);
        for (name, slot) in self.slots.extract_if(|_, slot| is_old(slot)) {
            if let Some((part, _)) = slot.get() {
                self.last.insert(name, (part.clone(), Instant::now()));
            }
        }
    }

    /// Forgets what would be too much: old parts first, then the newest.
    fn bound(&mut self, name: &str, slot: &Arc<Slot>) {
        let size = |(name, part): (&String, &Part)| name.len() + part.text.len();
        let made = self.slots.iter().filter_map(|(name, slot)| Some((name, &slot.get()?.0)));
        let new: usize = made.map(size).sum();
        let old: usize = self.last.iter().map(|(name, (part, _))| size((name, part))).sum();
        if new + old > BYTES_MAX {
            self.last.clear();
        }
        let is_ours = self.slots.get(name).is_some_and(|known| Arc::ptr_eq(known, slot));
        if is_ours && new > BYTES_MAX {
            self.slots.remove(name);
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
                        Ok::<_, Missing<()>>(of("text"))
                    };
                    memo.part("/queues reader", make).await.unwrap().text
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
            Ok::<_, Missing<()>>(of("text"))
        };
        memo.part(name, make).await.unwrap();
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
                    Ok::<_, Missing<()>>(of("slow"))
                };
                memo.part(&format!("page {i}"), make).await.is_ok()
            });
        }
        tokio::task::yield_now().await;
        let fifth = memo.part("page 5", async || Ok::<_, Missing<()>>(of("never"))).await;
        assert!(matches!(fifth, Err(Missing::Busy)));
        assert_eq!(memo.ready("page 5"), None);
        gate.notify_waiters();
        assert!(askers.join_all().await.into_iter().all(|is_made| is_made));
        assert!(memo.part("page 5", async || Ok::<_, Missing<()>>(of("now"))).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_while_another_makes_it_anew_gets_the_last_one_at_once_and_not_for_long() {
        let (memo, gate) = (Memo::default(), Notify::new());
        assert_eq!(memo.ready("/queues"), None);
        assert!(is_made(&memo, "/queues", Duration::ZERO).await);
        let first = memo.ready("/queues").unwrap();
        advance(FRESH_MIN).await;
        // The first to ask makes it anew.
        assert_eq!(memo.ready("/queues"), None);
        let make = || async {
            gate.notified().await;
            Ok::<_, Missing<()>>(of("new"))
        };
        let others = async {
            assert_eq!(memo.ready("/queues").as_ref(), Some(&first));
            advance(LAST_MAX).await;
            assert_eq!(memo.ready("/queues"), None);
            gate.notify_one();
        };
        let (made, ()) = tokio::join!(memo.part("/queues", make), others);
        assert_eq!(memo.ready("/queues"), made.ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_have_a_new_one_gets_the_last_one() {
        let memo = Memo::default();
        assert!(is_made(&memo, "/queues", Duration::ZERO).await);
        let first = memo.ready("/queues").unwrap();
        let full = async || Err::<Part, _>(Missing::<()>::Busy);
        advance(FRESH_MIN).await;
        assert_eq!(memo.part("/queues", full).await.unwrap(), first);
        assert_eq!(memo.last("/queues").unwrap(), first);
        memo.forget_all();
        assert!(matches!(memo.part("/queues", full).await, Err(Missing::Busy)));
    }

    #[tokio::test]
    async fn who_fails_leaves_it_to_the_next_and_memory_is_bounded() {
        let memo = Memo::default();
        let failed = memo.part("a", async || Err::<Part, _>(Missing::Failed("down"))).await;
        assert!(matches!(failed, Err(Missing::Failed("down"))));
        assert!(memo.part("a", async || Ok::<_, Missing<()>>(of("up"))).await.is_ok());
        for i in 0..40 {
            let large = || async { Ok::<_, Missing<()>>(of(vec![b'x'; 512 << 10])) };
            memo.part(&format!("page {i} {}", "y".repeat(512 << 10)), large).await.unwrap();
        }
        let parts = lock(&memo.parts);
        let made = parts.slots.iter().filter_map(|(name, slot)| Some((name, &slot.get()?.0)));
        let last = parts.last.iter().map(|(name, (part, _))| (name, part));
        let kept: usize = made.chain(last).map(|(name, part)| name.len() + part.text.len()).sum();
        assert!(kept <= BYTES_MAX, "{kept}");
    }
}
