//! Claiming lanes.
//!
//! A claim reads its lanes in one scan of `ready`, takes them out, and is stored as one row for all of them. Only a lane
//! whose row must say which jobs are taken, or that has a lease of its own, is written (`light.rs` has the others).

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Row, params};

use super::Sqlite;
use super::flush::Flush;
use super::lane::Work;
use super::light::lanes_text;
use super::line::Rank;
use super::row::{Job, Sql, TAKEN, flag};
use super::tx::{QueueRow, Tx};
use crate::contract::errors::{check_ticket, node_gone, undeclared};
use crate::contract::{Claim, Claimed, Consumer, GiveUp, Lease, Settle, Settled};
use crate::model::clock::micros;
use crate::model::limits::{
    CLAIM_LANES_MAX, PROMOTE_LANES_MAX, SERIES_BYTES_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX,
};
use crate::model::{LaneId, Mode, NodeId, Payload, Result, Timestamp, Token, Turn, TurnJob};
use crate::stores::options::ReadOptions;
use crate::stores::room::Room;
use crate::stores::route::first_class;
use crate::stores::state::rank::score_rank;

/// If a lane has more items than this, the turn is chosen before payloads are read.
const ITEMS_READ_AT_ONCE: i64 = 256;

/// The columns of a job that its holder sees, in the order of [`OpenJob::read`].
const WAITING_COLUMNS: &str = "seq, created, score, jprio, run_at, attempts, task, opts, payload";

/// The part of a waiting job that a claim needs.
#[derive(Clone, Debug)]
struct OpenJob {
    seq: i64,
    created: i64,
    score: f64,
    prio: i64,
    run_at: i64,
    attempts: i64,
    task: Option<Arc<str>>,
    options: Option<String>,
    /// `None` if it is too large for the row.
    payload: Option<Vec<u8>>,
}

impl OpenJob {
    fn read(row: &Row<'_>, at: usize) -> Sql<Self> {
        Ok(Self {
            seq: row.get(at)?,
            created: row.get(at + 1)?,
            score: row.get(at + 2)?,
            prio: row.get(at + 3)?,
            run_at: row.get(at + 4)?,
            attempts: row.get(at + 5)?,
            task: row.get(at + 6)?,
            options: row.get(at + 7)?,
            payload: row.get(at + 8)?,
        })
    }

    fn of(job: &Job) -> Self {
        Self {
            seq: job.seq,
            created: job.created,
            score: job.score,
            prio: job.prio,
            run_at: job.run_at,
            attempts: job.attempts,
            task: job.task.clone(),
            options: job.options.clone(),
            payload: job.payload.clone(),
        }
    }

    /// Whether it may be handed over with others, one after the other.
    fn may_join(&self, read: &mut ReadOptions) -> bool {
        let are_plain = |text: &str| read.options(text).is_ok_and(|o| o.are_plain());
        self.attempts == 0 && self.options.as_deref().is_none_or(are_plain)
    }

    /// (score, arrival): the order of execution.
    fn rank(&self) -> (i64, i64) {
        (score_rank(self.score), self.seq)
    }

    fn turn_job(self, queue: u32, payload: Vec<u8>, read: &mut ReadOptions) -> TurnJob {
        TurnJob {
            id: super::push::job_id(self.created, queue, self.seq),
            options: self.options.and_then(|text| read.options(&text).ok()),
            payload: Payload::from_bytes(payload),
            task: self.task,
            score: self.score,
            priority: self.prio as u16,
            run_at: Timestamp::from_micros(self.run_at),
            attempt: self.attempts as u32 + 1,
        }
    }
}

/// A claimable lane.
#[derive(Debug)]
pub(super) struct Candidate {
    id: i64,
    key: Option<Arc<str>>,
    class: i64,
    prio: i64,
    due: i64,
    wake: Option<i64>,
    open: i64,
    items: i64,
    retry: i64,
    crashes: i64,
    error: Option<Arc<str>>,
    slot: Option<OpenJob>,
}

/// Before all places in a class.
pub(super) const FIRST: (i64, i64, i64) = (-1, i64::MIN, 0);

/// The columns of `sql/best_lanes.sql` before those of the slot.
const CANDIDATE_COUNT: usize = 11;

