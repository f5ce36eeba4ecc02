//! Wake-ups of other processes. A call that makes a lane claimable, or claimable sooner, adds a row to `seriatim_ring`
//! in the same transaction; processes with listeners read the rows that they have not read, whatever the number of
//! queues.
//!
//! Rows appear in the order of commits, not of numbers: a number that was passed over is looked for again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::error::Try;
use super::lane_row::{LaneRow, st};
use super::sleepers::ring_two;
use super::sql::{self, Columns, list};
use super::work::{Lock, Work};

/// Most numbers that are looked for again; the lowest are given up first. Rolled back transactions leave some.
const MISSING_MAX: usize = 1_000;
/// For how long: transactions that are open for longer are not heard, and their jobs are found with [`super::quiet`].
const MISSING_KEPT: Duration = Duration::from_secs(600);
/// How many numbers are looked for that precede the newest row at the start.
const MISSING_AT_START: u64 = 100;
/// Most rows of one poll; more than the missing numbers, so that it makes progress.
const ROWS_MAX: usize = 2 * MISSING_MAX;
/// How long rows stay after the first read. A process that was away for longer notices the gap.
pub(super) const KEPT: Duration = Duration::from_secs(30);
/// Most rows deleted in one step.
const TRIM_ROWS: usize = 5_000;

/// The rows that this process has read.
#[derive(Debug, Default)]
pub(super) struct Rings {
    /// The highest number read.
    last: u64,
    /// Lower numbers that were not there, and since when.
    missing: BTreeMap<u64, Instant>,
    /// Those of them that were found, and when.
    late: BTreeMap<u64, Instant>,
    /// The highest number read at some times, the oldest first.
    marks: VecDeque<(Instant, u64)>,
}

/// The rows of a poll.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// The queues of the rows that other processes wrote for this one.
    pub queues: BTreeSet<u32>,
    /// Those of the rows that were for it and one other.
    pub named: BTreeSet<u32>,
    /// Those of the rows for two others.
    pub of_others: BTreeSet<u32>,
    /// Whether there may be more to read.
    pub more: bool,
}

/// Whom a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// For others: this process wrote it, and heard of it then.
    Own,
    All,
    /// For this process and one other.
    Named,
    Others,
}

/// A row: its number, its queue, and whom it is for.
type Row = (u64, u32, For);

impl Heard {
    fn add(&mut self, queue: u32, whom: For) {
        match whom {
            For::Own => {}
            For::All => drop(self.queues.insert(queue)),
            For::Named => {
                self.queues.insert(queue);
                self.named.insert(queue);
            }
            For::Others => drop(self.of_others.insert(queue)),
        }
    }
}

impl Rings {
    /// The statement that finds where to start.
    pub(super) const NEWEST: &str = "SELECT n FROM seriatim_ring ORDER BY n DESC LIMIT 1";

    /// Starts behind the newest row.
    pub(super) fn after(newest: u64, now: Instant) -> Self {
        let before = newest.saturating_sub(MISSING_AT_START).max(1)..newest;
        let missing = before.map(|number| (number, now)).collect();
        Self { last: newest, missing, marks: [(now, newest)].into(), ..Self::default() }
    }

    /// The statement that reads what is new. It reads the last row again, which is never deleted: if that is gone, the
    /// numbers have begun again.
    pub(super) fn statement(&self, process: u64) -> String {
        let missing = match self.missing.is_empty() {
            true => String::new(),
            false => format!(" OR n IN ({})", list(self.missing.keys().copied())),
        };
        format!(
            "SELECT n, q, CASE WHEN p = {process} THEN 0 WHEN a = 0 THEN 1 WHEN {process} IN (a, b) THEN 2 ELSE 3 END \
             FROM seriatim_ring FORCE INDEX (PRIMARY) WHERE n >= {}{missing} \
             ORDER BY n LIMIT {ROWS_MAX}",
            self.last
        )
    }

