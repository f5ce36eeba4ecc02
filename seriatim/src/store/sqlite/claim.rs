//! Claiming lanes, and rescuing claims whose lease has run out.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::params;

use super::lane::Work;
use super::push::micros;
use super::row::{JOB_COLUMNS, Job, LaneRow, TAKEN, lane_columns};
use super::tx::{QueueRow, Tx};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeId, Token};
use crate::limits::{CLAIM_LANES_MAX, PROMOTE_LANES_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX};
use crate::queue::Mode;
use crate::store::request::{Claim, Claimed, Lease, Rescue, SourceDue};
use crate::turn::{Turn, TurnJob};

/// Closes the slot's job alone.
const CLOSE_SLOT: &str =
    "UPDATE lane SET st = 2, wake = NULL, tok = ?2, gen = -1, next_due = ?3, claimed_at = ?4,
 beat_at = ?4, progress = NULL WHERE id = ?1";
/// Closes all jobs of the lane by moving its boundary.
const CLOSE_ALL: &str =
    "UPDATE lane SET st = 2, wake = NULL, tok = ?2, open = ?2, next_due = ?3, claimed_at = ?4,
 beat_at = ?4, progress = NULL WHERE id = ?1";
/// Closes nothing itself: the taken items are marked one by one.
const CLOSE_ITEMS: &str =
    "UPDATE lane SET st = 2, wake = NULL, tok = ?2, next_due = ?3, claimed_at = ?4,
 beat_at = ?4, progress = NULL WHERE id = ?1";

/// The lanes of one claim row: those whose claim stands equally long.
#[derive(Default)]
struct Share {
    token: i64,
    lanes: Vec<u8>,
    count: i64,
}

/// What a claim gathers.
struct Gathering<'a> {
    request: &'a Claim,
    shares: BTreeMap<i64, Share>,
}

