//! Records the history of figures, on one node of the store.

use std::time::Duration;

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
            tracing::debug!(%error, "cannot record the history of figures");
        }
        if let Err(error) = sample_tasks(&app, &mut tasks).await {
            tracing::debug!(%error, "cannot record how long turns took");
        }
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
    /// Until when it leads without asking.
    leads_until: Option<Instant>,
    recorder: Recorder,
    swept: Option<Instant>,
}

impl<'a> Sampler<'a> {
    fn new(app: &'a App) -> Self {
        let node = NodeId::from(format!("samples-{:032x}", fastrand::u128(..)).as_str());
        Self { app, node, leads_until: None, recorder: Recorder::default(), swept: None }
    }

    async fn sample(&mut self) -> seriatim::Result<()> {
        let store = &*self.app.store;
        if !self.leads().await? {
            // What was gathered is of a time that another node records.
            self.recorder = Recorder::default();
            return Ok(());
        }
        let now = store.now().await?;
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
    async fn leads(&mut self) -> seriatim::Result<bool> {
        let now = Instant::now();
        if self.leads_until.is_some_and(|until| now < until) {
            return Ok(true);
        }
        let (role, node) = ("samples".into(), self.node.clone());
        let lead = Lead { now: None, role, node, ttl: LEADS_FOR };
        let leads = self.app.store.lead(lead).await?;
        self.leads_until = leads.then_some(now + LEADS_FOR / 2);
        Ok(leads)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use seriatim::store::{Declare, Memory, NoteQuery, Wrapper};
    use seriatim::{Queue, SharedStore};
    use tokio::task::JoinHandle;

    use super::*;

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
}