    pub(super) fn read(row: &mut Columns) -> Try<Row> {
        let (number, queue) = (row.int()? as u64, row.int()? as u32);
        let whom = match row.int()? {
            0 => For::Own,
            1 => For::All,
            2 => For::Named,
            _ => For::Others,
        };
        Ok((number, queue, whom))
    }

    /// Takes the rows of a poll, in order. `None`: the numbers have begun again.
    pub(super) fn heard(&mut self, rows: &[Row], now: Instant) -> Option<Heard> {
        let last = self.last;
        if last > 0 && !rows.iter().any(|(number, ..)| *number == last) {
            return None;
        }
        let mut heard = Heard { more: rows.len() == ROWS_MAX, ..Heard::default() };
        for (number, queue, whom) in rows {
            let is_new = match *number > last {
                true => self.pass(*number, now),
                false => self.missing.remove(number).is_some(),
            };
            if *number < last && is_new {
                self.late.insert(*number, now);
            }
            if is_new {
                heard.add(*queue, *whom);
            }
        }
        self.missing.retain(|_, since| now - *since < MISSING_KEPT);
        while self.missing.len() > MISSING_MAX {
            self.missing.pop_first();
        }
        self.late.retain(|_, found| now - *found < KEPT);
        Some(heard)
    }

    /// Notes the numbers between the last one and this.
    fn pass(&mut self, number: u64, now: Instant) -> bool {
        let first = number.saturating_sub(MISSING_MAX as u64).max(self.last + 1);
        self.missing.extend((first..number).map(|missing| (missing, now)));
        self.last = number;
        true
    }

    /// The number up to which rows were read long ago.
    pub(super) fn old(&mut self, now: Instant) -> u64 {
        let is_old = |(at, _): &(Instant, u64)| now - *at >= KEPT;
        while self.marks.get(1).is_some_and(is_old) {
            self.marks.pop_front();
        }
        let old = self.marks.front().filter(|mark| is_old(mark)).map_or(0, |(_, number)| *number);
        self.marks.push_back((now, self.last));
        // The newest row stays.
        old.min(self.last.saturating_sub(1))
    }

    /// Deletes some rows up to this number, which were read long ago; not those of open transactions. Returns whether
    /// there may be more.
    pub(super) async fn delete(&self, work: &mut Work<'_>, to: u64) -> Try<bool> {
        let oldest = format!(
            "SELECT n FROM seriatim_ring WHERE n <= {to} ORDER BY n LIMIT {TRIM_ROWS} FOR UPDATE SKIP LOCKED"
        );
        let mut found = Vec::new();
        for row in work.rows(&oldest).await? {
            found.push(Columns::of(row).int()? as u64);
        }
        let more = found.len() == TRIM_ROWS;
        found
            .retain(|number| !self.missing.contains_key(number) && !self.late.contains_key(number));
        if !found.is_empty() {
            work.write(&sql::delete("seriatim_ring", "n", &found, "")).await?;
        }
        Ok(more)
    }
}

/// When a lane can be claimed, as its row says.
fn claimable_at(row: &LaneRow) -> Option<i64> {
    match row.st {
        st::READY => Some(row.wake.map_or(row.due, |wake| wake.min(row.due))),
        st::SCHEDULED => Some(row.wake.unwrap_or(row.due)),
        _ => None,
    }
}

/// Whether a lane can be claimed now that could not before, or sooner, or by other nodes.
fn rings(before: Option<&LaneRow>, after: &LaneRow) -> bool {
    let Some(at) = claimable_at(after) else { return false };
    let Some((before, was)) = before.and_then(|row| Some((row, claimable_at(row)?))) else {
        return true;
    };
    at < was || (before.st, before.class) != (after.st, after.class)
}

