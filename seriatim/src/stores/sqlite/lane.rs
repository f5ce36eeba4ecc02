//! Lanes: loading, positioning, and moving jobs in and out.
//!
//! Invariants. In an unclaimed lane every open job has `gen = lane.open` (future ones of `exclusive`: `LATER`), and in
//! `parallel`, `fifo` and `exclusive` the slot has the job that the next claim takes first. In a claimed lane closed
//! jobs have `gen < lane.open`.

use rusqlite::params;

use super::row::{
    HEAD_COLUMNS, JOB_COLUMNS, Job, LATER, LaneRow, Place, flag, lane_columns, state,
};
use super::tx::{QueueRow, Tx};
use crate::contract::errors::no_queue;
use crate::model::{Mode, Queue, Result};

const SAVE: &str = "UPDATE lane SET st = ?2, class = ?3, prio = ?4, due = ?5, wake = ?6, tok = ?7, open = ?8, n = ?9,
 flags = ?10, retry = ?11, crashes = ?12, error = ?13, next_due = ?14, route = ?15, claimed_at = ?16,
 beat_at = ?17 WHERE id = ?1";
/// Its values; the same ones come first in [`SAVE_WITH_SLOT`].
const SAVED: usize = 17;

const SAVE_WITH_SLOT: &str = include_str!("sql/save_lane.sql");

/// A lane that an operation works on.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub row: LaneRow,
    pub queue: QueueRow,
    /// Whether a light claim holds it, so that its row does not show the claim.
    pub is_light: bool,
    /// Its stored place in `ready`.
    placed: Option<Place>,
    /// Whether it is stored with a failure behind it.
    retried: bool,
    /// Whether the slot differs from the stored one.
    slot_changed: bool,
}

/// Which jobs of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    Failed,
}

