//! Settling turns that are done, in the common cases: nothing of the lane is left.

use std::collections::BTreeMap;

use rusqlite::params;

use super::light::{Named, lanes_text};
use super::tx::{QueueRow, Tx};
use crate::model::clock::micros;
use crate::model::{Mode, Result, Settlement};

/// The lane's only job is done and its queue keeps no finished jobs. A lane that failed before takes another way: it leaves
/// the figure of retries. ?4: when the claim was made, if it names the lane; so it holds the lane lightly if the lane's own
/// token is lower.
const DONE: &str = "DELETE FROM lane WHERE id = ?1 AND q = ?3 AND n = 0 AND flags = 0 AND retry < 0
     AND (st = 2 AND tok = ?2 OR st = 0 AND tok < ?2 AND ?4 IS NOT NULL)";
/// The same for a job of a batch. Returns its options; null: its lane had one.
const DONE_IN_BATCH: &str =
    "DELETE FROM lane WHERE id = ?1 AND q = ?3 AND n = 0 AND flags = 128 AND retry < 0
     AND (st = 2 AND tok = ?2 OR st = 0 AND tok < ?2 AND ?4 IS NOT NULL) RETURNING opts";
/// The same in `accumulate`, with items: all are closed if nothing has arrived meanwhile.
const DONE_WITH_ITEMS: &str = "DELETE FROM lane WHERE id = ?1 AND q = ?3 AND flags IN (0, 64)
     AND (st = 2 AND tok = ?2 AND next_due IS NULL OR st = 0 AND tok < ?2 AND ?4 IS NOT NULL)
     RETURNING seq IS NOT NULL, retry >= 0";
/// The lane's only job is done, had not failed before, and its queue keeps finished jobs.
const KEEP_DONE: &str = include_str!("sql/keep_done.sql");

/// Deletes the lanes of a light claim, each with its job, if they have these flags.
macro_rules! done_together {
    ($flags:literal) => {
        concat!(
            "DELETE FROM lane WHERE id IN (SELECT value FROM json_each(?1)) AND q = ?2 AND n = 0 AND st = 0 AND tok < ?3 AND ",
            $flags
        )
    };
}

const DONE_TOGETHER: &str = done_together!("flags = 0 AND retry < 0");
/// Jobs of a batch, all with these options.
const DONE_TOGETHER_IN_BATCH: &str = done_together!("flags = 128 AND opts = ?4 AND retry < 0");
/// Any jobs, of batches and with failures behind them too. Returns the options of each, and whether it failed before.
const DONE_TOGETHER_ANY: &str = done_together!("flags IN (0, 128) RETURNING opts, retry >= 0");
/// The options of the first of them, if it is of a batch: the others' are likely to be the same.
const FIRST_IN_BATCH: &str =
    "SELECT opts FROM lane WHERE id = ?1 AND flags = 128 AND opts IS NOT NULL";
/// Fewer lanes are deleted one by one.
const TOGETHER_MIN: usize = 4;

/// The done turns of a settle.
#[derive(Default)]
pub(super) struct Done {
    named: Named,
    /// The places of those that are settled already, ascending.
    together: Vec<usize>,
    /// Whether the last lane had more jobs: then the next ones are likely to have more, too.
    had_more: bool,
    /// Whether the last job was of a batch: then the next ones are likely to be, too.
    in_batch: bool,
}

impl Done {
    /// Settles done turns of lanes without a key, with one statement for each claim.
    pub(super) fn of(tx: &mut Tx<'_>, turns: &[Settlement]) -> Result<Self> {
        let mut done = Self::default();
        let mut claims: BTreeMap<(u32, i64), Vec<usize>> = BTreeMap::new();
        for (place, turn) in turns.iter().enumerate().filter(|(_, turn)| turn.is_all_done()) {
            claims.entry((turn.lane.queue, turn.token.0)).or_default().push(place);
        }
        for ((number, token), places) in claims {
            let Some(queue) = tx.queue_number(number)? else { continue };
            let is_common = queue.queue.mode == Mode::Parallel && queue.queue.retention().is_zero();
            if !is_common || places.len() < TOGETHER_MIN {
                continue;
            }
            let lanes: Vec<i64> = places.iter().map(|at| turns[*at].lane.number as i64).collect();
            if done.delete_all(tx, (number, token), &lanes)? {
                let count = lanes.len() as i64;
                let delta = tx.delta(number);
                (delta.lanes, delta.jobs) = (delta.lanes - count, delta.jobs - count);
                (delta.running, delta.processed) = (delta.running - count, delta.processed + count);
                done.together.extend(places);
            }
        }
        done.together.sort_unstable();
        Ok(done)
    }

    /// Notes that a lane did not go on.
    pub(super) fn has_ended(&mut self) {
        self.had_more = false;
    }

