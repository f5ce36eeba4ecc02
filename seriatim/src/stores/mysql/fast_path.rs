//! Fast path: turns of lanes with a single job, the one that opened the lane, claimed by this process. If all turns of
//! a settle are on it and done, the first statements delete their lanes, and the settle commits if none was missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::definitions::Known;
use super::error::{Fail, Try};
use super::sql::{list, literals};
use super::tally::{Figure, Figures};
use super::work::Work;
use crate::contract::Settled;
use crate::lock::lock;
use crate::model::settle::Settlement;
use crate::stores::state::QueueRow;

/// Most lanes remembered. Above it all are forgotten, which only costs time.
const LANES_MAX: usize = 100_000;
/// Most statements for deleting lanes.
const STATEMENTS_MAX: usize = 16;

/// A lane, and its key if it has one.
pub(super) type FastLane = (u64, Option<Arc<str>>);

/// The lanes on the fast path that this process claimed and has not settled.
#[derive(Default)]
pub(super) struct FastPath(Mutex<HashMap<u64, Option<Arc<str>>>>);

/// The first statements of a settle on the fast path.
pub(super) struct Deletion {
    pub sql: String,
    /// The number of statements at the end that delete lanes.
    statements: usize,
}

impl FastPath {
    pub(super) fn add(&self, lanes: Vec<FastLane>) {
        let mut known = lock(&self.0);
        if known.len() + lanes.len() > LANES_MAX {
            known.clear();
        }
        known.extend(lanes);
    }

    /// The statements that settle these turns, if all are done and on the fast path. Forgets their lanes.
    pub(super) fn deletion(&self, turns: &[Settlement], known: &Known) -> Option<Deletion> {
        if turns.iter().any(|turn| is_kept(&known.queues, turn)) {
            return None;
        }
        let mut known = lock(&self.0);
        let lanes: Vec<Option<FastLane>> =
            turns.iter().map(|turn| known.remove_entry(&turn.lane.number)).collect();
        drop(known);
        // If two turns name the same lane, the second is no longer found.
        let lanes: Vec<FastLane> = lanes.into_iter().collect::<Option<_>>()?;
        let is_done = |turn: &Settlement| turn.is_all_done() && !turn.keep.counted;
        if lanes.is_empty() || !turns.iter().all(is_done) {
            return None;
        }
        let (mut keys, mut claims) = (BTreeMap::new(), BTreeMap::new());
        for (turn, (id, key)) in turns.iter().zip(lanes) {
            let queue = turn.lane.queue;
            if let Some(key) = key {
                keys.entry(queue).or_insert_with(BTreeSet::new).insert(key);
            }
            let claim = claims.entry((queue, turn.token.0)).or_insert_with(BTreeSet::new);
            claim.insert(id);
        }
        if claims.len() > STATEMENTS_MAX {
            return None;
        }
        // Lanes with a key are locked in the common order of their keys.
        let lock = |(queue, keys): (&u32, &BTreeSet<Arc<str>>)| {
            let keys = literals(keys.iter().map(|key| &**key));
            format!(
                "SELECT 1 FROM seriatim_lane FORCE INDEX (lane_key) WHERE q = {queue} AND k IN ({keys}) FOR UPDATE"
            )
        };
        let delete = |((queue, token), ids): (&(u32, i64), &BTreeSet<u64>)| {
            // The lane has no other job, and its job is not flagged. If `flagged` occurs in the JSON for another
            // reason, the turn is settled the normal way. The `+ 0` keeps the server from using the index of claimed
            // lanes, through which it would read and lock other sessions' rows.
            format!(
                "DELETE FROM seriatim_lane WHERE id IN ({}) AND q + 0 = {queue} AND tok = {token} AND st + 0 = 2 AND n = 0 \
                 AND c = 1 AND j_gen IS NOT NULL AND (j_rest IS NULL OR LOCATE('flagged', j_rest) = 0)",
                list(ids.iter().copied())
            )
        };
        let all: Vec<String> = keys.iter().map(lock).chain(claims.iter().map(delete)).collect();
        Some(Deletion { sql: all.join(";"), statements: claims.len() })
    }
}

impl Deletion {
    /// Settles the turns if all their lanes were deleted and no data of their jobs is kept.
    pub(super) async fn settle(
        &self,
        work: &mut Work<'_>,
        turns: &[Settlement],
    ) -> Try<Vec<Settled>> {
        let deletes = work.ahead.iter().rev().take(self.statements);
        let deleted: u64 = deletes.map(|answer| answer.affected).sum();
        let is_kept = |turn: &Settlement| is_kept(&work.state.queues, turn);
        if deleted != turns.len() as u64 || turns.iter().any(is_kept) {
            return Err(Fail::NotFast);
        }
        let mut changes = Figures::default();
        for turn in turns {
            for figure in [Figure::Lanes, Figure::Jobs, Figure::Claimed] {
                changes.add(turn.lane.queue, figure, -1);
            }
            changes.add(turn.lane.queue, Figure::Processed, 1);
        }
        work.write_figures(&changes).await?;
        Ok(turns.iter().map(|_| Settled::ok(Vec::new())).collect())
    }
}

/// Whether a done job of this turn is kept.
fn is_kept(queues: &BTreeMap<u32, QueueRow>, turn: &Settlement) -> bool {
    let row = queues.get(&turn.lane.queue);
    row.is_none_or(|row| !row.queue.retention().is_zero())
}

impl Work<'_> {
    /// The fast-path entry of a lane that was just claimed, if it qualifies.
    pub(super) fn fast(&self, id: u64) -> Option<FastLane> {
        let (lane, job) = (self.lanes.get(&id)?, self.jobs.get(&id)?);
        let entry = &job.entry;
        let is_fast = (lane.n, lane.c, job.lane) == (0, 1, Some(id))
            && lane.retry < 0
            && entry.aliases.is_empty()
            && job.expires_at().is_none();
        is_fast.then(|| (id, lane.k.clone()))
    }
}
