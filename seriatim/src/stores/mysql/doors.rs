//! Claims of a queue with a limit that go side by side, far below it: see [`Beside`]. A door is a row of `seriatim_share`,
//! which a claim locks until it is committed; the row of the whole queue it locks shared, so others wait for it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::definitions::Known;
use super::error::Try;
use super::pool::Answer;
use super::sharing::{WHOLE, running};
use super::sql::Columns;
use super::work::Work;
use crate::contract::Claim;
use crate::lock::lock;
use crate::model::queue::Queue;
use crate::stores::sharing::{Beside, DOORS};
use crate::stores::state::QueueRow;

/// The queues whose claims did not go side by side the last time: near their limits it is not tried.
#[derive(Default)]
pub(super) struct Near(Mutex<BTreeSet<u32>>);

impl Near {
    pub(super) fn has(&self, queue: u32) -> bool {
        lock(&self.0).contains(&queue)
    }

    pub(super) fn add(&self, queue: u32) {
        lock(&self.0).insert(queue);
    }

    /// Whether such a claim of this queue could have gone beside others. Then the queue is forgotten.
    pub(super) fn has_room(
        &self,
        queue: u32,
        definition: &Queue,
        door: Door,
        request: &Claim,
    ) -> bool {
        let has_room = door.has_room(definition, request);
        if has_room {
            lock(&self.0).remove(&queue);
        }
        has_room
    }
}

/// Whether a claim of this queue may go beside others, if there is room for it.
pub(super) fn may_go_beside(known: &Known, row: &QueueRow, request: &Claim) -> bool {
    let beside = Beside::of(&row.queue).filter(|_| !known.grouped.contains(&row.number));
    beside.is_some_and(|beside| request.lanes_max <= beside.most as usize)
}

/// The statements that take a door that nobody has, and count what runs.
pub(super) fn open_door(queue: u32) -> String {
    format!(
        "SELECT grp FROM seriatim_share WHERE q = {queue} AND grp = {WHOLE} LOCK IN SHARE MODE; \
         SELECT grp FROM seriatim_share WHERE q = {queue} AND grp < {WHOLE} LIMIT 1 FOR UPDATE SKIP LOCKED; {};",
        running(queue)
    )
}

/// What a claim with a door counted.
#[derive(Clone, Copy)]
pub(super) struct Door {
    pub running: u32,
}

impl Door {
    /// Reads the answers to [`open_door`]. `None`: there is no free one.
    pub(super) fn read(answers: &mut impl Iterator<Item = Answer>) -> Try<Option<Self>> {
        let mut next = || answers.next().and_then(|answer| answer.rows.into_iter().next());
        let (whole, door, running) = (next(), next(), next());
        if whole.is_none() || door.is_none() {
            return Ok(None);
        }
        let running = running.map(|row| Columns::of(row).maybe_int()).transpose()?.flatten();
        Ok(Some(Self { running: running.unwrap_or_default().max(0) as u32 }))
    }

    /// Whether a claim may take its lanes beside others.
    pub(super) fn has_room(self, queue: &Queue, request: &Claim) -> bool {
        let lanes = u32::try_from(request.lanes_max).unwrap_or(u32::MAX);
        Beside::of(queue).is_some_and(|beside| beside.has_room(self.running, lanes))
    }
}

/// Makes the doors of a queue, if they are missing. Its claims follow one another now.
pub(super) async fn make_doors(work: &mut Work<'_>, queue: u32) -> Try<()> {
    let known = format!("SELECT COUNT(*) FROM seriatim_share WHERE q = {queue} AND grp < {WHOLE}");
    let known = work.rows(&known).await?.into_iter().next().map(|row| Columns::of(row).int());
    if known.transpose()?.unwrap_or_default() < i64::from(DOORS) {
        let rows: Vec<String> =
            (1..=i64::from(DOORS)).map(|door| format!("({queue},{})", WHOLE - door)).collect();
        let sql = format!("INSERT IGNORE INTO seriatim_share (q, grp) VALUES {}", rows.join(","));
        work.run(&sql).await?;
    }
    Ok(())
}
