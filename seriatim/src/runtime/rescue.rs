//! Takes over what dead nodes held, and sweeps what has outlived its time. Every node does the
//! first; one at a time does the second.

use std::sync::Arc;
use std::time::Duration;

use super::fetch::jittered;
use super::shared::Shared;
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Result};
use crate::settle::{Outcome, Settlement};
use crate::store::{Lead, Rescue, Settle, Sweep};

/// Most lanes taken over at once.
const RESCUE_LANES_MAX: usize = 1_000;
/// Most rows of each kind swept at once.
const SWEEP_ROWS_MAX: usize = 5_000;
/// How often is looked for what has outlived its time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn run(shared: Arc<Shared>) {
    let interval = (shared.settings.lease / 6).clamp(Duration::from_millis(20), SWEEP_INTERVAL);
    let sweeps_every = (SWEEP_INTERVAL.as_millis() / interval.as_millis()).max(1);
    let mut round = 0;
    loop {
        tokio::time::sleep(jittered(interval)).await;
        if let Err(error) = rescue(&shared).await {
            tracing::debug!(%error, "could not look for expired claims");
        }
        round += 1;
        if round % sweeps_every == 0
            && let Err(error) = sweep(&shared).await
        {
            tracing::debug!(%error, "could not sweep");
        }
    }
}

async fn rescue(shared: &Shared) -> Result<()> {
    let request = Rescue {
        now: None,
        node: shared.node(),
        lease: shared.settings.lease,
        lanes_max: RESCUE_LANES_MAX,
    };
    let rescued = shared.store.rescue(request).await?;
    if rescued.is_empty() {
        return Ok(());
    }
    tracing::warn!(lanes = rescued.len(), "took over claims whose lease had run out");
    let definitions = shared.store.queues().await?;
    let crash = |turn: &crate::turn::Turn| -> Settlement {
        let verdict =
            Outcome::Crash { error: "its lease ran out: the node died or hung".into() }.into();
        let known = definitions.iter().find(|view| view.queue.name == *turn.queue);
        match known {
            Some(view) => crate::settle::plan(turn, &view.queue, &verdict, &|_| Duration::ZERO),
            None => shared.plan(turn, &verdict),
        }
    };
    let turns: Vec<Settlement> = rescued.iter().map(crash).collect();
    for turn in &rescued {
        shared.count_rescued();
        if let Some(observer) = &shared.settings.observer {
            observer.rescued(turn);
        }
    }
    if let Some(observer) = &shared.settings.observer {
        rescued
            .iter()
            .zip(&turns)
            .for_each(|(turn, settlement)| observer.settling(turn, settlement));
    }
    let sent_at = Timestamp::of_this_machine();
    let answers = shared.store.settle(Settle { now: None, turns: turns.clone() }).await?;
    if let Some(observer) = &shared.settings.observer {
        for ((turn, settlement), answer) in rescued.iter().zip(&turns).zip(&answers) {
            observer.settled(turn, settlement, answer, sent_at);
        }
    }
    Ok(())
}

async fn sweep(shared: &Shared) -> Result<()> {
    let lead = Lead {
        now: None,
        role: "maintenance".into(),
        node: shared.node(),
        ttl: SWEEP_INTERVAL * 3,
    };
    match shared.store.lead(lead).await {
        Ok(true) => {}
        Ok(false) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        Err(error) => return Err(error),
    }
    let request = Sweep { now: None, rows_max: SWEEP_ROWS_MAX };
    while shared.store.sweep(request).await?.more {
        tokio::task::yield_now().await;
    }
    Ok(())
}
