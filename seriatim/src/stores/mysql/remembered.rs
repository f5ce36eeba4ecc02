//! What this process remembers of the lanes that it claimed.
//!
//! Their keys, so that a settle need not ask in which order to lock them. And which of them are on the fast path: lanes with
//! a single job, the one that opened the lane. If all turns of a settle are on it and done, the first statements delete
//! their lanes, and the settle commits if none was missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::definitions::Known;
use super::error::{Fail, Try};
use super::sql::{delete, literals};
use super::tally::{Figure, Figures};
use super::work::{Work, by_id};
use crate::contract::Settled;
use crate::lock::lock;
use crate::model::{Settlement, Turn};
use crate::stores::state::queues::Queues;

/// Most lanes remembered. Above it all are forgotten, which only costs time.
const LANES_MAX: usize = 100_000;
/// Most statements for deleting lanes.
const STATEMENTS_MAX: usize = 16;

/// A claimed lane.
#[derive(Clone, Debug)]
pub(super) struct Mine {
    pub lane: u64,
    pub key: Option<Arc<str>>,
    is_fast: bool,
}

impl Mine {
    /// The lane of a turn that the settle of its last one claimed.
    pub(super) fn of_next(turn: &Turn) -> Self {
        Self { lane: turn.lane.number, key: turn.key.clone(), is_fast: false }
    }
}

/// The lanes that this process claimed and has not settled.
#[derive(Default)]
pub(super) struct Remembered(Mutex<HashMap<u64, Mine>>);

/// A settle on the fast path.
pub(super) struct Deletion {
    pub sql: String,
    /// The number of statements at the end that delete lanes.
    statements: usize,
}

impl Remembered {
    pub(super) fn add(&self, lanes: Vec<Mine>) {
        let mut known = lock(&self.0);
        if known.len() + lanes.len() > LANES_MAX {
            known.clear();
        }
        known.extend(lanes.into_iter().map(|lane| (lane.lane, lane)));
    }

    /// Forgets the lanes of these turns, and returns what is known of each.
    pub(super) fn take(&self, turns: &[Settlement]) -> Vec<Option<Mine>> {
        let mut known = lock(&self.0);
        // If two turns name the same lane, the second is no longer found.
        turns.iter().map(|turn| known.remove(&turn.lane.number)).collect()
    }
}

fn lock_bare(lanes: &BTreeSet<u64>) -> String {
    format!("SELECT 1 FROM seriatim_lane {} FOR UPDATE", by_id(lanes.iter().copied()))
}

impl Deletion {
    /// The statements that settle these turns, if all are done and on the fast path.
    pub(super) fn of(turns: &[Settlement], mine: &[Option<Mine>], known: &Known) -> Option<Self> {
        let is_done = |turn: &Settlement| turn.is_all_done() && !turn.keep.counted;
        let is_kept = |turn: &Settlement| is_kept(&known.queues, turn);
        if turns.is_empty() || !turns.iter().all(|turn| is_done(turn) && !is_kept(turn)) {
            return None;
        }
        let (mut keys, mut claims, mut bare) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for (turn, mine) in turns.iter().zip(mine) {
            let (queue, lane) = (turn.lane.queue, mine.as_ref().filter(|lane| lane.is_fast)?);
            match &lane.key {
                Some(key) => {
                    keys.entry(queue).or_insert_with(BTreeSet::new).insert(key.clone());
                }
                None => drop(bare.insert(lane.lane)),
            }
            let claim = claims.entry((queue, turn.token.0)).or_insert_with(BTreeSet::new);
            claim.insert(lane.lane);
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
        let deletion = |((queue, token), ids): (&(u32, i64), &BTreeSet<u64>)| {
            // The lane has no other job, and its job is not flagged. If `flagged` occurs in the JSON for another
            // reason, the turn is settled the normal way. The `+ 0` keeps the server from using the index of claimed
            // lanes, through which it would read and lock other sessions' rows.
            let is_last = format!(
                " AND q + 0 = {queue} AND tok = {token} AND st + 0 = 2 AND n = 0 AND c = 1 AND j_gen IS NOT NULL \
                 AND (j_rest IS NULL OR LOCATE('flagged', j_rest) = 0)"
            );
            delete("seriatim_lane", "id", &ids.iter().copied().collect::<Vec<_>>(), &is_last)
        };
        // Those without one in the order of their numbers, which several deletions may not have.
        let deleted = claims.values().flatten().filter(|lane| bare.contains(*lane));
        let bare = (!deleted.is_sorted()).then(|| lock_bare(&bare));
        let locks = keys.iter().map(lock).chain(bare);
        let all: Vec<String> = locks.chain(claims.iter().map(deletion)).collect();
        Some(Self { sql: all.join(";"), statements: claims.len() })
    }

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
        work.ring_shared(turns.iter().map(|turn| turn.lane.queue)).await?;
        Ok(turns.iter().map(|_| Settled::ok(Vec::new())).collect())
    }
}

/// Whether a done job of this turn is kept.
fn is_kept(queues: &Queues, turn: &Settlement) -> bool {
    let row = queues.get(&turn.lane.queue);
    row.is_none_or(|row| !row.queue.retention().is_zero())
}

impl Work<'_> {
    /// What to remember of a lane that was just claimed.
    pub(super) fn mine(&self, id: u64) -> Option<Mine> {
        let lane = self.lanes.get(&id)?;
        let is_fast = self.jobs.get(&id).is_some_and(|job| {
            (lane.n, lane.c, job.lane) == (0, 1, Some(id))
                && lane.retry < 0
                && job.entry.aliases.is_empty()
                && job.expires_at().is_none()
        });
        Some(Mine { lane: id, key: lane.k.clone(), is_fast })
    }
}
