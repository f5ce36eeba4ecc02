//! Pushes what the clock asks for.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::outage::Pauses;
use crate::clock::Timestamp;
use crate::cron::{Cron, Missed};
use crate::error::ErrorKind;
use crate::store::Push;

/// How far back missed ticks are looked for: as long as idempotency keys are remembered at least.
const WINDOW: Duration = Duration::from_secs(86_400);
/// Most missed ticks that are caught up with.
const CATCH_UP_MAX: usize = 100;
/// The longest sleep: the clock of the store may be set, or that of this machine.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// Pushes the jobs of one entry at its ticks.
pub(super) async fn run(core: Arc<Core>, cron: Cron) {
    let mut last = core.store_now();
    for tick in missed(&cron, last) {
        push(&core, &cron, tick).await;
    }
    while let Some(tick) = cron.next_after(last) {
        loop {
            let wait = core.until(tick);
            if wait.is_zero() {
                break;
            }
            tokio::time::sleep(wait.min(SLEEP_MAX)).await;
        }
        if core.phases.is_draining() {
            return;
        }
        push(&core, &cron, tick).await;
        last = tick;
    }
    tracing::warn!(%cron, "this schedule has no next time: it is not looked at any more");
}

fn missed(cron: &Cron, now: Timestamp) -> Vec<Timestamp> {
    let most = match cron.catches_up() {
        Missed::Skip => return Vec::new(),
        Missed::Latest => 1,
        Missed::All => CATCH_UP_MAX,
    };
    let next = |tick: &Timestamp| cron.next_after(*tick).filter(|next| *next <= now);
    let first = cron.next_after(now - WINDOW).filter(|tick| *tick <= now);
    let mut ticks: Vec<Timestamp> = std::iter::successors(first, next).collect();
    ticks.split_off(ticks.len().saturating_sub(most))
}

/// Pushes the job of a tick, until the store has taken it.
async fn push(core: &Core, cron: &Cron, tick: Timestamp) {
    let mut pauses = Pauses::default();
    loop {
        let jobs = vec![cron.job_at(tick)];
        match core.store.push(Push { now: None, jobs }).await {
            Ok(_) => return core.outage.succeeded(),
            Err(error) if error.is_transient() => {
                core.outage.failed("pushing by the clock", &error);
            }
            Err(error) => {
                let full = error.kind() == ErrorKind::Full;
                return tracing::error!(%cron, %error, full, "the job of this tick was refused");
            }
        }
        tokio::time::sleep(pauses.next()).await;
    }
}
