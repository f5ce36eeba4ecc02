//! Runs periodic workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::contract::{Lead, PeriodicState};
use crate::engine::core::Core;
use crate::engine::shield::shielded_future;
use crate::engine::upkeep::periodic::{Periodic, Tick};
use crate::model::NodeId;
use crate::model::text::cut_middle;

/// Longest error that heartbeats report, in bytes.
const ERROR_BYTES_MAX: usize = 500;

/// How long the end of a worker waits for the store.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

const LOST: &str = "another node may lead now: the run was ended";

/// Runs until the engine stops, which waits for the current run.
pub(in crate::engine) async fn run(core: Arc<Core>, place: usize) {
    let (periodic, account) = &core.periodic[place];
    // As whom it leads, since when it does not run, and how long the others are to wait from then on.
    let mut led = None;
    while !core.phases.is_draining() {
        let (asked_at, node) = (Instant::now(), core.node());
        let may = !periodic.once_in_fleet || leads(&core, periodic).await;
        // The stop may have come while it asked.
        let runs = may && !core.phases.is_draining();
        if runs {
            account.is(PeriodicState::Work);
            // A panic fails this run, but does not end the worker.
            let tick = Tick { store: core.store.clone(), phases: core.phases.clone() };
            let run = async { (periodic.run)(tick).await.map_err(|e| core.hooks.text_of(&e)) };
            let error = tokio::select! {
                answer = shielded_future(run) => match answer {
                    Ok(answer) => answer.err(),
                    Err(text) => Some(format!("it panicked: {text}")),
                },
                // Whatever the run leaves of the task's budget.
                () = unconstrained(lead_is_lost(&core, periodic, asked_at)) => Some(LOST.to_owned()),
            };
            account.runs.fetch_add(1, Ordering::Relaxed);
            if let Some(error) = error {
                tracing::error!(worker = &*periodic.name, "a periodic worker failed: {error}");
                // The log has all of it; a heartbeat is sent often.
                account.failed(cut_middle(&error, ERROR_BYTES_MAX).into_owned());
            }
            account.is(PeriodicState::Idle);
        }
        let pause = if runs { periodic.pause } else { Duration::ZERO };
        led = (may && periodic.once_in_fleet).then(|| (node, Instant::now(), pause));
        tokio::select! {
            () = tokio::time::sleep(periodic.pause) => {}
            () = core.phases.draining() => {}
        }
    }
    account.is(PeriodicState::Stop);
    if let Some((node, ended, pause)) = led {
        let left = pause.saturating_sub(ended.elapsed());
        hand_over(&core, periodic, node, left).await;
    }
}

/// Lets another node lead when the pause is over. It need not wait as long as after a death.
async fn hand_over(core: &Core, periodic: &Periodic, node: NodeId, left: Duration) {
    let ttl = left.max(Duration::from_millis(1));
    let lead = Lead { now: None, role: role(periodic), node, ttl };
    match tokio::time::timeout(HAND_OVER_MAX, core.store.lead(lead)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(worker = &*periodic.name, %error, "cannot hand over"),
        Err(_) => tracing::debug!(worker = &*periodic.name, "cannot hand over: no answer"),
    }
}

fn role(periodic: &Periodic) -> Arc<str> {
    format!("periodic/{}", periodic.name).into()
}

/// How long a node leads from an answer on.
fn ttl(core: &Core, periodic: &Periodic) -> Duration {
    core.settings.lease.max(periodic.pause.saturating_mul(3))
}

/// `None`: the store does not answer.
async fn asked(core: &Core, periodic: &Periodic) -> Option<bool> {
    let (node, ttl) = (core.node(), ttl(core, periodic));
    let lead = Lead { now: None, role: role(periodic), node, ttl };
    match core.store.lead(lead).await {
        Ok(leads) => Some(leads),
        Err(error) => {
            core.outage.failed("asking who leads", &error);
            None
        }
    }
}

async fn leads(core: &Core, periodic: &Periodic) -> bool {
    asked(core, periodic).await == Some(true)
}

/// Renews, during a run, the lead that was asked for at `asked_at`. Ends when another node may have it.
async fn lead_is_lost(core: &Core, periodic: &Periodic, asked_at: Instant) {
    if !periodic.once_in_fleet {
        return std::future::pending().await;
    }
    let ttl = ttl(core, periodic);
    let mut leads_until = asked_at + ttl;
    loop {
        let renewed = async {
            tokio::time::sleep(ttl / 3).await;
            (Instant::now(), asked(core, periodic).await)
        };
        match tokio::time::timeout_at(leads_until, renewed).await {
            Ok((now, Some(true))) => leads_until = now + ttl,
            Ok((_, None)) => {}
            Ok((_, Some(false))) | Err(_) => return,
        }
    }
}