impl Tx<'_> {
    /// Loads a lane; if a light claim holds it, its row shows the claim from now on.
    pub(super) fn lane(&mut self, id: i64) -> Result<Option<Work>> {
        let work = self.lane_to_settle(id)?;
        self.unfolded(work)
    }

    /// Loads a lane that the caller will store or delete: a light claim is not unfolded.
    pub(super) fn lane_to_settle(&mut self, id: i64) -> Result<Option<Work>> {
        let sql = format!("SELECT {} FROM lane WHERE id = ?1", lane_columns());
        let row = self.first(&sql, [id], LaneRow::read)?;
        row.map(|row| self.work(row)).transpose()
    }

    pub(super) fn lane_of_key(&mut self, queue: u32, key: &str) -> Result<Option<Work>> {
        let sql = format!("SELECT {} FROM lane WHERE q = ?1 AND key = ?2", lane_columns());
        let row = self.first(&sql, params![queue, key], LaneRow::read)?;
        let work = row.map(|row| self.work(row)).transpose()?;
        self.unfolded(work)
    }

    fn unfolded(&self, mut work: Option<Work>) -> Result<Option<Work>> {
        if let Some(work) = &mut work
            && !self.is_reader
        {
            self.unfold(work)?;
        }
        Ok(work)
    }

    fn work(&mut self, row: LaneRow) -> Result<Work> {
        let queue = self.queue_number(row.head.queue)?.ok_or_else(|| no_queue("?"))?;
        let mut work = Work::new(row, queue);
        if let (Mode::Accumulate, Some(slot)) = (work.definition().mode, &mut work.row.slot) {
            // In `accumulate` the row's retry state is the lane's.
            (slot.retry, slot.crashes, slot.error) = (-1, 0, None);
        }
        if work.row.head.st == state::READY && !work.row.head.in_ready {
            self.show_light(&mut work)?;
        }
        Ok(work)
    }

    /// A new, empty lane; `save` stores it.
    pub(super) fn open_lane(
        &mut self,
        queue: &QueueRow,
        key: Option<&str>,
        id: i64,
        job: &Job,
    ) -> Result<Work> {
        let sql = "INSERT INTO lane (id, q, key, st, class, prio, due, route, tok) VALUES (?1, ?2, ?3, 1, 0, ?4, ?5, ?6, ?7)";
        // A requeued job's lane has its old number, which earlier claims may still name.
        let token = self.last_token();
        self.execute(sql, params![id, queue.number, key, job.prio, job.run_at, job.route, token])?;
        self.delta(queue.number).lanes += 1;
        let sql = format!("SELECT {HEAD_COLUMNS}, NULL FROM lane WHERE id = ?1");
        let head = self.first(&sql, [id], super::row::Head::read)?;
        let row = head.map(|head| LaneRow { head, slot: None });
        let row = row.ok_or_else(|| no_queue(&queue.name))?;
        Ok(Work::new(row, queue.clone()))
    }

    /// Stores a lane at its current position, or deletes it if it is empty.
    pub(super) fn save(&mut self, mut work: Work) -> Result<()> {
        if work.is_empty() {
            self.execute("DELETE FROM lane WHERE id = ?1", [work.row.head.id])?;
            self.move_to(&work, None)?;
            let delta = self.delta(work.queue.number);
            delta.lanes -= 1;
            delta.retrying -= i64::from(work.retried);
            return Ok(());
        }
        self.position(&mut work)?;
        if !work.row.head.is_claimed() {
            self.ring(&work.queue.name);
        }
        self.write(work)
    }

    /// Stores a lane as it is.
    pub(super) fn write(&mut self, work: Work) -> Result<()> {
        self.move_to(&work, work.row.head.place())?;
        let retries = work.row.head.retry >= 0;
        if retries != work.retried {
            let change = i64::from(retries) - i64::from(work.retried);
            self.delta(work.queue.number).retrying += change;
        }
        self.write_row(&work)
    }

    /// Moves a lane to its place in `ready`, or out of it.
    fn move_to(&self, work: &Work, place: Option<Place>) -> Result<()> {
        if work.placed == place {
            return Ok(());
        }
        let (queue, id) = (work.row.head.queue, work.row.head.id);
        if let Some((class, prio, due)) = work.placed {
            let sql = "DELETE FROM ready WHERE q = ?1 AND class = ?2 AND prio = ?3 AND due = ?4 AND id = ?5";
            self.execute(sql, params![queue, class, prio, due, id])?;
        }
        if let Some((class, prio, due)) = place {
            let sql = "INSERT INTO ready VALUES (?1, ?2, ?3, ?4, ?5)";
            self.execute(sql, params![queue, class, prio, due, id])?;
        }
        Ok(())
    }

    fn write_row(&self, work: &Work) -> Result<()> {
        let h = &work.row.head;
        let j = work.row.slot.as_ref();
        let values = params![
            h.id,
            h.st,
            h.class,
            h.prio,
            h.due,
            h.wake,
            h.token,
            h.open,
            h.items,
            h.flags,
            h.retry,
            h.crashes,
            h.error,
            h.next_due,
            h.route,
            h.claimed_at,
            h.beat_at,
            j.map(|j| j.seq),
            j.map(|j| j.gen_),
            j.map(|j| j.created),
            j.map(|j| j.score),
            j.map(|j| j.prio),
            j.map(|j| j.run_at),
            j.map(|j| j.attempts),
            j.map(|j| j.started),
            j.map(|j| j.flagged),
            j.map(|j| j.expires),
            j.map(|j| j.route),
            j.map(|j| &j.task),
            j.map(|j| &j.digest),
            j.map(|j| &j.options),
            j.map(|j| &j.aliases),
            j.map(|j| &j.payload),
        ];
        match work.slot_changed {
            true => self.execute(SAVE_WITH_SLOT, values).map(drop),
            false => self.execute(SAVE, &values[..SAVED]).map(drop),
        }
    }

    /// Computes the lane's position and puts its first job into the slot.
    pub(super) fn position(&mut self, work: &mut Work) -> Result<()> {
        let head = &mut work.row.head;
        head.wake = None;
        if head.is_claimed() {
            return Ok(());
        }
        let next_later = self.seat_first(work)?;
        let now = self.now;
        let mode = work.queue.queue.mode;
        let head = &mut work.row.head;
        if let (true, Some(slot)) = (mode != Mode::Accumulate, &work.row.slot) {
            (head.prio, head.due) = (slot.prio, slot.run_at);
        }
        if head.flags & (flag::HELD | flag::PAUSED) != 0 {
            head.st = state::PARKED;
            return Ok(());
        }
        let route = match (&work.row.slot, mode.route_belongs_to_lane()) {
            (Some(slot), false) => slot.route,
            _ => head.route,
        };
        head.class = route * 2 + i64::from(head.crashes > 0);
        let is_due = head.due <= now;
        head.st = if is_due { state::READY } else { state::SCHEDULED };
        head.wake = if is_due { next_later } else { Some(head.due) };
        Ok(())
    }

    /// Puts the job that the next claim takes first into the slot. Returns when the next other job of an `exclusive`
    /// lane is due.
    fn seat_first(&mut self, work: &mut Work) -> Result<Option<i64>> {
        match work.queue.queue.mode {
            // In `parallel`, a lane has more if dead jobs came back that have a key: their queue was a keyed one.
            Mode::Fifo | Mode::Parallel if work.row.slot.is_none() => {
                if work.row.head.items > 0 {
                    self.take_first(work)?;
                }
                Ok(None)
            }
            Mode::Parallel | Mode::Accumulate => Ok(None),
            Mode::Fifo => {
                if work.row.head.items > 0
                    && let Some(first) = self.first_item(work, work.row.head.open)?
                    && work.row.slot.as_ref().is_none_or(|slot| first.rank() < slot.rank())
                {
                    self.seat(work, first)?;
                }
                Ok(None)
            }
            Mode::Exclusive => self.seat_best(work),
        }
    }

    fn seat_best(&mut self, work: &mut Work) -> Result<Option<i64>> {
        if work.row.head.items > 0 {
            self.promote_items(work)?;
            let due = self.first_item(work, work.row.head.open)?;
            let later = self.first_item(work, LATER)?;
            let now = self.now;
            let urgency = |job: &Job| (job.run_at > now, job.prio, job.run_at, job.seq);
            let soonness = |job: &Job| (job.run_at, job.seq);
            let slot = work.row.slot.as_ref();
            let slot_is_due = slot.is_some_and(|slot| slot.run_at <= now);
            let better = match (due, later) {
                (Some(due), _) => {
                    Some(due).filter(|due| slot.is_none_or(|s| urgency(due) < urgency(s)))
                }
                (None, Some(later)) if !slot_is_due => {
                    Some(later).filter(|later| slot.is_none_or(|s| soonness(later) < soonness(s)))
                }
                _ => None,
            };
            if let Some(better) = better {
                self.seat(work, better)?;
            }
        }
        if work.row.head.items == 0 {
            return Ok(None);
        }
        Ok(self.first_item(work, LATER)?.map(|job| job.run_at))
    }

    /// In `exclusive`, moves items that are now due to the open ones, as many as the operation still may. If some are
    /// left, the lane's `wake` has come already.
    fn promote_items(&mut self, work: &Work) -> Result<()> {
        while self.promotable > 0
            && let Some(job) = self.first_item(work, LATER)?.filter(|job| job.run_at <= self.now)
        {
            self.make_due(work, job)?;
            self.promotable -= 1;
        }
        Ok(())
    }

    /// Moves an item of `exclusive` to the due ones, in their order.
    pub(super) fn make_due(&self, work: &Work, mut job: Job) -> Result<()> {
        job.gen_ = work.row.head.open;
        let order = job.order(&work.queue.queue);
        let sql = "UPDATE item SET gen = ?2, ord = ?3, run_at = ?4 WHERE seq = ?1";
        self.execute(sql, params![job.seq, job.gen_, order, job.run_at]).map(drop)
    }

    /// Moves the first item into the free slot.
    fn take_first(&mut self, work: &mut Work) -> Result<()> {
        let sql = format!(
            "DELETE FROM item WHERE seq = (SELECT seq FROM item INDEXED BY item_order WHERE lane = ?1 AND gen = ?2 ORDER BY ord LIMIT 1)
             RETURNING {JOB_COLUMNS}"
        );
        let place = params![work.row.head.id, work.row.head.open];
        if let Some(first) = self.first(&sql, place, |row| Job::read(row, 0))? {
            work.row.head.items -= 1;
            work.set_slot(first);
        }
        Ok(())
    }

    pub(super) fn first_item(&self, work: &Work, generation: i64) -> Result<Option<Job>> {
        let sql = format!(
            "SELECT {JOB_COLUMNS} FROM item INDEXED BY item_order WHERE lane = ?1 AND gen = ?2 ORDER BY ord LIMIT 1"
        );
        self.first(&sql, params![work.row.head.id, generation], |row| Job::read(row, 0))
    }

    /// Moves an item into the slot, and the slot's job to the items.
    fn seat(&mut self, work: &mut Work, item: Job) -> Result<()> {
        self.execute("DELETE FROM item WHERE seq = ?1", [item.seq])?;
        work.row.head.items -= 1;
        if let Some(old) = work.unseat() {
            self.add_item(work, old)?;
        }
        work.set_slot(item);
        Ok(())
    }

    /// Adds an open job to the items.
    pub(super) fn add_item(&mut self, work: &mut Work, mut job: Job) -> Result<()> {
        job.gen_ = work.generation(&job, self.now);
        work.note(&job);
        let order = job.order(&work.queue.queue);
        self.insert_item(work.row.head.id, &job, &order)?;
        work.row.head.items += 1;
        Ok(())
    }

    fn insert_item(&self, lane: i64, j: &Job, order: &[u8]) -> Result<()> {
        let sql = "INSERT INTO item (seq, lane, gen, ord, created, score, jprio, run_at, attempts, started, flagged, expires,
                   jroute, retry, crashes, error, task, digest, opts, aliases, payload)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";
        self.execute(
            sql,
            params![
                j.seq, lane, j.gen_, order, j.created, j.score, j.prio, j.run_at, j.attempts,
                j.started, j.flagged, j.expires, j.route, j.retry, j.crashes, j.error, j.task,
                j.digest, j.options, j.aliases, j.payload
            ],
        )
        .map(drop)
    }

    /// Adds a job to an existing lane without other changes: it waits behind the other jobs, or until the running turn
    /// ends. Returns the job if it may change more.
    pub(super) fn add_behind(&mut self, work: &mut Work, job: Job) -> Result<Option<Job>> {
        let now = self.now;
        let head = &work.row.head;
        let Some(slot) = &work.row.slot else { return Ok(Some(job)) };
        let stays = match work.queue.queue.mode {
            _ if head.is_claimed() => true,
            Mode::Parallel => false,
            Mode::Accumulate => true,
            Mode::Fifo => slot.rank() < job.rank(),
            Mode::Exclusive => {
                let urgency = |job: &Job| (job.prio, job.run_at, job.seq);
                // A job that became due meanwhile may have to take the slot.
                let is_settled = head.st == state::READY && head.wake.is_none_or(|wake| wake > now);
                is_settled
                    && slot.run_at <= now
                    && job.run_at <= now
                    && urgency(slot) < urgency(&job)
            }
        };
        if !stays {
            return Ok(Some(job));
        }
        self.add_item(work, job)?;
        Ok(None)
    }

    /// Puts an open job into a lane: into the slot if that is free, else among the items.
    pub(super) fn put(&mut self, work: &mut Work, job: Job) -> Result<()> {
        if work.row.slot.is_none() && !work.row.head.is_claimed() {
            work.set_slot(job);
            return Ok(());
        }
        self.add_item(work, job)
    }

    /// Removes the open job with this digest.
    pub(super) fn take_equal(&mut self, work: &mut Work, job: &Job) -> Result<Option<Job>> {
        let Some(digest) = job.digest.filter(|_| work.queue.queue.merges()) else {
            return Ok(None);
        };
        if work.row.open_slot().is_some_and(|slot| slot.digest == Some(digest)) {
            return Ok(work.unseat());
        }
        if work.row.head.items == 0 {
            return Ok(None);
        }
        let sql = format!(
            "DELETE FROM item INDEXED BY item_order WHERE lane = ?1 AND gen = ?2 AND ord = ?3 RETURNING {JOB_COLUMNS}"
        );
        let place = params![work.row.head.id, work.row.head.open, digest];
        let taken = self.first(&sql, place, |row| Job::read(row, 0))?;
        work.row.head.items -= i64::from(taken.is_some());
        Ok(taken)
    }

    /// Removes the open job with this number.
    pub(super) fn take_open(&mut self, work: &mut Work, seq: i64) -> Result<Option<Job>> {
        if work.row.open_slot().is_some_and(|slot| slot.seq == seq) {
            return Ok(work.unseat());
        }
        let sql = format!(
            "DELETE FROM item WHERE seq = ?1 AND lane = ?2 AND gen >= ?3 RETURNING {JOB_COLUMNS}"
        );
        let place = params![seq, work.row.head.id, work.row.head.open];
        let taken = self.first(&sql, place, |row| Job::read(row, 0))?;
        work.row.head.items -= i64::from(taken.is_some());
        Ok(taken)
    }

    /// All open items in order.
    pub(super) fn open_items(&self, work: &Work) -> Result<Vec<Job>> {
        let sql = format!(
            "SELECT {JOB_COLUMNS} FROM item INDEXED BY item_order WHERE lane = ?1 AND gen >= ?2 ORDER BY gen, ord"
        );
        self.rows(&sql, params![work.row.head.id, work.row.head.open], |row| Job::read(row, 0))
    }

    /// Removes all open jobs from a lane.
    pub(super) fn take_all_open(&mut self, work: &mut Work) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        if work.row.open_slot().is_some() {
            jobs.extend(work.unseat());
        }
        if work.row.head.items > 0 {
            let items = self.open_items(work)?;
            let sql = "DELETE FROM item INDEXED BY item_order WHERE lane = ?1 AND gen >= ?2";
            self.execute(sql, params![work.row.head.id, work.row.head.open])?;
            work.row.head.items -= items.len() as i64;
            jobs.extend(items);
        }
        Ok(jobs)
    }

    /// Removes open jobs from a lane, in order, at most `most`.
    pub(super) fn take_some_open(
        &mut self,
        work: &mut Work,
        which: Which,
        most: usize,
    ) -> Result<Vec<Job>> {
        let only_failed = which == Which::Failed;
        let mut jobs = Vec::new();
        if work.row.open_slot().is_some() && !(only_failed && work.row.head.retry < 0) {
            jobs.extend(work.unseat());
        }
        if work.row.head.items == 0 {
            return Ok(jobs);
        }
        let sql = format!(
            "SELECT {JOB_COLUMNS} FROM item INDEXED BY item_order WHERE lane = ?1 AND gen >= ?2 AND (?3 = 0 OR retry >= 0) ORDER BY gen, ord LIMIT ?4"
        );
        let head = &work.row.head;
        let values =
            params![head.id, head.open, only_failed, most.saturating_sub(jobs.len()) as i64];
        let items = self.rows(&sql, values, |row| Job::read(row, 0))?;
        for item in &items {
            self.execute("DELETE FROM item WHERE seq = ?1", [item.seq])?;
        }
        work.row.head.items -= items.len() as i64;
        jobs.extend(items);
        Ok(jobs)
    }

    /// The lowest priority number of the open jobs of an `accumulate` lane.
    pub(super) fn soonest_priority(&self, work: &Work) -> Result<Option<i64>> {
        let slot = work.row.open_slot().map(|job| job.prio);
        if work.row.head.items == 0 {
            return Ok(slot);
        }
        let sql = "SELECT min(jprio) FROM item INDEXED BY item_order WHERE lane = ?1 AND gen >= ?2";
        let place = params![work.row.head.id, work.row.head.open];
        let items: Option<i64> = self.first(sql, place, |row| row.get(0))?.flatten();
        Ok(slot.into_iter().chain(items).min())
    }
}