impl Candidate {
    pub(super) fn of(work: &Work) -> Self {
        let head = &work.row.head;
        Self {
            id: head.id,
            key: head.key.clone(),
            class: head.class,
            prio: head.prio,
            due: head.due,
            wake: head.wake,
            open: head.open,
            items: head.items,
            retry: head.retry,
            crashes: head.crashes,
            error: head.error.clone(),
            slot: work.row.slot.as_ref().map(OpenJob::of),
        }
    }

    /// Its place among the ready lanes of its class.
    pub(super) fn place(&self) -> (i64, i64, i64) {
        (self.prio, self.due, self.id)
    }

    fn read(row: &Row<'_>) -> Sql<Self> {
        let slot = match row.get_ref(CANDIDATE_COUNT)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(OpenJob::read(row, CANDIDATE_COUNT)?),
        };
        Ok(Self {
            id: row.get(0)?,
            key: row.get(1)?,
            class: row.get(2)?,
            prio: row.get(3)?,
            due: row.get(4)?,
            wake: row.get(5)?,
            open: row.get(6)?,
            items: row.get(7)?,
            retry: row.get(8)?,
            crashes: row.get(9)?,
            error: row.get(10)?,
            slot,
        })
    }
}

/// How a claim updates the row of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    /// The slot's job is taken, perhaps with items that are marked individually.
    Slot,
    /// All jobs are taken: the lane's boundary moves.
    All,
    /// Only items are taken, marked individually; the slot's job is not.
    Items,
}

impl Close {
    fn statement(self) -> &'static str {
        match self {
            Self::Slot => {
                "UPDATE lane SET st = 2, wake = NULL, tok = ?1, gen = -1, claimed_at = ?2, beat_at = ?2,
                 next_due = ?4, flags = flags | ?5 WHERE id = ?3"
            }
            Self::All => {
                "UPDATE lane SET st = 2, wake = NULL, tok = ?1, open = ?1, claimed_at = ?2, beat_at = ?2,
                 next_due = ?4, flags = flags | ?5 WHERE id = ?3"
            }
            Self::Items => {
                "UPDATE lane SET st = 2, wake = NULL, tok = ?1, claimed_at = ?2, beat_at = ?2,
                 next_due = ?4, flags = flags | ?5 WHERE id = ?3"
            }
        }
    }
}

/// The jobs that a turn would take from a lane.
struct Chosen {
    jobs: Vec<OpenJob>,
    close: Close,
    /// Items to mark individually when they are taken.
    marked: Vec<i64>,
    leaves_some: bool,
}

impl Chosen {
    /// The slot's job alone.
    fn slot(slot: OpenJob, close: Close) -> Self {
        Self { jobs: vec![slot], close, marked: Vec::new(), leaves_some: false }
    }
}

/// The jobs that a turn takes from a lane.
pub(super) struct Taken {
    lane: Candidate,
    jobs: Vec<TurnJob>,
    pub close: Close,
    pub leaves_some: bool,
    pub ttl: i64,
    /// The flags that the lane gets.
    pub flags: i64,
}

impl Taken {
    /// Whether the row of the claim says all: which jobs are taken follows from the mode.
    fn is_light(&self) -> bool {
        let follows = self.close == Close::All || self.close == Close::Slot && self.flags == 0;
        follows && !self.leaves_some && self.lane.wake.is_none()
    }
}

/// One row of `claim`: lanes with the same token and the same ttl.
pub(super) struct ClaimRow {
    pub token: i64,
    pub ttl: i64,
    pub lanes: Vec<i64>,
}

impl ClaimRow {
    /// The row for a lane with this ttl. An own lease is extended per lane, so each lane needs its own row.
    pub(super) fn of(
        rows: &mut Vec<Self>,
        own: bool,
        ttl: i64,
        token: impl FnOnce() -> i64,
    ) -> &mut Self {
        let known = rows.iter().position(|row| !own && row.ttl == ttl);
        let place = known.unwrap_or_else(|| {
            rows.push(Self { token: token(), ttl, lanes: Vec::new() });
            rows.len() - 1
        });
        &mut rows[place]
    }

