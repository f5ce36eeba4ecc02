//! Pushes jobs on a schedule.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Push, QueueView};
use crate::cron::{Cron, Missed};
use crate::engine::core::Core;
use crate::engine::limits::{CRON_LATE_MARGIN, CRON_LOOK_BACK_MAX, CRON_REMEMBERED_MIN};
use crate::engine::shield::shielded;
use crate::machine::suspended;
use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};
use crate::model::queue::{Mode, Queue};

/// Most missed ticks to catch up with.
const CATCH_UP_MAX: usize = 100;
/// A machine that was suspended for so long may have missed ticks.
const SUSPENDED_MIN: Duration = Duration::from_secs(10);
/// The longest sleep, because the clock of the store or of this machine may be changed.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// Refuses entries whose queues forget pushed ticks too soon.
pub(in crate::engine) fn check(core: &Core, queues: &[QueueView]) -> Result<()> {
    core.hooks.crons.iter().try_for_each(|cron| window(cron, queues).map(drop))
}

/// Pushes the jobs of one entry at its ticks.
pub(in crate::engine) async fn run(core: Arc<Core>, cron: Cron) {
    let mut last = core.store_now();
    for tick in missed(&core, &cron, last).await {
        push(&core, &cron, tick).await;
    }
    while let Some(tick) = cron.next_after(last) {
        let is_missed = wait_for(&core, tick).await;
        if core.phases.is_draining() {
            return;
        }
        if is_missed {
            // As if the node had just started.
            let read = || core.read_clock();
            until_answered(&core, &cron, read).await;
            last = core.store_now();
            for tick in missed(&core, &cron, last).await {
                push(&core, &cron, tick).await;
            }
            continue;
        }
        push(&core, &cron, tick).await;
        last = tick;
    }
    tracing::warn!(%cron, "this schedule has no next time: it is no longer used");
    core.phases.draining().await;
}

/// Waits for the time of a tick. True if the machine was suspended meanwhile, so that ticks may have been missed.
async fn wait_for(core: &Core, tick: Timestamp) -> bool {
    let before = suspended();
    loop {
        let wait = core.until(tick);
        if wait.is_zero() {
            return false;
        }
        tokio::time::sleep(wait.min(SLEEP_MAX)).await;
        if suspended().saturating_sub(before) >= SUSPENDED_MIN {
            return true;
        }
    }
}

/// How late a tick may still be pushed. A tick runs once because the store knows the idempotency key of an earlier
/// push, so no node may push a tick that the store may have forgotten. The key was written at the tick at the
/// earliest, and is kept for the queue's `idempotency_ttl`.
fn window(cron: &Cron, queues: &[QueueView]) -> Result<Duration> {
    let known = queues.iter().find(|view| view.queue.name == cron.queue());
    let remembered = match known {
        Some(view) => view.queue.idempotency_ttl,
        // The push creates it with the defaults.
        None => Queue::new(cron.queue(), Mode::Parallel).idempotency_ttl,
    };
    if remembered < CRON_REMEMBERED_MIN {
        let message = format!(
            "of queue {:?} is {}: it must be at least {}, so that each tick of {cron} is run once",
            cron.queue(),
            crate::model::duration::format(remembered),
            crate::model::duration::format(CRON_REMEMBERED_MIN),
        );
        return Err(Error::invalid("idempotency_ttl", message));
    }
    Ok(remembered.saturating_sub(CRON_LATE_MARGIN).min(CRON_LOOK_BACK_MAX))
}

async fn missed(core: &Core, cron: &Cron, now: Timestamp) -> Vec<Timestamp> {
    let most = match cron.catches_up() {
        Missed::Skip => return Vec::new(),
        Missed::Latest => 1,
        Missed::All => CATCH_UP_MAX,
    };
    let Some(window) = until_answered(core, cron, || look_back(core, cron)).await else {
        return Vec::new();
    };
    let next = |tick: &Timestamp| cron.next_after(*tick).filter(|next| *next <= now);
    let first = cron.next_after(now - window).filter(|tick| *tick <= now);
    let mut ticks: Vec<Timestamp> = std::iter::successors(first, next).collect();
    ticks.split_off(ticks.len().saturating_sub(most))
}

async fn look_back(core: &Core, cron: &Cron) -> Result<Duration> {
    window(cron, &core.store.queues().await?)
}

/// Pushes the job of a tick, until the store accepts it or the tick is too late.
async fn push(core: &Core, cron: &Cron, tick: Timestamp) {
    until_answered(core, cron, || attempt(core, cron, tick)).await;
}

/// Asks the store again for everything: after a suspend the machine's times and the queue are outdated.
async fn attempt(core: &Core, cron: &Cron, tick: Timestamp) -> Result<()> {
    let window = look_back(core, cron).await?;
    let late = core.store.now().await?.since(tick);
    if late >= window {
        let late = crate::model::duration::format(Duration::from_secs(late.as_secs()));
        tracing::warn!(%cron, late, "skipped a tick: the store may no longer know whether it has run");
        return Ok(());
    }
    let encoded = shielded(|| core.env.encoded(cron.job_at(tick)));
    let panicked = |text| Error::invalid("payload", format!("the codec panicked: {text}"));
    let jobs = vec![encoded.map_err(panicked)??];
    core.store.push(Push { now: None, jobs }).await.map(drop)
}

/// Repeats a request until the store accepts it. `None` if it was refused.
async fn until_answered<T, F>(core: &Core, cron: &Cron, ask: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T>>,
{
    let answer = core.outage.until_answered("pushing by the clock", ask).await;
    answer
        .inspect_err(|error| tracing::error!(%cron, %error, "the job of this tick was refused"))
        .ok()
}
