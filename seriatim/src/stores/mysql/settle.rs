//! Settling turns.

use std::collections::{BTreeSet, HashMap};

use super::bodies::Bodies;
use super::error::Try;
use super::going_on::GoingOn;
use super::load::Need;
use super::remembered::Mine;
use super::sql::Columns;
use super::work::{Work, by_id};
use crate::contract::{Settle, Settled, Wake};
use crate::model::{Digest, Fate, LaneId, Settlement};

/// Settles turns. Also returns a wake-up for the queues of the lanes that a claim can take, now or later. `mine`: what is
/// remembered of each turn's lane. `stamp`: the version of the definitions that the statements ahead were made of.
pub(super) async fn settle(
    work: &mut Work<'_>,
    request: &Settle,
    mine: &[Option<Mine>],
    stamp: i64,
) -> Try<(Vec<Settled>, Wake)> {
    let turns = &request.turns;
    let mut going_on = GoingOn::of(work, request, stamp).await?;
    let wanted: BTreeSet<u64> = turns.iter().map(|turn| turn.lane.number).collect();
    let mut keys = HashMap::new();
    for (place, turn) in turns.iter().enumerate() {
        let LaneId { queue, number, .. } = turn.lane;
        let mine = mine.get(place).and_then(Option::as_ref);
        if let Some(mine) = mine.filter(|mine| mine.lane == number) {
            keys.insert(number, mine.key.clone().map(|key| (queue, key)));
        } else if work.mode(queue).is_ok_and(|mode| !mode.is_keyed()) {
            keys.insert(number, None);
        }
    }
    let bodies = if request.go_on.is_empty() { Bodies::None } else { Bodies::Lengths };
    work.lock_lanes_of(&wanted, &keys, bodies).await?;
    going_on.choose(work);
    // Lanes of stale settlements are left unchanged.
    let current = |turn: &&Settlement| {
        work.lanes.get(&turn.lane.number).is_some_and(|row| row.tok == turn.token.0)
    };
    let lanes = turns.iter().filter(current).map(|turn| turn.lane.number);
    let (next, last): (Vec<u64>, Vec<u64>) = lanes.partition(|lane| going_on.lanes.contains(lane));
    let equal = equal_to_kept(work, turns).await?;
    going_on.load(work, &next).await?;
    work.load_jobs(&last, Need::Position, true, Bodies::None, &equal).await?;
    let now = work.now;
    let mut settled = work.state.settle(now, turns);
    mark_busy(work, turns, &mut settled).await?;
    going_on.claim(work, &mut settled).await?;
    let wake = Wake::of(turns.iter().filter_map(|turn| work.state.wakes(turn.lane)));
    work.ring_shared(turns.iter().map(|turn| turn.lane.queue)).await?;
    work.save().await?;
    going_on.fill(work, &mut settled).await?;
    Ok((settled, wake))
}

/// Marks the turns whose lanes were left out because another transaction keeps them locked.
async fn mark_busy(work: &mut Work<'_>, turns: &[Settlement], settled: &mut [Settled]) -> Try<()> {
    let missing = turns.iter().map(|turn| turn.lane.number);
    let missing: BTreeSet<u64> = missing.filter(|lane| !work.lanes.contains_key(lane)).collect();
    if !work.lock.skips_locked() || missing.is_empty() {
        return Ok(());
    }
    let sql = format!("SELECT id, tok FROM seriatim_lane {} AND st = 2", by_id(missing));
    let mut claimed = BTreeSet::new();
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        claimed.insert((row.int()? as u64, row.int()?));
    }
    for (turn, settled) in turns.iter().zip(settled) {
        if claimed.contains(&(turn.lane.number, turn.token.0)) {
            *settled = Settled::Busy;
        }
    }
    Ok(())
}

/// The digests of jobs that may go back into a large lane, where equal ones may wait.
async fn equal_to_kept(
    work: &mut Work<'_>,
    turns: &[Settlement],
) -> Try<HashMap<u64, Vec<Digest>>> {
    let keeps = |turn: &&Settlement| {
        turn.rest == Fate::Keep || turn.exceptions.iter().any(|(_, fate)| *fate == Fate::Keep)
    };
    let kept: Vec<u64> = turns.iter().filter(keeps).map(|turn| turn.lane.number).collect();
    let mut equal = HashMap::new();
    for id in kept {
        equal.insert(id, work.closed_digests(id).await?);
    }
    Ok(equal)
}