impl Tx<'_> {
    pub(super) fn claim(&mut self, request: &Claim) -> Result<Claimed> {
        self.check_node(&request.node)?;
        let queue = self.known_queue(&request.queue)?;
        if queue.paused {
            return Ok(Claimed::default());
        }
        self.promote(&queue)?;
        let classes = self.classes(queue.number, request)?;
        let lanes = self.best_lanes(queue.number, request, &classes)?;
        let mut gathering = Gathering { request, shares: BTreeMap::new() };
        let mut turns = Vec::with_capacity(lanes.len());
        for row in lanes {
            turns.push(self.claim_lane(&queue, row, &mut gathering)?);
        }
        self.delta(queue.number).running += turns.len() as i64;
        self.store_claims(&queue, &request.node, request.lease, gathering.shares)?;
        let next_due = match self.any_ready(queue.number, &classes)? {
            true => Some(self.now),
            false => self.first_wake(queue.number)?,
        };
        Ok(Claimed { turns, next_due: next_due.map(Timestamp::from_micros) })
    }

    /// A node that never beat or was declared dead may not hold anything.
    pub(super) fn check_node(&self, node: &NodeId) -> Result<()> {
        let sql = "SELECT 1 FROM node WHERE id = ?1 AND dead_at IS NULL";
        if self.first(sql, [&*node.0], |_| Ok(()))?.is_some() {
            return Ok(());
        }
        let message = format!("node {node} has not registered or was declared dead: take a new id");
        Err(Error::new(ErrorKind::NodeGone, message))
    }

    /// Positions the lanes again whose time has come.
    fn promote(&mut self, queue: &QueueRow) -> Result<()> {
        if self.first_wake(queue.number)?.is_none_or(|wake| wake > self.now) {
            return Ok(());
        }
        let due = params![queue.number, self.now, PROMOTE_LANES_MAX as i64];
        if queue.queue.mode != Mode::Exclusive {
            let sql = "UPDATE lane SET st = 0, wake = NULL WHERE id IN
                       (SELECT id FROM lane WHERE q = ?1 AND wake IS NOT NULL AND wake <= ?2 ORDER BY wake, id LIMIT ?3)";
            return self.execute(sql, due).map(drop);
        }
        let sql = "SELECT id FROM lane WHERE q = ?1 AND wake IS NOT NULL AND wake <= ?2 ORDER BY wake, id LIMIT ?3";
        for id in self.rows(sql, due, |row| row.get(0))? {
            if let Some(work) = self.lane(id)? {
                self.save(work)?;
            }
        }
        Ok(())
    }

    fn first_wake(&self, queue: u32) -> Result<Option<i64>> {
        let sql = "SELECT wake FROM lane WHERE q = ?1 AND wake IS NOT NULL ORDER BY wake LIMIT 1";
        self.first(sql, [queue], |row| row.get(0))
    }

    /// The classes of ready lanes that the caller may take.
    fn classes(&mut self, queue: u32, request: &Claim) -> Result<Vec<i64>> {
        let sql = "SELECT class FROM lane INDEXED BY lane_ready WHERE q = ?1 AND st = 0 AND class > ?2 ORDER BY class LIMIT 1";
        let mut classes = Vec::new();
        let mut last = -1;
        while let Some(class) = self.first(sql, params![queue, last], |row| row.get(0))? {
            if self.may_take(class / 2, request)? {
                classes.push(class);
            }
            last = class;
        }
        Ok(classes)
    }

    fn may_take(&self, route: i64, request: &Claim) -> Result<bool> {
        if route == 0 {
            return Ok(true);
        }
        let sql = "SELECT node, grp FROM route WHERE number = ?1";
        let row: Option<(Option<String>, Option<String>)> =
            self.first(sql, [route], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let Some((node, group)) = row else { return Ok(false) };
        Ok(node.is_none_or(|node| request.node_name.as_deref() == Some(&*node))
            && group.is_none_or(|group| request.groups.iter().any(|mine| **mine == *group)))
    }

    /// The next lanes by (priority, due, age) over the classes.
    fn best_lanes(&mut self, queue: u32, request: &Claim, classes: &[i64]) -> Result<Vec<LaneRow>> {
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let sql = format!(
            "SELECT {} FROM lane INDEXED BY lane_ready WHERE q = ?1 AND st = 0 AND class = ?2
             ORDER BY prio, due, id LIMIT ?3",
            lane_columns()
        );
        let mut lanes = Vec::new();
        for class in classes {
            let limit = if class % 2 == 1 { most.min(request.crashed_max) } else { most };
            lanes.extend(self.rows(&sql, params![queue, class, limit as i64], LaneRow::read)?);
        }
        if classes.len() > 1 {
            lanes.sort_by_key(|lane| (lane.head.prio, lane.head.due, lane.head.id));
            let mut crashed_left = request.crashed_max;
            lanes.retain(|lane| {
                let crashed = usize::from(lane.head.class % 2 == 1);
                let fits = crashed <= crashed_left;
                crashed_left -= if fits { crashed } else { 0 };
                fits
            });
            lanes.truncate(most);
        }
        Ok(lanes)
    }

    fn any_ready(&self, queue: u32, classes: &[i64]) -> Result<bool> {
        let sql = "SELECT 1 FROM lane INDEXED BY lane_ready WHERE q = ?1 AND st = 0 AND class = ?2 LIMIT 1";
        for class in classes {
            if self.first(sql, params![queue, class], |_| Ok(()))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn claim_lane(
        &mut self,
        queue: &QueueRow,
        row: LaneRow,
        gathering: &mut Gathering<'_>,
    ) -> Result<Turn> {
        let mut taken = self.choose(queue, &row)?;
        taken.jobs.sort_by_key(Job::rank);
        let jobs: Vec<TurnJob> =
            taken.jobs.into_iter().map(|job| job.into_turn_job(queue.number, true)).collect();
        let longest = jobs.iter().filter_map(|job| job.options.as_ref()?.lease_ttl).max();
        let ttl = micros(gathering.request.lease.ttl().max(longest.unwrap_or_default()));
        let token = self.share(gathering, ttl, row.head.id);
        let next_due = taken.leaves_some.then_some(row.head.due);
        self.execute(taken.how, params![row.head.id, token, next_due, self.now])?;
        Ok(turn(queue, &row, Token(token), self.now, jobs))
    }

    /// The token under which a lane is claimed: one for all whose claim stands equally long.
    fn share(&mut self, gathering: &mut Gathering<'_>, ttl: i64, lane: i64) -> i64 {
        // A lease of its own is extended by lane, so it needs a row of its own.
        let alone = matches!(gathering.request.lease, Lease::Own { .. });
        let place = if alone { -(gathering.shares.len() as i64) - 1 } else { ttl };
        let share = gathering
            .shares
            .entry(place)
            .or_insert_with(|| Share { token: self.next_token(), ..Share::default() });
        if alone {
            // The length stands in front of the lane, where `store_claims` looks for it.
            share.count = -ttl;
        } else {
            share.count += 1;
        }
        share.lanes.extend_from_slice(&lane.to_le_bytes());
        share.token
    }

    fn store_claims(
        &self,
        queue: &QueueRow,
        node: &NodeId,
        lease: Lease,
        shares: BTreeMap<i64, Share>,
    ) -> Result<()> {
        for (ttl, share) in shares {
            let (ttl, count) = if share.count < 0 { (-share.count, 1) } else { (ttl, share.count) };
            let until = matches!(lease, Lease::Own { .. }).then_some(self.now + ttl);
            let sql = "INSERT INTO claim VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let row = params![share.token, &*node.0, queue.number, ttl, until, share.lanes, count];
            self.execute(sql, row)?;
        }
        Ok(())
    }

    /// What a turn takes of a lane now.
    fn choose(&mut self, queue: &QueueRow, row: &LaneRow) -> Result<Taken> {
        let only_slot =
            |slot: &Job| Taken { jobs: vec![slot.clone()], how: CLOSE_SLOT, leaves_some: false };
        let head = &row.head;
        match (&row.slot, queue.queue.mode) {
            (Some(slot), _) if head.items == 0 => Ok(only_slot(slot)),
            (_, Mode::Accumulate) => self.choose_by_score(row),
            (Some(slot), Mode::Fifo)
                if queue.queue.take > 1 && head.retry < 0 && head.crashes == 0 =>
            {
                let mut taken = only_slot(slot);
                self.choose_following(queue, row, &mut taken.jobs)?;
                Ok(taken)
            }
            (Some(slot), _) => Ok(only_slot(slot)),
            (None, _) => Ok(Taken { jobs: Vec::new(), how: CLOSE_ITEMS, leaves_some: false }),
        }
    }

    /// All that waits, by score, as far as the limits and the task allow.
    fn choose_by_score(&mut self, row: &LaneRow) -> Result<Taken> {
        let sql = format!("SELECT {JOB_COLUMNS} FROM item WHERE lane = ?1 AND gen = ?2");
        let place = params![row.head.id, row.head.open];
        let mut jobs = self.rows(&sql, place, |row| Job::read(row, 0))?;
        jobs.extend(row.slot.clone());
        jobs.sort_unstable_by_key(Job::rank);
        let count = how_many(&jobs, TURN_JOBS_MAX);
        if count == jobs.len() {
            return Ok(Taken { jobs, how: CLOSE_ALL, leaves_some: false });
        }
        jobs.truncate(count);
        let slot = row.slot.as_ref().map(|slot| slot.seq);
        let takes_slot = jobs.iter().any(|job| Some(job.seq) == slot);
        self.mark_taken(jobs.iter().filter(|job| Some(job.seq) != slot))?;
        let how = if takes_slot { CLOSE_SLOT } else { CLOSE_ITEMS };
        Ok(Taken { jobs, how, leaves_some: true })
    }

    /// In `fifo`, the jobs behind the head that go with it.
    fn choose_following(
        &mut self,
        queue: &QueueRow,
        row: &LaneRow,
        jobs: &mut Vec<Job>,
    ) -> Result<()> {
        let sql = format!(
            "SELECT {JOB_COLUMNS} FROM item WHERE lane = ?1 AND gen = ?2 ORDER BY ord LIMIT ?3"
        );
        let place = params![row.head.id, row.head.open, queue.queue.take - 1];
        let following = self.rows(&sql, place, |row| Job::read(row, 0))?;
        let fresh = |job: &Job| job.retry < 0 && job.crashes == 0 && job.run_at <= self.now;
        jobs.extend(following.into_iter().take_while(fresh));
        jobs.truncate(how_many(jobs, queue.queue.take as usize));
        self.mark_taken(jobs.iter().skip(1))
    }

    fn mark_taken<'j>(&self, jobs: impl Iterator<Item = &'j Job>) -> Result<()> {
        for job in jobs {
            self.execute("UPDATE item SET gen = ?2 WHERE seq = ?1", params![job.seq, TAKEN])?;
        }
        Ok(())
    }

    pub(super) fn rescue(&mut self, request: &Rescue) -> Result<Vec<Turn>> {
        self.check_node(&request.node)?;
        let sql = "UPDATE node SET dead_at = ?1 WHERE dead_at IS NULL AND beat_at + lease < ?1";
        self.execute(sql, [self.now])?;
        self.check_node(&request.node)?;
        let sql = "SELECT c.tok, c.q, c.lanes FROM claim c LEFT JOIN node n ON n.id = c.node
                   WHERE CASE WHEN c.until IS NOT NULL THEN c.until < ?1
                              ELSE n.id IS NULL OR n.beat_at + c.ttl < ?1 END ORDER BY c.tok";
        let expired: Vec<(i64, u32, Vec<u8>)> =
            self.rows(sql, [self.now], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut turns = Vec::new();
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        for (token, queue, lanes) in expired {
            if turns.len() >= most {
                break;
            }
            self.take_over(request, token, queue, &lanes, most, &mut turns)?;
        }
        Ok(turns)
    }

    fn take_over(
        &mut self,
        request: &Rescue,
        old: i64,
        queue: u32,
        lanes: &[u8],
        most: usize,
        turns: &mut Vec<Turn>,
    ) -> Result<()> {
        let Some(queue) = self.queue_number(queue)? else { return Ok(()) };
        let token = self.next_token();
        let mut share = Share { token, ..Share::default() };
        for id in lanes
            .chunks_exact(8)
            .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap_or_default()))
        {
            if turns.len() >= most {
                break;
            }
            let sql = "UPDATE lane SET tok = ?3 WHERE id = ?1 AND tok = ?2 AND st = 2";
            if self.execute(sql, params![id, old, token])? == 1 {
                share.lanes.extend_from_slice(&id.to_le_bytes());
                share.count += 1;
                turns.extend(self.held_turn(id, false)?);
            }
        }
        self.release_claims(&BTreeMap::from([(old, share.count)]))?;
        if share.count == 0 {
            return Ok(());
        }
        let lease = Lease::Node { ttl: request.lease };
        let shares = BTreeMap::from([(micros(request.lease), share)]);
        self.store_claims(&queue, &request.node, lease, shares)
    }

    /// So many lanes of each claim row are not its any more.
    pub(super) fn release_claims(&self, settled: &BTreeMap<i64, i64>) -> Result<()> {
        for (token, count) in settled {
            let sql = "UPDATE claim SET left = left - ?2 WHERE tok = ?1 AND left > ?2";
            if self.execute(sql, params![token, count])? == 0 {
                self.execute("DELETE FROM claim WHERE tok = ?1", [token])?;
            }
        }
        Ok(())
    }

    /// The turn that holds a lane.
    pub(super) fn held_turn(&mut self, id: i64, with_payload: bool) -> Result<Option<Turn>> {
        let Some(work) = self.lane(id)?.filter(|work| work.row.head.is_claimed()) else {
            return Ok(None);
        };
        let mut jobs = self.closed_jobs(&work)?;
        jobs.sort_by_key(Job::rank);
        let number = work.queue.number;
        let jobs = jobs.into_iter().map(|job| job.into_turn_job(number, with_payload)).collect();
        let (token, at) =
            (Token(work.row.head.token), work.row.head.claimed_at.unwrap_or_default());
        Ok(Some(turn(&work.queue, &work.row, token, at, jobs)))
    }

    /// The jobs that the current claim of a lane owns.
    pub(super) fn closed_jobs(&self, work: &Work) -> Result<Vec<Job>> {
        let mut jobs: Vec<Job> = work.row.closed_slot().cloned().into_iter().collect();
        if work.row.head.items > 0 {
            let sql = format!("SELECT {JOB_COLUMNS} FROM item WHERE lane = ?1 AND gen < ?2");
            let place = params![work.row.head.id, work.row.head.open];
            jobs.extend(self.rows(&sql, place, |row| Job::read(row, 0))?);
        }
        Ok(jobs)
    }

    pub(super) fn due(&mut self, queues: &[Arc<str>]) -> Result<Vec<SourceDue>> {
        let sql = "SELECT number, name, paused FROM queue ORDER BY name";
        let rows: Vec<(u32, Arc<str>, bool)> =
            self.rows(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut sources = Vec::new();
        for (number, queue, paused) in rows {
            if !queues.is_empty() && !queues.contains(&queue) {
                continue;
            }
            let due = if paused { None } else { self.first_due(number)? };
            sources.push(SourceDue { queue, shard: 0, due: due.map(Timestamp::from_micros) });
        }
        Ok(sources)
    }

    /// The earliest due time of a queue's unclaimed lanes: of the scheduled ones, and of the
    /// first in each class and priority that has ready ones.
    pub(super) fn first_due(&self, queue: u32) -> Result<Option<i64>> {
        let sql = "SELECT class, prio, due FROM lane INDEXED BY lane_ready
                   WHERE q = ?1 AND st = 0 AND (class, prio) > (?2, ?3) ORDER BY class, prio, due LIMIT 1";
        let mut earliest: Option<i64> = None;
        let mut last = (-1_i64, -1_i64);
        while let Some((class, prio, due)) =
            self.first(sql, params![queue, last.0, last.1], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?))
            })?
        {
            earliest = Some(earliest.map_or(due, |earliest| earliest.min(due)));
            last = (class, prio);
        }
        // What is scheduled may have fallen due since the last claim.
        let wake = self.first_wake(queue)?;
        Ok(earliest.into_iter().chain(wake).min())
    }
}

