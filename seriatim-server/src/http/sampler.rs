//! Records the history of figures, on one node of the store.

use std::time::Duration;

use seriatim::Timestamp;
use seriatim::store::{Lead, NodeId};
use tokio::time::{Instant, sleep};

use super::state::{App, Shared};
use crate::app::deeds;
use crate::app::failures;
use crate::app::figures::Figures;
use crate::app::history::{Recorder, TaskRecorder};
use crate::journal;

/// How often the figures are read.
const EVERY: Duration = Duration::from_secs(10);
/// A reading takes at most 1/SHARE of the time, however many queues there are.
const SHARE: u32 = 20;
/// How often deeds, failures and events of jobs that are too old or too many are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// How long a node leads after the store said that it does.
const LEADS_FOR: Duration = Duration::from_secs(60);

/// Records until the node drains.
pub(super) async fn run(app: Shared) {
    let mut sampler = Sampler::new(&app);
    let mut tasks = TaskRecorder::default();
    loop {
        let begun = Instant::now();
        if let Err(error) = sampler.sample().await {
            tracing::debug!(%error, "cannot record the history of metrics");
        }
        if let Err(error) = sample_tasks(&app, &mut tasks).await {
            tracing::debug!(%error, "cannot record how long turns took");
        }
        app.locked.forget_old();
        let pause = EVERY.max(begun.elapsed() * SHARE);
        tokio::select! {
            () = app.draining() => return,
            () = sleep(pause) => {}
        }
    }
}

/// What this process itself saw, also if another one leads.
async fn sample_tasks(app: &App, recorder: &mut TaskRecorder) -> seriatim::Result<()> {
    let seen = app.meter.recent_turns();
    if seen.is_empty() && recorder.is_empty() {
        return Ok(());
    }
    recorder.add(&*app.store, seen, app.store.now().await?).await
}

/// Records the figures of all queues, if no other process does.
struct Sampler<'a> {
    app: &'a App,
    node: NodeId,
    /// When the store said that it leads, by the store's clock: this machine's stands still while it is suspended.
    led_at: Option<Timestamp>,
    recorder: Recorder,
    swept: Option<Instant>,
}

impl<'a> Sampler<'a> {
    fn new(app: &'a App) -> Self {
        let node = NodeId::from(format!("samples-{:032x}", fastrand::u128(..)).as_str());
        Self { app, node, led_at: None, recorder: Recorder::default(), swept: None }
    }

    async fn sample(&mut self) -> seriatim::Result<()> {
        let store = &*self.app.store;
        let now = store.now().await?;
        if !self.leads(now).await? {
            // What was gathered is of a time that another node records.
            self.recorder = Recorder::default();
            return Ok(());
        }
        self.recorder.add(store, &Figures::all(store).await?, now).await?;
        if self.swept.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
            self.swept = Some(Instant::now());
            deeds::trim(store, now).await?;
            failures::trim(store, now).await?;
            journal::trim(store, &self.app.journal.limits(), now).await?;
        }
        Ok(())
    }

    /// Asks the store only when half of the time is over: asking is a write.
    async fn leads(&mut self, now: Timestamp) -> seriatim::Result<bool> {
        // A clock that was put back ends it too.
        if self.led_at.is_some_and(|at| (at..at + LEADS_FOR / 2).contains(&now)) {
            return Ok(true);
        }
        let (role, node) = ("samples".into(), self.node.clone());
        let lead = Lead { now: None, role, node, ttl: LEADS_FOR };
        let leads = self.app.store.lead(lead).await?;
        self.led_at = leads.then_some(now);
        Ok(leads)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use seriatim::store::{Declare, Memory, NoteQuery, Push, Wrapper};
    use seriatim::{Job, Queue, SharedStore};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::app::history::{Span, document};

    /// A store that counts who asks to lead.
    struct Counted {
        inner: SharedStore,
        asked: Arc<AtomicUsize>,
    }

    impl Wrapper for Counted {
        fn inner(&self) -> &SharedStore {
            &self.inner
        }

        async fn lead(&self, request: Lead) -> seriatim::Result<bool> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.inner.lead(request).await
        }
    }

    fn node(store: &SharedStore) -> (JoinHandle<()>, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let counted = Counted { inner: store.clone(), asked: asked.clone() };
        (tokio::spawn(run(App::open(Arc::new(counted)))), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn who_leads_asks_twice_a_minute_and_another_follows_when_it_is_gone() {
        let store: SharedStore = Arc::new(Memory::in_tokio_time());
        let queues = vec![Queue::parallel("orders")];
        store.declare(Declare { now: None, queues }).await.unwrap();
        let minutes = |count: u64| sleep(Duration::from_secs(60 * count));
        let (first, asked_by_first) = node(&store);
        sleep(Duration::from_millis(1)).await;
        let (second, asked_by_second) = node(&store);
        minutes(10).await;
        assert!(asked_by_first.load(Ordering::SeqCst) <= 21, "{asked_by_first:?}");
        assert!(asked_by_second.load(Ordering::SeqCst) >= 55, "{asked_by_second:?}");
        first.abort();
        minutes(2).await;
        let before = asked_by_second.load(Ordering::SeqCst);
        minutes(10).await;
        assert!(asked_by_second.load(Ordering::SeqCst) - before <= 21, "{asked_by_second:?}");
        let history = store.read_notes(NoteQuery::of("history/")).await.unwrap();
        assert!(!history.is_empty());
        second.abort();
    }

    /// This machine's clock stands still, as it does while the machine is suspended.
    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_suspended_does_not_write_over_what_another_one_recorded_meanwhile() {
        // Ten minutes before an hour is over.
        let seconds = Arc::new(AtomicU64::new(50 * 60));
        let clock = seconds.clone();
        let now =
            move || Memory::TOKIO_TIME_START + Duration::from_secs(clock.load(Ordering::SeqCst));
        let store: SharedStore = Arc::new(Memory::with_clock(now));
        let jobs = vec![Job::new("orders", &1).unwrap()];
        store.push(Push { now: None, jobs }).await.unwrap();
        let apps = [(); 2].map(|()| App::open(store.clone()));
        let (mut suspended, mut other) = (Sampler::new(&apps[0]), Sampler::new(&apps[1]));
        let minutes = async |sampler: &mut Sampler<'_>, count: u64| {
            for _ in 0..count * 3 {
                sampler.sample().await.unwrap();
                seconds.fetch_add(20, Ordering::SeqCst);
            }
        };
        minutes(&mut suspended, 3).await;
        minutes(&mut other, 12).await;
        let recorded = async || document(&*store, None, Span::Hour).await.unwrap().points.len();
        assert_eq!(recorded().await, 2 + 11);
        suspended.sample().await.unwrap();
        assert_eq!(recorded().await, 2 + 11);
    }
}