    pub(super) fn add(&mut self, lane: i64) {
        self.lanes.push(lane);
    }

    pub(super) fn count(&self) -> i64 {
        self.lanes.len() as i64
    }
}

#[async_trait]
impl Consumer for Sqlite {
    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let flush = match request.lease {
            // The holder ends with this machine.
            Lease::Node { .. } => Flush::Later,
            Lease::Own { .. } => Flush::Now,
        };
        let body = move |tx: &mut Tx<'_>| tx.at(request.now).claim(&request);
        self.write.call(Rank::Usual, 0, flush, body).await
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        request.validate()?;
        self.change_first(move |tx| tx.at(request.now).settle(&request)).await
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.change(move |tx| tx.at(None).give_up(&request)).await
    }
}

impl Tx<'_> {
    pub(super) fn claim(&mut self, request: &Claim) -> Result<Claimed> {
        self.check_node(&request.node, request.ticket)?;
        let queue = self.queue_to_claim(request)?;
        if queue.paused {
            return Ok(Claimed::default());
        }
        self.promote(&queue)?;
        if self.is_shared_out(&queue)? {
            return self.claim_in_rounds(&queue, request);
        }
        let classes = self.classes(queue.number, 0, request)?;
        let lanes = self.best_lanes(queue.number, request, &classes)?;
        let mut taken = Vec::with_capacity(lanes.len());
        let mut room = Room::of(request);
        for lane in lanes {
            let Some(turn) = self.choose(&queue, request, lane, &mut room)? else { break };
            taken.push(turn);
        }
        let turns = self.close_lanes(&queue, request, taken)?;
        self.delta(queue.number).running += turns.len() as i64;
        let next_due = match self.any_ready(queue.number, &classes)? {
            true => Some(self.now),
            false => self.first_wake(queue.number)?,
        };
        let next_due = next_due.map(Timestamp::from_micros);
        Ok(Claimed { turns, next_due, cut: room.is_full, unanswered: false })
    }

    pub(super) fn queue_to_claim(&mut self, request: &Claim) -> Result<QueueRow> {
        let queue = self.known_queue(&request.queue)?;
        if request.declared && !queue.declared {
            return Err(undeclared(&request.queue));
        }
        queue.queue.check_lease(request.lease.ttl()).map(|()| queue)
    }

    /// Refuses a node that has sent no heartbeat or is dead, and a ticket that was given up.
    pub(super) fn check_node(&self, node: &NodeId, ticket: u64) -> Result<()> {
        let sql = "SELECT given_up FROM node WHERE id = ?1 AND dead_at IS NULL";
        if let Some(given_up) = self.first(sql, [&*node.0], |row| row.get::<_, i64>(0))? {
            return check_ticket(ticket, given_up as u64);
        }
        Err(node_gone(node))
    }

    /// Computes the position of lanes whose `wake` has come.
    fn promote(&mut self, queue: &QueueRow) -> Result<()> {
        if self.first_wake(queue.number)?.is_none_or(|wake| wake > self.now) {
            return Ok(());
        }
        let due = params![queue.number, self.now, PROMOTE_LANES_MAX as i64];
        if queue.queue.mode != Mode::Exclusive {
            // Its position is already in its row.
            self.execute(include_str!("sql/line_up.sql"), due)?;
            return self.execute(include_str!("sql/promote.sql"), due).map(drop);
        }
        let sql = "SELECT id FROM lane INDEXED BY lane_wake WHERE q = ?1 AND wake IS NOT NULL AND wake <= ?2
                   ORDER BY wake, id LIMIT ?3";
        for id in self.rows(sql, due, |row| row.get(0))? {
            if self.promotable == 0 {
                break;
            }
            if let Some(work) = self.lane(id)? {
                self.save(work)?;
            }
        }
        Ok(())
    }

    pub(super) fn first_wake(&self, queue: u32) -> Result<Option<i64>> {
        let sql = "SELECT wake FROM lane INDEXED BY lane_wake WHERE q = ?1 AND wake IS NOT NULL ORDER BY wake LIMIT 1";
        self.first(sql, [queue], |row| row.get(0))
    }

    /// The classes of ready lanes of a group that the caller may take. It does not look at those of others: they may be
    /// many.
    pub(super) fn classes(&mut self, queue: u32, group: u64, request: &Claim) -> Result<Vec<i64>> {
        let first = first_class(group) as i64;
        let bounds = self.bounds(request)?.into_iter();
        let mut classes = Vec::new();
        for class in bounds.flat_map(|bound| [first + bound * 2, first + bound * 2 + 1]) {
            if self.any_ready(queue, &[class])? {
                classes.push(class);
            }
        }
        Ok(classes)
    }

    pub(super) fn may_take(&mut self, route: i64, request: &Claim) -> Result<bool> {
        let Some((node, group)) = self.route_of(route)? else { return Ok(false) };
        Ok(node.is_none_or(|node| request.node_name.as_ref() == Some(&node))
            && group.is_none_or(|group| request.groups.contains(&group)))
    }

    /// The next lanes by (priority, due, age) over the classes.
    fn best_lanes(
        &mut self,
        queue: u32,
        request: &Claim,
        classes: &[i64],
    ) -> Result<Vec<Candidate>> {
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let mut lanes = Vec::new();
        for class in classes {
            let limit = if class % 2 == 1 { most.min(request.crashed_max) } else { most };
            lanes.extend(self.ready_of(queue, *class, limit, FIRST)?);
        }
        if classes.len() > 1 {
            lanes.sort_by_key(Candidate::place);
            let mut crashed_left = request.crashed_max;
            lanes.retain(|lane| {
                let crashed = usize::from(lane.class % 2 == 1);
                let fits = crashed <= crashed_left;
                crashed_left -= if fits { crashed } else { 0 };
                fits
            });
            lanes.truncate(most);
        }
        Ok(lanes)
    }

    /// The first ready lanes of a class behind this place, a priority, due time and lane.
    pub(super) fn ready_of(
        &self,
        queue: u32,
        class: i64,
        most: usize,
        (prio, due, id): (i64, i64, i64),
    ) -> Result<Vec<Candidate>> {
        let sql = include_str!("sql/best_lanes.sql");
        self.rows(sql, params![queue, class, most as i64, prio, due, id], Candidate::read)
    }

    pub(super) fn any_ready(&self, queue: u32, classes: &[i64]) -> Result<bool> {
        let sql = "SELECT 1 FROM ready WHERE q = ?1 AND class = ?2 LIMIT 1";
        for class in classes {
            if self.first(sql, params![queue, class], |_| Ok(()))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Chooses the jobs of a lane's turn. `None` if they do not fit.
    pub(super) fn choose(
        &mut self,
        queue: &QueueRow,
        request: &Claim,
        mut lane: Candidate,
        room: &mut Room,
    ) -> Result<Option<Taken>> {
        let slot = lane.slot.take();
        let mode = queue.queue.mode;
        let chosen = match (slot, mode) {
            (Some(slot), Mode::Accumulate) if lane.items == 0 => Chosen::slot(slot, Close::All),
            (slot, Mode::Accumulate) => self.choose_by_score(&lane, slot)?,
            (Some(slot), Mode::Fifo) if lane.items > 0 && lane.retry < 0 && lane.crashes == 0 => {
                self.choose_following(queue, request, &lane, slot)?
            }
            (Some(slot), _) => Chosen::slot(slot, Close::Slot),
            (None, _) => Chosen {
                jobs: Vec::new(),
                close: Close::Items,
                marked: Vec::new(),
                leaves_some: false,
            },
        };
        let mut jobs = Vec::with_capacity(chosen.jobs.len());
        for mut job in chosen.jobs {
            let payload = match job.payload.take() {
                Some(payload) => payload,
                None => self.body(job.seq)?,
            };
            jobs.push(job.turn_job(queue.number, payload, &mut self.read_options));
        }
        if !room.take(jobs.iter().map(|job| job.payload.as_bytes().len())) {
            return Ok(None);
        }
        let owns_items = !chosen.marked.is_empty() || chosen.close == Close::All && lane.items > 0;
        let flags = if owns_items { flag::CLOSED_ITEMS } else { 0 };
        for seq in chosen.marked {
            self.execute("UPDATE item SET gen = ?2 WHERE seq = ?1", params![seq, TAKEN])?;
        }
        let own = jobs.iter().filter_map(|job| job.options.as_ref()?.lease_ttl).max();
        let own = own.unwrap_or_default().min(queue.queue.lease_max);
        let ttl = micros(request.lease.ttl().max(own));
        let (close, leaves_some) = (chosen.close, chosen.leaves_some);
        Ok(Some(Taken { lane, jobs, close, leaves_some, ttl, flags }))
    }

    /// All waiting jobs by score, within the limits, with the task of the first.
    fn choose_by_score(&mut self, lane: &Candidate, slot: Option<OpenJob>) -> Result<Chosen> {
        let slot_seq = slot.as_ref().map(|slot| slot.seq);
        let light = lane.items > ITEMS_READ_AT_ONCE;
        let mut jobs = self.waiting_items(lane, light)?;
        jobs.extend(slot);
        jobs.sort_unstable_by_key(OpenJob::rank);
        let count = self.how_many(&jobs, (TURN_JOBS_MAX, TURN_JOBS_MAX), light)?;
        let leaves_some = count < jobs.len();
        jobs.truncate(count);
        let close = match jobs.iter().any(|job| Some(job.seq) == slot_seq) {
            _ if !leaves_some => Close::All,
            true => Close::Slot,
            false => Close::Items,
        };
        let items = jobs.iter().map(|job| job.seq).filter(|seq| Some(*seq) != slot_seq);
        let marked = if leaves_some { items.collect() } else { Vec::new() };
        if light {
            let sql = format!("SELECT {WAITING_COLUMNS} FROM item WHERE seq = ?1");
            for job in jobs.iter_mut().filter(|job| Some(job.seq) != slot_seq) {
                let full = self.first(&sql, [job.seq], |row| OpenJob::read(row, 0))?;
                *job = full.unwrap_or_else(|| job.clone());
            }
        }
        Ok(Chosen { jobs, close, marked, leaves_some })
    }

    /// The items of an unclaimed lane, at most one more than a turn takes, by (score, arrival). `light`: without
    /// options and payload.
    fn waiting_items(&self, lane: &Candidate, light: bool) -> Result<Vec<OpenJob>> {
        let columns = match light {
            true => "seq, created, score, jprio, run_at, attempts, task, NULL, NULL",
            false => WAITING_COLUMNS,
        };
        let order = if light { "ORDER BY score, seq" } else { "" };
        let sql = format!(
            "SELECT {columns} FROM item INDEXED BY item_order WHERE lane = ?1 AND gen = ?2 {order} LIMIT ?3"
        );
        // One more than a turn can take shows whether some are left.
        let place = params![lane.id, lane.open, TURN_JOBS_MAX as i64 + 1];
        self.rows(&sql, place, |row| OpenJob::read(row, 0))
    }

    /// In `fifo`, the head and the jobs behind it that join its turn.
    fn choose_following(
        &mut self,
        queue: &QueueRow,
        request: &Claim,
        lane: &Candidate,
        slot: OpenJob,
    ) -> Result<Chosen> {
        let take = queue.queue.take;
        let most = match slot.may_join(&mut self.read_options) {
            true => take.max(request.series_of(&queue.queue)),
            false => take,
        };
        if most == 1 {
            return Ok(Chosen::slot(slot, Close::Slot));
        }
        let sql = format!(
            "SELECT {WAITING_COLUMNS}, retry < 0 AND crashes = 0 AND run_at <= ?4 FROM item INDEXED BY item_order
             WHERE lane = ?1 AND gen = ?2 ORDER BY ord LIMIT ?3"
        );
        let place = params![lane.id, lane.open, most - 1, self.now];
        let following =
            self.rows(&sql, place, |row| Ok((OpenJob::read(row, 0)?, row.get::<_, bool>(9)?)))?;
        let mut jobs = vec![slot];
        jobs.extend(following.into_iter().take_while(|(_, fresh)| *fresh).map(|(job, _)| job));
        let count = self.how_many(&jobs, (take as usize, most as usize), false)?;
        jobs.truncate(count);
        let marked = jobs.iter().skip(1).map(|job| job.seq).collect();
        Ok(Chosen { jobs, close: Close::Slot, marked, leaves_some: false })
    }

    /// How many jobs from the front form a turn: of one task, within the limits, the first `together` and then those that
    /// were never claimed before.
    fn how_many(
        &mut self,
        jobs: &[OpenJob],
        (together, most): (usize, usize),
        light: bool,
    ) -> Result<usize> {
        let sql = if light {
            "SELECT coalesce(length(payload), (SELECT length(b.payload) FROM body b WHERE b.seq = item.seq)) FROM item WHERE seq = ?1"
        } else {
            "SELECT length(payload) FROM body WHERE seq = ?1"
        };
        let task = jobs.first().and_then(|job| job.task.as_ref());
        let mut bytes = 0;
        for (i, job) in jobs.iter().enumerate().take(most) {
            bytes += match &job.payload {
                Some(payload) => payload.len(),
                None => {
                    self.first(sql, [job.seq], |row| row.get::<_, i64>(0))?.unwrap_or(0) as usize
                }
            };
            let joins = match i < together {
                true => bytes <= TURN_BYTES_MAX,
                false => bytes <= SERIES_BYTES_MAX && job.may_join(&mut self.read_options),
            };
            if i > 0 && (job.task.as_ref() != task || !joins) {
                return Ok(i);
            }
        }
        Ok(jobs.len().min(most))
    }

    /// Claims the lanes and stores the claim.
    pub(super) fn close_lanes(
        &mut self,
        queue: &QueueRow,
        request: &Claim,
        taken: Vec<Taken>,
    ) -> Result<Vec<Turn>> {
        self.take_out(queue.number, &taken)?;
        let own = matches!(request.lease, Lease::Own { .. });
        let mut rows: Vec<ClaimRow> = Vec::new();
        let mut turns = Vec::with_capacity(taken.len());
        for taken in taken {
            let row = ClaimRow::of(&mut rows, own, taken.ttl, || self.next_token());
            let (id, token) = (taken.lane.id, row.token);
            row.add(id);
            if own || !taken.is_light() {
                let next_due = taken.leaves_some.then_some(taken.lane.due);
                self.execute(
                    taken.close.statement(),
                    params![token, self.now, id, next_due, taken.flags],
                )?;
            }
            turns.push(turn(queue, taken, token, self.now));
        }
        self.store_claims(queue.number, &request.node, own, &rows)?;
        Ok(turns)
    }

    /// Takes the first lanes of their classes out of `ready`.
    pub(super) fn take_out(&self, queue: u32, taken: &[Taken]) -> Result<()> {
        let mut last_of = BTreeMap::new();
        for Taken { lane, .. } in taken {
            last_of.insert(lane.class, (lane.prio, lane.due, lane.id));
        }
        for (class, (prio, due, id)) in last_of {
            let sql =
                "DELETE FROM ready WHERE q = ?1 AND class = ?2 AND (prio, due, id) <= (?3, ?4, ?5)";
            self.execute(sql, params![queue, class, prio, due, id])?;
        }
        Ok(())
    }

    pub(super) fn store_claims(
        &self,
        queue: u32,
        node: &NodeId,
        own_lease: bool,
        rows: &[ClaimRow],
    ) -> Result<()> {
        let sql = "INSERT INTO claim (tok, node, q, ttl, until, lanes, left, at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        for row in rows {
            let until = own_lease.then(|| self.now.saturating_add(row.ttl));
            let (node, lanes) = (&*node.0, lanes_text(&row.lanes));
            let values =
                params![row.token, node, queue, row.ttl, until, lanes, row.count(), self.now];
            self.execute(sql, values)?;
        }
        Ok(())
    }
}

pub(super) fn turn(queue: &QueueRow, taken: Taken, token: i64, now: i64) -> Turn {
    let lane = taken.lane;
    Turn {
        lane: LaneId { queue: queue.number, shard: 0, number: lane.id as u64 },
        queue: queue.name.clone(),
        key: lane.key,
        token: Token(token),
        retry_count: lane.retry as i32,
        crashes: lane.crashes as u32,
        error: lane.error,
        claimed_at: Timestamp::from_micros(now),
        jobs: taken.jobs,
    }
}
