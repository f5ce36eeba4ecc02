//! Settles turns in the store: all that have ended go as one batch.
//!
//! A settlement is sent until the store answers, whatever happens to its handler. The token fences it, so a repeat
//! does no harm. If the store refuses one for a lasting reason, it is put aside and retried rarely, so that it does
//! not delay the others.

use std::collections::HashSet;
use std::sync::Arc;

use crate::contract::{Settled, TroubleKind};
use crate::engine::core::Core;
use crate::engine::limits::PUT_ASIDE_FOR;
use crate::engine::outage::{Pauses, will_pass};
use crate::engine::settle::ended::{Ended, Kept};
use crate::engine::settle::exhausted::announce;
use crate::engine::settle::going_on::{GoingOn, answered, settle_of};
use crate::model::limits::SETTLE_TURNS_MAX;
use crate::model::{Error, LaneId, Settlement, Timestamp};

/// Settles until the queue of ended turns is closed.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    while let Some(mut ended) = core.settles.take().await {
        while !ended.is_empty() {
            let rest = ended.split_off(ended.len().min(SETTLE_TURNS_MAX));
            let again = if core.held.was_doubled() { take_doubled(&mut ended) } else { Vec::new() };
            settle(&core, ended).await;
            ended = again;
            ended.extend(rest);
        }
    }
}

/// Removes the turns whose lane is already in the batch.
fn take_doubled(ended: &mut Vec<Ended>) -> Vec<Ended> {
    let mut seen: HashSet<LaneId> = HashSet::with_capacity(ended.len());
    let is_second = |one: &mut Ended| !seen.insert(one.settlement.lane);
    ended.extract_if(.., is_second).collect()
}

async fn settle(core: &Core, ended: Vec<Ended>) {
    let ended = announce(core, ended).await;
    if ended.is_empty() {
        return;
    }
    report_sending(core, &ended);
    let going_on = GoingOn::of(core, &ended);
    let (turns, kept): (Vec<Settlement>, Vec<Kept>) =
        ended.into_iter().map(|one| (one.settlement, one.kept)).unzip();
    let sent_at = Timestamp::of_this_machine();
    let (settled, repeated) = match going_on {
        Some(going_on) => match going_on.settle(core, &turns).await {
            Ok(settled) => {
                core.outage.succeeded();
                (settled.into_iter().map(Some).collect(), false)
            }
            Err(error) => send_again(core, &turns, error).await,
        },
        None => send(core, &turns).await,
    };
    core.held.remove(answered(&turns, settled.iter().map(Option::as_ref)));
    let endings = turns.iter().zip(&settled).zip(&kept).filter_map(|((turn, settled), kept)| {
        let settled = settled.as_ref().filter(|settled| !settled.is_open())?;
        Some(kept.jobs.as_ref()?.ending(turn, settled))
    });
    core.counters.settled(endings);
    for ((settlement, settled), kept) in turns.into_iter().zip(settled).zip(kept) {
        let repeated = repeated || kept.repeated;
        let settled = match settled {
            None | Some(Settled::Busy | Settled::Unanswered) => {
                core.held.clear(&settlement);
                if settled == Some(Settled::Busy) && kept.busy {
                    still_locked(core, &settlement);
                }
                let repeated = repeated || settled == Some(Settled::Unanswered);
                let again = Ended::again(settlement, Kept { repeated, ..kept });
                core.settles.add_again(again, settled.is_some());
                continue;
            }
            Some(settled) => settled,
        };
        if kept.aside {
            core.settles.counts_aside();
            core.troubles.clear(TroubleKind::SettlesPutAside, &settlement.lane.to_string());
        }
        if kept.busy {
            core.troubles.clear(TroubleKind::SettlesLocked, &settlement.lane.to_string());
        }
        let repeated = repeated || kept.aside;
        report(&settlement, &settled, repeated);
        // Unknown whether the first sending took effect: then no answer is reported.
        let known = settled.is_ok() || !repeated;
        let (true, Some((call, place))) = (known, kept.witness) else { continue };
        let turn = call.claimed(place);
        if let Settled::Ok { cancelled, .. } = &settled {
            let node = Some(&*core.settings.node_name);
            core.hooks.turn_log.settled_on(node, turn, &settlement, cancelled);
        }
        if let Some(observer) = &core.observer {
            observer.settled(turn, &settlement, &settled, sent_at);
        }
    }
}

