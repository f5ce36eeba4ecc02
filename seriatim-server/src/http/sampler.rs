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
/// How long a node leads without another sample.
const LEADS_FOR: Duration = Duration::from_secs(60);

/// Records until the node drains.
pub(super) async fn run(app: Shared) {
    let node = NodeId::from(format!("samples-{:032x}", fastrand::u128(..)).as_str());
    let (mut recorder, mut swept) = (Recorder::default(), None);
    let mut tasks = TaskRecorder::default();
    loop {
        let begun = Instant::now();
        if let Err(error) = sample(&app, &node, &mut recorder, &mut swept).await {
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

async fn sample(
    app: &App,
    node: &NodeId,
    recorder: &mut Recorder,
    swept: &mut Option<Instant>,
) -> seriatim::Result<()> {
    let store = &*app.store;
    let lead = Lead { now: None, role: "samples".into(), node: node.clone(), ttl: LEADS_FOR };
    if !store.lead(lead).await? {
        // What was gathered is of a time that another node records.
        *recorder = Recorder::default();
        return Ok(());
    }
    let now = store.now().await?;
    recorder.add(store, &Figures::all(store).await?, now).await?;
    if swept.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
        *swept = Some(Instant::now());
        deeds::trim(store, now).await?;
        failures::trim(store, now).await?;
        journal::trim(store, &app.journal.limits(), now).await?;
    }
    Ok(())
}