impl Work<'_> {
    /// Adds a row for each queue with lanes that can be claimed sooner. Claims add none: what they promote was due.
    pub(super) async fn write_rings(&mut self, after: &[LaneRow]) -> Try<()> {
        if matches!(self.lock, Lock::Claim(_)) {
            return Ok(());
        }
        let rung = after.iter().filter(|row| rings(self.lanes.get(&row.id), row));
        // Not every process may take what is bound, or was there at a crash.
        let (free, bound): (Vec<&LaneRow>, _) =
            rung.partition(|row| row.route == 0 && row.crashes == 0);
        let [free, bound] =
            [free, bound].map(|rows| rows.iter().map(|row| row.q).collect::<BTreeSet<u32>>());
        self.ring_queues(&free - &bound, bound).await
    }

    /// Adds a row for each of these queues: for two processes that wait, or for all.
    pub(super) async fn ring_queues(&mut self, two: BTreeSet<u32>, all: BTreeSet<u32>) -> Try<()> {
        let process = self.session.process();
        // In a user's transaction, the rows that are read would be locked.
        let (two, all) = if process == 0 { (BTreeSet::new(), &two | &all) } else { (two, all) };
        if !all.is_empty() {
            let rows: Vec<String> =
                all.iter().map(|queue| format!("({queue},{process})")).collect();
            self.write(&format!("INSERT INTO seriatim_ring (q, p) VALUES {}", rows.join(",")))
                .await?;
        }
        for queue in two {
            self.write(&ring_two(queue, process)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(heard: Option<Heard>) -> Vec<u32> {
        heard.expect("the numbers go on").queues.into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_appears_after_later_ones_is_heard_once() {
        let now = Instant::now();
        let mut rings = Rings::after(500, now);
        assert_eq!(queues(rings.heard(&[(500, 1, For::All), (502, 2, For::All)], now)), [2]);
        assert!(rings.statement(7).contains("499,501"), "{}", rings.statement(7));
        let late = [(450, 3, For::All), (501, 4, For::All), (502, 2, For::All)];
        assert_eq!(queues(rings.heard(&late, now)), [3, 4], "also one from before the start");
        assert_eq!(queues(rings.heard(&late, now)), [0; 0]);
        assert_eq!(queues(rings.heard(&[(502, 2, For::All), (503, 5, For::Own)], now)), [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_for_two_others_wakes_nobody_here() {
        let now = Instant::now();
        let mut rings = Rings::after(5, now);
        let rows = [(5, 1, For::All), (6, 2, For::Named), (7, 3, For::Others), (8, 4, For::Own)];
        let heard = rings.heard(&rows, now).unwrap();
        let each = [heard.queues, heard.named, heard.of_others];
        assert_eq!(each.map(|queues| queues.into_iter().collect::<Vec<_>>()), [[2], [2], [3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_numbers_are_given_up_after_a_time_or_when_there_are_too_many() {
        let now = Instant::now();
        let mut rings = Rings::default();
        rings.heard(&[(3, 1, For::All), (5, 1, For::All)], now);
        assert_eq!(rings.missing.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
        rings.heard(&[(5, 1, For::All), (7, 1, For::All)], now + MISSING_KEPT);
        assert_eq!(rings.missing.keys().copied().collect::<Vec<_>>(), [6]);
        rings.heard(&[(7, 1, For::All), (1 << 40, 1, For::All)], now + MISSING_KEPT);
        assert_eq!(rings.missing.len(), MISSING_MAX);
        assert_eq!(rings.missing.keys().next_back(), Some(&((1 << 40) - 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn numbers_that_begin_again_are_noticed() {
        let now = Instant::now();
        let mut rings = Rings::after(500, now);
        assert_eq!(rings.heard(&[(450, 1, For::All)], now), None);
        assert_eq!(Rings::after(500, now).heard(&[], now), None);
        assert_eq!(queues(Rings::default().heard(&[], now)), [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_old_a_while_after_they_were_read_and_the_newest_never_is() {
        let now = Instant::now();
        let mut rings = Rings::after(9, now);
        assert_eq!(rings.old(now + KEPT / 2), 0);
        assert_eq!(rings.old(now + KEPT), 8);
        rings.heard(&[(9, 1, For::All), (12, 1, For::All)], now + KEPT);
        assert_eq!(rings.old(now + KEPT), 9);
        assert_eq!(rings.old(now + KEPT + KEPT / 2), 9);
        assert_eq!(rings.old(now + KEPT * 2), 11);
    }
}
