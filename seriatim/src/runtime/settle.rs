//! Sends what has ended, all that has gathered in one batch, until the store has it. A lost answer
//! is not the handler's failure: the settle is sent again, and a repeat is refused as stale.

use std::sync::Arc;
use std::time::Duration;

use super::fetch::jittered;
use super::shared::{Ended, Shared};
use crate::clock::Timestamp;
use crate::limits::SETTLE_TURNS_MAX;
use crate::store::{Settle, Settled};

/// Shortest and longest wait for a store that is away.
const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let ended = shared.take_ended();
        if !ended.is_empty() {
            for batch in batches(ended) {
                send(&shared, batch).await;
            }
            continue;
        }
        if shared.all_ended.is_cancelled() {
            return;
        }
        tokio::select! {
            () = shared.ending.notified() => {}
            () = shared.all_ended.cancelled() => {}
        }
    }
}

fn batches(mut ended: Vec<Ended>) -> Vec<Vec<Ended>> {
    let mut batches = Vec::new();
    while ended.len() > SETTLE_TURNS_MAX {
        let rest = ended.split_off(SETTLE_TURNS_MAX);
        batches.push(std::mem::replace(&mut ended, rest));
    }
    batches.push(ended);
    batches
}

async fn send(shared: &Shared, batch: Vec<Ended>) {
    let turns: Vec<_> = batch.iter().map(|ended| ended.settlement.clone()).collect();
    if let Some(observer) = &shared.settings.observer {
        batch.iter().for_each(|ended| observer.settling(&ended.turn, &ended.settlement));
    }
    let mut wait = RETRY_WAIT.0;
    let mut repeated = false;
    loop {
        let sent_at = Timestamp::of_this_machine();
        match shared.store.settle(Settle { now: None, turns: turns.clone() }).await {
            Ok(answers) => return tell(shared, &batch, &answers, repeated, sent_at),
            Err(error) if error.is_transient() => {
                if !repeated {
                    tracing::warn!(%error, turns = turns.len(), "the store does not take results: trying again");
                }
                repeated = true;
                tokio::time::sleep(jittered(wait)).await;
                wait = (wait * 2).min(RETRY_WAIT.1);
            }
            Err(error) => {
                tracing::error!(%error, turns = turns.len(), "the store refuses results: the claims will expire and run again");
                return;
            }
        }
    }
}

fn tell(shared: &Shared, batch: &[Ended], answers: &[Settled], repeated: bool, sent_at: Timestamp) {
    for (ended, answer) in batch.iter().zip(answers) {
        if *answer == Settled::Stale && !repeated {
            shared.count_stale();
            tracing::warn!(
                queue = &*ended.turn.queue,
                key = ended.turn.key.as_deref(),
                token = ended.turn.token.0,
                "the claim had been taken over: its result was refused"
            );
        }
        if let Some(observer) = &shared.settings.observer {
            observer.settled(&ended.turn, &ended.settlement, answer, sent_at);
        }
    }
}
