//! Runs periodic workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::contract::{Lead, PeriodicState};
use crate::engine::core::Core;
use crate::engine::shield::shielded_future;
use crate::engine::upkeep::periodic::{Periodic, Tick};
use crate::model::text::cut_middle;

/// Longest error that heartbeats report, in bytes.
const ERROR_BYTES_MAX: usize = 500;

/// Runs until the engine stops, which waits for the current run.
pub(in crate::engine) async fn run(core: Arc<Core>, place: usize) {
    let (periodic, account) = &core.periodic[place];
    while !core.phases.is_draining() {
        if !periodic.once_in_fleet || leads(&core, periodic).await {
            account.is(PeriodicState::Work);
            // A panic fails this run, but does not end the worker.
            let tick = Tick { store: core.store.clone(), phases: core.phases.clone() };
            let run = async { (periodic.run)(tick).await.map_err(|e| core.hooks.text_of(&e)) };
            let error = match shielded_future(run).await {
                Ok(answer) => answer.err(),
                Err(text) => Some(format!("it panicked: {text}")),
            };
            account.runs.fetch_add(1, Ordering::Relaxed);
            if let Some(error) = error {
                tracing::error!(worker = &*periodic.name, "a periodic worker failed: {error}");
                // The log has all of it; a heartbeat is sent often.
                account.failed(cut_middle(&error, ERROR_BYTES_MAX).into_owned());
            }
            account.is(PeriodicState::Idle);
        }
        tokio::select! {
            () = tokio::time::sleep(periodic.pause) => {}
            () = core.phases.draining() => {}
        }
    }
    account.is(PeriodicState::Stop);
}

async fn leads(core: &Core, periodic: &Periodic) -> bool {
    let role = format!("periodic/{}", periodic.name).into();
    let ttl = core.settings.lease.max(periodic.pause.saturating_mul(3));
    let lead = Lead { now: None, role, node: core.node(), ttl };
    match core.store.lead(lead).await {
        Ok(leads) => leads,
        Err(error) => {
            core.outage.failed("asking who leads", &error);
            false
        }
    }
}
