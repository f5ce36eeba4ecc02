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
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// The queues of the rows that other processes wrote.
    pub queues: BTreeSet<u32>,
    /// Whether there may be more to read.
    pub more: bool,
}

/// A row: its number, its queue, and whether this process wrote it.
type Row = (u64, u32, bool);

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
            "SELECT n, q, p = {process} FROM seriatim_ring FORCE INDEX (PRIMARY) WHERE n >= {}{missing} \
             ORDER BY n LIMIT {ROWS_MAX}",
            self.last
        )
    }

    pub(super) fn read(row: &mut Columns) -> Try<Row> {
        Ok((row.int()? as u64, row.int()? as u32, row.int()? != 0))
    }

    /// Takes the rows of a poll, in order. `None`: the numbers have begun again.
    pub(super) fn heard(&mut self, rows: &[Row], now: Instant) -> Option<Heard> {
        let last = self.last;
        if last > 0 && !rows.iter().any(|(number, ..)| *number == last) {
            return None;
        }
        let mut queues = BTreeSet::new();
        for (number, queue, is_own) in rows {
            let is_new = match *number > last {
                true => self.pass(*number, now),
                false => self.missing.remove(number).is_some(),
            };
            if *number < last && is_new {
                self.late.insert(*number, now);
            }
            if is_new && !is_own {
                queues.insert(*queue);
            }
        }
        self.missing.retain(|_, since| now - *since < MISSING_KEPT);
        while self.missing.len() > MISSING_MAX {
            self.missing.pop_first();
        }
        self.late.retain(|_, found| now - *found < KEPT);
        Some(Heard { queues, more: rows.len() == ROWS_MAX })
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
        let queues: BTreeSet<u32> = rung.map(|row| row.q).collect();
        self.ring_queues(&queues).await
    }

    /// Adds a row for each of these queues.
    pub(super) async fn ring_queues(&mut self, queues: &BTreeSet<u32>) -> Try<()> {
        if queues.is_empty() {
            return Ok(());
        }
        let process = self.session.process();
        let rows: Vec<String> = queues.iter().map(|queue| format!("({queue},{process})")).collect();
        self.write(&format!("INSERT INTO seriatim_ring (q, p) VALUES {}", rows.join(","))).await
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
        assert_eq!(queues(rings.heard(&[(500, 1, false), (502, 2, false)], now)), [2]);
        assert!(rings.statement(7).contains("499,501"), "{}", rings.statement(7));
        let late = [(450, 3, false), (501, 4, false), (502, 2, false)];
        assert_eq!(queues(rings.heard(&late, now)), [3, 4], "also one from before the start");
        assert_eq!(queues(rings.heard(&late, now)), [0; 0]);
        assert_eq!(queues(rings.heard(&[(502, 2, false), (503, 5, true)], now)), [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_numbers_are_given_up_after_a_time_or_when_there_are_too_many() {
        let now = Instant::now();
        let mut rings = Rings::default();
        rings.heard(&[(3, 1, false), (5, 1, false)], now);
        assert_eq!(rings.missing.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
        rings.heard(&[(5, 1, false), (7, 1, false)], now + MISSING_KEPT);
        assert_eq!(rings.missing.keys().copied().collect::<Vec<_>>(), [6]);
        rings.heard(&[(7, 1, false), (1 << 40, 1, false)], now + MISSING_KEPT);
        assert_eq!(rings.missing.len(), MISSING_MAX);
        assert_eq!(rings.missing.keys().next_back(), Some(&((1 << 40) - 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn numbers_that_begin_again_are_noticed() {
        let now = Instant::now();
        let mut rings = Rings::after(500, now);
        assert_eq!(rings.heard(&[(450, 1, false)], now), None);
        assert_eq!(Rings::after(500, now).heard(&[], now), None);
        assert_eq!(queues(Rings::default().heard(&[], now)), [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_old_a_while_after_they_were_read_and_the_newest_never_is() {
        let now = Instant::now();
        let mut rings = Rings::after(9, now);
        assert_eq!(rings.old(now + KEPT / 2), 0);
        assert_eq!(rings.old(now + KEPT), 8);
        rings.heard(&[(9, 1, false), (12, 1, false)], now + KEPT);
        assert_eq!(rings.old(now + KEPT), 9);
        assert_eq!(rings.old(now + KEPT + KEPT / 2), 9);
        assert_eq!(rings.old(now + KEPT * 2), 11);
    }
}
