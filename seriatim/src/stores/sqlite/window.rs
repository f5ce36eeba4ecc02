//! Lanes of queues with a window: when they are due.

use rusqlite::params;

use super::lane::Work;
use super::push::arrive;
use super::row::Job;
use super::tx::{QueueRow, Tx};
use crate::model::window::open_until;
use crate::model::{Dues, Result, Timestamp, Window};

impl Tx<'_> {
    /// Opens the window of a lane that this job has opened. A second statement: lanes without a window need none.
    pub(super) fn open_window(
        &mut self,
        queue: &QueueRow,
        key: Option<&str>,
        job: &Job,
    ) -> Result<()> {
        let Some(window) = &queue.queue.window else { return Ok(()) };
        let Some(mut work) = self.lane_of_key(queue.number, key.unwrap_or_default())? else {
            return Ok(());
        };
        let now = Timestamp::from_micros(self.now);
        work.row.head.set_dues(window.open(Timestamp::from_micros(job.run_at), now));
        self.note_window(&work);
        self.save(work)
    }

    /// Notes a lane whose window may be full, to count it once for all jobs of a push.
    pub(super) fn note_window(&mut self, work: &Work) {
        if work.definition().window.is_some_and(|window| window.has_limits()) {
            self.collecting.insert(work.row.head.id);
        }
    }

    /// Makes those due that are full.
    pub(super) fn end_full_windows(&mut self) -> Result<()> {
        for lane in std::mem::take(&mut self.collecting) {
            let Some(mut work) = self.lane(lane)? else { continue };
            let before = work.row.head.dues();
            self.end_full_window(&mut work)?;
            if work.row.head.dues() != before {
                self.save(work)?;
            }
        }
        Ok(())
    }

    /// Updates the due time of an `accumulate` lane for a push.
    pub(super) fn note_arrival(&self, work: &mut Work, run_at: i64, merged: bool) {
        let Some(window) = work.definition().window else { return arrive(work, run_at, merged) };
        let (run_at, now) = (Timestamp::from_micros(run_at), Timestamp::from_micros(self.now));
        let mut dues = work.row.head.dues();
        match work.row.head.is_claimed() {
            true => window.push_in_turn(&mut dues, now),
            false => drop(window.push(&mut dues, run_at, now)),
        }
        work.row.head.set_dues(dues);
    }

    /// Makes a lane due whose window is open and full.
    pub(super) fn end_full_window(&self, work: &mut Work) -> Result<()> {
        let head = &work.row.head;
        let now = Timestamp::from_micros(self.now);
        let Some(window) = work.definition().window.filter(Window::has_limits) else {
            return Ok(());
        };
        if head.is_claimed() || open_until(&head.dues(), now).is_none() {
            return Ok(());
        }
        let jobs = head.items + i64::from(work.row.slot.is_some());
        let bytes = match window.max_bytes {
            Some(_) => self.waiting_bytes(work)?,
            None => 0,
        };
        if window.is_full(jobs as u64, bytes) {
            work.row.head.set_dues(Dues { due: now, next: None });
        }
        Ok(())
    }

    /// The bytes of the payloads that wait in an unclaimed lane.
    fn waiting_bytes(&self, work: &Work) -> Result<u64> {
        let of_slot = match &work.row.slot {
            None => 0,
            Some(slot) => match &slot.payload {
                Some(payload) => payload.len() as i64,
                None => {
                    let sql = "SELECT length(payload) FROM body WHERE seq = ?1";
                    self.first(sql, [slot.seq], |row| row.get(0))?.unwrap_or_default()
                }
            },
        };
        let sql = "SELECT sum(coalesce(length(payload), (SELECT length(b.payload) FROM body b WHERE b.seq = item.seq)))
                   FROM item INDEXED BY item_order WHERE lane = ?1 AND gen >= ?2";
        let place = params![work.row.head.id, work.row.head.open];
        let of_items: Option<i64> = self.first(sql, place, |row| row.get(0))?.flatten();
        Ok((of_slot + of_items.unwrap_or_default()) as u64)
    }
}