/// What a turn takes, and how the lane's row is marked.
struct Taken {
    jobs: Vec<Job>,
    how: &'static str,
    leaves_some: bool,
}

/// So many jobs from the front go together: of one task, within the limits.
fn how_many(jobs: &[Job], most: usize) -> usize {
    let task = jobs.first().and_then(|job| job.task.clone());
    let mut bytes = 0;
    let fits = |(i, job): &(usize, &Job)| {
        bytes += job.payload.len();
        *i == 0 || (job.task == task && bytes <= TURN_BYTES_MAX)
    };
    let mut fits = fits;
    jobs.iter().take(most).enumerate().take_while(|job| fits(job)).count()
}

fn turn(
    queue: &QueueRow,
    row: &LaneRow,
    token: Token,
    claimed_at: i64,
    jobs: Vec<TurnJob>,
) -> Turn {
    Turn {
        lane: row.head.lane_id(),
        queue: queue.name.clone(),
        key: row.head.key.clone(),
        token,
        retry_count: row.head.retry as i32,
        crashes: row.head.crashes as u32,
        error: row.head.error.clone(),
        claimed_at: Timestamp::from_micros(claimed_at),
        jobs,
    }
}

/// Who holds a lane, as people see it.
pub(super) struct Holder {
    pub node: String,
    pub progress: Option<Arc<str>>,
    pub beat_at: i64,
}
