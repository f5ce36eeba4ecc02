//! Settling turns.

use std::collections::{BTreeSet, HashMap};

use super::bodies::Bodies;
use super::error::Try;
use super::load::Need;
use super::work::Work;
use crate::contract::Settled;
use crate::model::payload::Digest;
use crate::model::settle::{Fate, Settlement};

pub(super) async fn settle(work: &mut Work<'_>, turns: &[Settlement]) -> Try<Vec<Settled>> {
    let wanted: BTreeSet<u64> = turns.iter().map(|turn| turn.lane.number).collect();
    let is_keyless = |turn: &&Settlement| work.mode(turn.lane.queue).is_ok_and(|m| !m.is_keyed());
    let keyless = turns.iter().filter(is_keyless).map(|turn| turn.lane.number).collect();
    work.lock_lanes_of(&wanted, &keyless).await?;
    // Lanes of stale settlements are left unchanged.
    let current = |turn: &&Settlement| {
        work.lanes.get(&turn.lane.number).is_some_and(|row| row.tok == turn.token.0)
    };
    let lanes: Vec<u64> = turns.iter().filter(current).map(|turn| turn.lane.number).collect();
    let equal = equal_to_kept(work, turns).await?;
    work.load_jobs(&lanes, Need::Position, true, Bodies::None, &equal).await?;
    let now = work.now;
    let settled = work.state.settle(now, turns);
    work.save().await?;
    Ok(settled)
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