impl Work {
    fn new(row: LaneRow, queue: QueueRow) -> Self {
        let placed = row.head.place().filter(|_| row.head.in_ready);
        let retried = row.head.retry >= 0;
        Self { row, queue, is_light: false, placed, retried, slot_changed: false }
    }

    /// Whether the lane has no claim and no jobs.
    pub(super) fn is_empty(&self) -> bool {
        let head = &self.row.head;
        !head.is_claimed() && self.row.slot.is_none() && head.items == 0
    }

    pub(super) fn definition(&self) -> &Queue {
        &self.queue.queue
    }

    /// The generation of an open job; future jobs of `exclusive` have their own.
    fn generation(&self, job: &Job, now: i64) -> i64 {
        match self.queue.queue.mode {
            Mode::Exclusive if job.run_at > now => LATER,
            _ => self.row.head.open,
        }
    }

    /// Sets the lane's flags for a job in it.
    fn note(&mut self, job: &Job) {
        if job.payload.is_none() {
            self.row.head.flags |= flag::BODIES;
        }
        if job.may_have_batch() {
            self.row.head.flags |= flag::BATCH;
        }
        if job.aliases.is_some() {
            self.row.head.flags |= flag::ALIASES;
        }
    }

    /// Removes the job from the slot, with the retry state that the lane's row held for it.
    pub(super) fn unseat(&mut self) -> Option<Job> {
        self.slot_changed = true;
        let mut job = self.row.slot.take()?;
        let head = &mut self.row.head;
        if self.queue.queue.mode != Mode::Accumulate {
            (job.retry, job.crashes, job.error) = (head.retry, head.crashes, head.error.take());
            (head.retry, head.crashes) = (-1, 0);
        }
        Some(job)
    }

    pub(super) fn set_slot(&mut self, mut job: Job) {
        self.slot_changed = true;
        self.note(&job);
        job.gen_ = self.row.head.open;
        let head = &mut self.row.head;
        if self.queue.queue.mode != Mode::Accumulate {
            (head.retry, head.crashes, head.error) = (job.retry, job.crashes, job.error.clone());
        }
        self.row.slot = Some(job);
    }

    /// The job in the slot, to be changed.
    pub(super) fn slot_mut(&mut self) -> Option<&mut Job> {
        self.slot_changed = true;
        self.row.slot.as_mut()
    }
}
