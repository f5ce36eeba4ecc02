//! Existing claims: rescue, release and turns.

use std::collections::BTreeMap;

use rusqlite::params;

use super::claim::ClaimRow;
use super::lane::Work;
use super::light::{lanes_in, lanes_text};
use super::row::{Head, JOB_COLUMNS, Job};
use super::tx::Tx;
use crate::contract::release::{NO_LEASE, NOBODY};
use crate::contract::{ClaimSelection, Lease, Release, Rescue};
use crate::model::clock::micros;
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{NodeId, Result, Timestamp, Token, Turn};

/// The taker of claims: its node and lease, the time up to which claims qualify, and the most lanes.
struct Taker {
    node: NodeId,
    lease: Lease,
    made_by: i64,
    most: usize,
}

impl Tx<'_> {
    pub(super) fn rescue(&mut self, request: &Rescue) -> Result<Vec<Turn>> {
        self.check_node(&request.node, request.ticket)?;
        let sql = "UPDATE node SET dead_at = ?1 WHERE dead_at IS NULL AND beat_at + lease < ?1";
        self.execute(sql, [self.now])?;
        // From before the clock was set back.
        let sql = "UPDATE node SET beat_at = ?1 WHERE dead_at IS NULL AND beat_at > ?1 + lease";
        self.execute(sql, [self.now])?;
        self.check_node(&request.node, request.ticket)?;
        let expired: Vec<(i64, u32, String)> =
            self.rows(include_str!("sql/expired_claims.sql"), [self.now], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let mut turns = Vec::new();
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let lease = Lease::Node { ttl: request.lease };
        let taker = Taker { node: request.node.clone(), lease, made_by: i64::MAX, most };
        for (token, queue, lanes) in expired {
            if turns.len() >= most {
                break;
            }
            self.take_over(&taker, (token, queue, &lanes), &mut turns)?;
        }
        Ok(turns)
    }

    pub(super) fn release(&mut self, request: &Release) -> Result<Vec<Turn>> {
        let made_by = request.made_by.map_or(i64::MAX, Timestamp::as_micros);
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let mut turns = Vec::new();
        let taker = Taker { node: NodeId::from(NOBODY), lease: NO_LEASE, made_by, most };
        for (token, queue, lanes) in self.claims_of(&request.claims)? {
            if turns.len() >= most {
                break;
            }
            self.take_over(&taker, (token, queue, &lanes), &mut turns)?;
        }
        Ok(turns)
    }

    /// Tokens and queues of the selected claims, and the selected lanes of each.
    fn claims_of(&mut self, claims: &ClaimSelection) -> Result<Vec<(i64, u32, String)>> {
        let one = |work: Option<Work>| {
            let head = work.map(|work| work.row.head).filter(Head::is_claimed);
            head.map(|head| (head.token, head.queue, lanes_text(&[head.id]))).into_iter().collect()
        };
        let whole = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        match claims {
            ClaimSelection::Key { queue, key } => {
                let queue = self.known_queue(queue)?.number;
                Ok(one(self.lane_of_key(queue, key)?))
            }
            ClaimSelection::Lane(lane) => {
                let work = self.lane(lane.number as i64)?;
                Ok(one(work.filter(|work| work.row.head.queue == lane.queue)))
            }
            ClaimSelection::Queue(queue) => {
                let queue = self.known_queue(queue)?.number;
                let sql = "SELECT tok, q, lanes FROM claim WHERE q = ?1 ORDER BY tok";
                self.rows(sql, [queue], whole)
            }
            ClaimSelection::Node(node) => {
                let sql = "SELECT tok, q, lanes FROM claim WHERE node = ?1 ORDER BY tok";
                self.rows(sql, [&*node.0], whole)
            }
        }
    }

    /// Takes over lanes of one claim (its token, its queue, the lanes), as long as their turns fit.
    fn take_over(
        &mut self,
        taker: &Taker,
        (old, queue, lanes): (i64, u32, &str),
        turns: &mut Vec<Turn>,
    ) -> Result<()> {
        let token = self.next_token();
        let mut claim = ClaimRow { token, ttl: micros(taker.lease.ttl()), lanes: Vec::new() };
        let sql =
            "UPDATE lane SET tok = ?3 WHERE id = ?1 AND tok = ?2 AND st = 2 AND claimed_at <= ?4";
        self.unfold_claim(old, queue)?;
        for id in lanes_in(lanes) {
            if turns.len() >= taker.most {
                break;
            }
            if self.execute(sql, params![id, old, token, taker.made_by])? == 1 {
                claim.add(id);
                turns.extend(self.held_turn(id, false)?);
            }
        }
        self.release_claims(&BTreeMap::from([(old, claim.count())]))?;
        if claim.count() == 0 {
            return Ok(());
        }
        let own = matches!(taker.lease, Lease::Own { .. });
        self.store_claims(queue, &taker.node, own, &[claim])
    }

    /// Writes a claim into the rows of its lanes that do not show it.
    fn unfold_claim(&mut self, token: i64, queue: u32) -> Result<()> {
        let Some(row) = self.queue_number(queue)? else { return Ok(()) };
        let sql = "SELECT at, lanes FROM claim WHERE tok = ?1 AND until IS NULL";
        let claim: Option<(i64, String)> =
            self.first(sql, [token], |row| Ok((row.get(0)?, row.get(1)?)))?;
        match claim {
            Some((at, lanes)) => self.unfold_lanes(row.queue.mode, (token, at), &lanes),
            None => Ok(()),
        }
    }

    /// Subtracts settled lanes from each claim row, and deletes rows with none left.
    pub(super) fn release_claims(&self, settled: &BTreeMap<i64, i64>) -> Result<()> {
        for (token, count) in settled {
            let sql = "UPDATE claim SET left = left - ?2 WHERE tok = ?1 AND left > ?2";
            if self.execute(sql, params![token, count])? == 0 {
                self.execute("DELETE FROM claim WHERE tok = ?1", [token])?;
            }
        }
        Ok(())
    }

    /// The turn of a claimed lane.
    pub(super) fn held_turn(&mut self, id: i64, with_payload: bool) -> Result<Option<Turn>> {
        let Some(work) = self.lane(id)?.filter(|work| work.row.head.is_claimed()) else {
            return Ok(None);
        };
        let head = &work.row.head;
        let mut closed = self.closed_jobs(&work)?;
        closed.sort_by_key(Job::rank);
        let mut jobs = Vec::with_capacity(closed.len());
        for job in closed {
            let payload = if with_payload { self.payload_of(&job)? } else { Vec::new() };
            jobs.push(job.into_turn_job(work.queue.number, payload));
        }
        Ok(Some(Turn {
            lane: head.lane_id(),
            queue: work.queue.name.clone(),
            key: head.key.clone(),
            token: Token(head.token),
            retry_count: head.retry as i32,
            crashes: head.crashes as u32,
            error: head.error.clone(),
            claimed_at: Timestamp::from_micros(head.claimed_at.unwrap_or_default()),
            jobs,
        }))
    }

    /// The jobs that the current claim of a lane owns.
    pub(super) fn closed_jobs(&self, work: &Work) -> Result<Vec<Job>> {
        let mut jobs: Vec<Job> = work.row.closed_slot().cloned().into_iter().collect();
        if work.row.head.items > 0 {
            let sql = format!(
                "SELECT {JOB_COLUMNS} FROM item INDEXED BY item_order WHERE lane = ?1 AND gen < ?2"
            );
            let place = params![work.row.head.id, work.row.head.open];
            jobs.extend(self.rows(&sql, place, |row| Job::read(row, 0))?);
        }
        Ok(jobs)
    }
}