/// Reports the settlements that are about to be sent.
fn report_sending(core: &Core, ended: &[Ended]) {
    let Some(observer) = &core.observer else { return };
    for one in ended.iter().filter(|one| !one.kept.aside && !one.kept.busy) {
        if let Some((call, place)) = &one.kept.witness {
            observer.settling(call.claimed(*place), &one.settlement);
        }
    }
}

fn report(settlement: &Settlement, settled: &Settled, repeated: bool) {
    // After a lost answer the repeat of a settlement that took effect is stale too; nothing is wrong then.
    if !settled.is_ok() && !repeated {
        let (lane, token) = (settlement.lane, settlement.token);
        tracing::warn!(%lane, %token, "another node had taken this claim over: its outcome was refused");
    }
}

/// Sends a batch until it is answered. Also returns whether it was sent more than once. `None` stands for a turn that
/// the store refuses by itself: put it aside.
pub(in crate::engine) async fn send(
    core: &Core,
    turns: &[Settlement],
) -> (Vec<Option<Settled>>, bool) {
    match core.store.settle(settle_of(turns)).await {
        Ok(settled) => {
            core.outage.succeeded();
            (settled.into_iter().map(Some).collect(), false)
        }
        Err(error) => send_again(core, turns, error).await,
    }
}

/// The same after a first attempt failed.
async fn send_again(
    core: &Core,
    turns: &[Settlement],
    mut error: Error,
) -> (Vec<Option<Settled>>, bool) {
    let mut pauses = Pauses::default();
    while will_pass(&error) {
        core.outage.failed("settling", &error);
        tokio::time::sleep(pauses.next()).await;
        match core.store.settle(settle_of(turns)).await {
            Ok(settled) => {
                core.outage.succeeded();
                return (settled.into_iter().map(Some).collect(), true);
            }
            Err(again) => error = again,
        }
    }
    (split(core, turns, &error).await, true)
}

/// Splits a refused batch in halves until the refused turns are alone.
async fn split(core: &Core, turns: &[Settlement], error: &Error) -> Vec<Option<Settled>> {
    if let [one] = turns {
        refused(core, one, error).await;
        return vec![None];
    }
    let (left, right) = turns.split_at(turns.len() / 2);
    let mut settled = Box::pin(send(core, left)).await.0;
    settled.extend(Box::pin(send(core, right)).await.0);
    settled
}

/// Reports a turn that the store refuses to settle.
async fn refused(core: &Core, settlement: &Settlement, error: &Error) {
    let (lane, token) = (settlement.lane, settlement.token);
    let turn = core.store.turn(lane, token).await.ok().flatten();
    let queue = turn.as_ref().map(|turn| &*turn.queue);
    let again_s = PUT_ASIDE_FOR.as_secs();
    tracing::error!(%error, %lane, %token, queue, again_s, "the store refuses to settle a turn: it is set aside and tried again later");
    let text = format!("the store refuses the outcome of lane {lane}: {error}");
    core.troubles.set(TroubleKind::SettlesPutAside, queue, &lane.to_string(), &text);
}

/// Reports a turn whose lane has been locked for longer than a short transaction takes.
fn still_locked(core: &Core, settlement: &Settlement) {
    let text = "an open transaction has locked its key";
    core.troubles.set(TroubleKind::SettlesLocked, None, &settlement.lane.to_string(), text);
}

/// For turns that were not sent by the settler: keeps those that the store refused, or whose lanes are locked, to be
/// sent again. Returns the results of the others.
pub(in crate::engine) fn keep_refused(
    core: &Core,
    turns: &[Settlement],
    settled: Vec<Option<Settled>>,
) -> Vec<(usize, Settled)> {
    core.held.remove(answered(turns, settled.iter().map(Option::as_ref)));
    let mut results = Vec::new();
    for (place, (turn, settled)) in turns.iter().zip(settled).enumerate() {
        match settled {
            None | Some(Settled::Busy | Settled::Unanswered) => {
                let repeated = settled == Some(Settled::Unanswered);
                let again = Ended::again(turn.clone(), Kept { repeated, ..Kept::default() });
                core.settles.add_again(again, settled.is_some());
            }
            Some(settled) => results.push((place, settled)),
        }
    }
    results
}