    /// Notes that a job has left its batch.
    pub(super) fn has_left_batch(&mut self) {
        self.in_batch = true;
    }

    /// Deletes the lanes if this claim holds them all and they have nothing else; otherwise deletes none.
    fn delete_all(
        &mut self,
        tx: &mut Tx<'_>,
        (queue, token): (u32, i64),
        lanes: &[i64],
    ) -> Result<bool> {
        for lane in lanes {
            if self.named.made_at(tx, token, *lane)?.is_none() {
                return Ok(false);
            }
        }
        let first = lanes.first().copied().unwrap_or_default();
        let in_batch = tx.first(FIRST_IN_BATCH, [first], |row| row.get::<_, String>(0))?;
        tx.execute("SAVEPOINT together", [])?;
        let are_all =
            tx.delete_together(&lanes_text(lanes), (queue, token), in_batch, lanes.len())?;
        tx.execute("RELEASE together", [])?;
        Ok(are_all)
    }

    /// Settles a done turn in one or two statements. False if it is not a common case.
    pub(super) fn settle(
        &mut self,
        tx: &mut Tx<'_>,
        place: usize,
        queue: &QueueRow,
        settlement: &Settlement,
    ) -> Result<bool> {
        if self.together.binary_search(&place).is_ok() {
            return Ok(true);
        }
        let lane = settlement.lane;
        if lane.shard != 0 {
            return Ok(false);
        }
        let id = lane.number as i64;
        let token = settlement.token.0;
        let made_at = self.named.made_at(tx, token, id)?;
        let values = params![id, token, lane.queue, made_at];
        let retention = queue.queue.retention();
        let jobs;
        if !retention.is_zero() {
            let until = tx.now.saturating_add(micros(retention));
            let of_lane = queue.queue.mode == Mode::Accumulate;
            let values = params![id, token, lane.queue, tx.now, until, of_lane, made_at];
            if tx.execute(KEEP_DONE, values)? == 0 {
                return Ok(false);
            }
            tx.execute("DELETE FROM lane WHERE id = ?1", [id])?;
            jobs = 1;
        } else if self.in_batch
            && let Some(options) =
                tx.first(DONE_IN_BATCH, values, |row| row.get::<_, Option<String>>(0))?
        {
            tx.leave_done(options.as_deref(), 1);
            jobs = 1;
        } else if !self.had_more && tx.execute(DONE, values)? == 1 {
            self.in_batch = false;
            jobs = 1;
        } else {
            if queue.queue.mode != Mode::Accumulate {
                self.had_more = true;
                return Ok(false);
            }
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            let Some((slot, retried)) = tx.first(DONE_WITH_ITEMS, values, read)? else {
                return Ok(false);
            };
            tx.delta(lane.queue).retrying -= retried;
            jobs = slot
                + tx.execute("DELETE FROM item INDEXED BY item_order WHERE lane = ?1", [id])?
                    as i64;
        }
        let delta = tx.delta(lane.queue);
        (delta.lanes, delta.jobs) = (delta.lanes - 1, delta.jobs - jobs);
        (delta.running, delta.processed) = (delta.running - 1, delta.processed + jobs);
        Ok(true)
    }
}

impl Tx<'_> {
    /// Deletes this many lanes and counts their jobs out of their batches, or does neither.
    fn delete_together(
        &mut self,
        lanes: &str,
        (queue, token): (u32, i64),
        in_batch: Option<String>,
        count: usize,
    ) -> Result<bool> {
        let values = params![lanes, queue, token];
        let gone = match &in_batch {
            None => self.execute(DONE_TOGETHER, values)?,
            Some(options) => {
                self.execute(DONE_TOGETHER_IN_BATCH, params![lanes, queue, token, options])?
            }
        };
        if self.are_all(gone, count)? {
            if in_batch.is_some() {
                self.leave_done(in_batch.as_deref(), count);
            }
            return Ok(true);
        }
        if in_batch.is_none() && self.retrying(queue)? == 0 {
            return Ok(false);
        }
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?));
        let gone: Vec<(Option<String>, i64)> = self.rows(DONE_TOGETHER_ANY, values, read)?;
        let are_all = self.are_all(gone.len(), count)?;
        if are_all {
            self.delta(queue).retrying -= gone.iter().map(|(_, retried)| retried).sum::<i64>();
            for equal in gone.chunk_by(|one, next| one.0 == next.0) {
                self.leave_done(
                    equal.first().and_then(|(options, _)| options.as_deref()),
                    equal.len(),
                );
            }
        }
        Ok(are_all)
    }

    /// Whether as many are gone; otherwise none is.
    fn are_all(&mut self, gone: usize, count: usize) -> Result<bool> {
        if gone != count {
            self.execute("ROLLBACK TO together", [])?;
        }
        Ok(gone == count)
    }
}
