//! Claiming lanes, and rescuing expired claims.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::State;
use super::lane::Hold;
use crate::contract::errors::{check_ticket, node_gone};
use crate::contract::release::{NO_LEASE, NOBODY};
use crate::contract::{
    Claim, ClaimSelection, Claimed, GiveUp, GoOn, Lease, QueueDue, Release, Rescue, Settle, Settled,
};
use crate::model::limits::{CLAIM_LANES_MAX, PROMOTE_LANES_MAX};
use crate::model::{LaneId, NodeId, Result, Timestamp, Token, Turn};
use crate::stores::asked::is_asked;
use crate::stores::room::Room;
use crate::stores::route::group_of_class;

impl State {
    pub(in crate::stores) fn claim(&mut self, now: Timestamp, request: &Claim) -> Result<Claimed> {
        self.check_node(&request.node, request.ticket)?;
        let row = self.queue_to_claim(request)?;
        let queue = row.number;
        if row.paused {
            return Ok(Claimed::default());
        }
        self.promote(queue, now);
        if self.is_shared_out(queue) {
            return self.claim_in_rounds(now, queue, request);
        }
        let mut turns = Vec::new();
        let mut crashed_left = request.crashed_max;
        let mut room = Room::of(request);
        while turns.len() < request.lanes_max.min(CLAIM_LANES_MAX) {
            let Some((class, number)) = self.best_lane(queue, request, crashed_left > 0) else {
                break;
            };
            let Some(turn) = self.claim_lane(now, number, request, &mut room) else { break };
            crashed_left -= usize::from(class % 2 == 1);
            turns.push(turn);
        }
        let next_due = match self.best_lane(queue, request, true) {
            Some(_) => Some(now),
            None => self.first_wake(queue),
        };
        Ok(Claimed { turns, next_due, cut: room.is_full, unanswered: false })
    }

    /// Refuses a node that has sent no heartbeat or is dead, and a ticket that was given up.
    pub(in crate::stores) fn check_node(&self, node: &NodeId, ticket: u64) -> Result<()> {
        let Some(row) = self.nodes.get(node).filter(|row| row.dead_at.is_none()) else {
            return Err(node_gone(node));
        };
        check_ticket(ticket, row.given_up)
    }

    pub(in crate::stores) fn give_up(&mut self, request: &GiveUp) {
        if let Some(row) = self.nodes.get_mut(&request.node) {
            row.given_up = row.given_up.max(request.ticket);
        }
    }

    fn promote(&mut self, queue: u32, now: Timestamp) {
        for _ in 0..PROMOTE_LANES_MAX {
            let from = (queue, Timestamp::from_micros(i64::MIN), 0);
            let first = self.wake.range(from..=(queue, now, u64::MAX)).next().copied();
            let Some((_, _, number)) = first else { return };
            self.position(number, now);
        }
    }

    pub(super) fn first_wake(&self, queue: u32) -> Option<Timestamp> {
        let from = (queue, Timestamp::from_micros(i64::MIN), 0);
        let to = (queue, Timestamp::from_micros(i64::MAX), u64::MAX);
        self.wake.range(from..=to).next().map(|(_, wake, _)| *wake)
    }

    /// The next lane by (priority, due, age) over the classes that the caller may take.
    pub(in crate::stores) fn best_lane(
        &self,
        queue: u32,
        request: &Claim,
        crashed: bool,
    ) -> Option<(u64, u64)> {
        let ((_, _, number), class) = self.best_place(queue, &(0..=u64::MAX), request, crashed)?;
        Some((class, number))
    }

    /// The place of that lane among these classes, and its class.
    pub(super) fn best_place(
        &self,
        queue: u32,
        classes: &RangeInclusive<u64>,
        request: &Claim,
        crashed: bool,
    ) -> Option<((u16, Timestamp, u64), u64)> {
        let classes = self.ready.range((queue, *classes.start())..=(queue, *classes.end()));
        classes
            .filter(|((_, class), _)| {
                (crashed || class % 2 == 0) && self.may_take(class / 2, request)
            })
            .filter_map(|((_, class), lanes)| Some((*lanes.first()?, *class)))
            .min()
    }

    /// For each queue of [`Settle::go_on`], the best priority of its ready lanes, before anything is settled.
    pub(in crate::stores) fn best_priorities(&self, request: &Settle) -> Vec<Option<u16>> {
        let best = |go_on: &GoOn| {
            let queue = self.queue(&go_on.claim.queue).ok()?.number;
            self.best_place(queue, &(0..=u64::MAX), &go_on.claim, false)
                .map(|((priority, ..), _)| priority)
        };
        request.go_on.iter().map(best).collect()
    }

    /// Claims the next turns of the lanes that go on: see [`GoOn`].
    pub(in crate::stores) fn go_on(
        &mut self,
        now: Timestamp,
        request: &Settle,
        best: &[Option<u16>],
        settled: &mut [Settled],
    ) {
        for (GoOn { claim, places }, best) in request.go_on.iter().zip(best) {
            let checked = self.check_node(&claim.node, claim.ticket);
            let Ok(row) = checked.and_then(|()| self.queue_to_claim(claim)) else { continue };
            let (queue, paused) = (row.number, row.paused);
            let mut left = if paused { 0 } else { claim.lanes_max.min(CLAIM_LANES_MAX) };
            for place in places {
                let (Some(settlement), Some(Settled::Ok { next, .. })) =
                    (request.turns.get(*place), settled.get_mut(*place))
                else {
                    continue;
                };
                let is_done = settlement.is_all_done();
                if is_done && left > 0 && self.may_go_on(settlement.lane, queue, claim, *best) {
                    let room = &mut Room::unlimited();
                    *next = self.claim_lane(now, settlement.lane.number, claim, room).map(Box::new);
                    left -= usize::from(next.is_some());
                }
            }
        }
    }

    /// The queue of which a claim may take more, now or later, because a turn of this lane has ended: the lane itself,
    /// or another one that a limit held back.
    pub(in crate::stores) fn wakes(&self, lane: LaneId) -> Option<&str> {
        let row = self.queues.get(&lane.queue)?;
        if row.queue.is_shared_out() {
            return Some(&row.name);
        }
        let known = self.lanes.get(&lane.number).filter(|known| known.id == lane)?;
        let waits = known.position.ready.is_some() || known.position.wake.is_some();
        waits.then_some(&*row.name)
    }

    fn may_go_on(&self, lane: LaneId, queue: u32, claim: &Claim, best: Option<u16>) -> bool {
        let known = self.lanes.get(&lane.number).filter(|known| known.id == lane);
        let ready = known.and_then(|lane| lane.position.ready);
        let is_free = |(class, priority, _): (u64, u16, Timestamp)| {
            class % 2 == 0
                && self.may_take(class / 2, claim)
                && best.is_none_or(|best| priority <= best)
        };
        // Where groups take turns, each lane waits for the turn of its group.
        lane.queue == queue && ready.is_some_and(is_free) && !self.is_shared_out(queue)
    }

    pub(in crate::stores) fn may_take(&self, route: u64, request: &Claim) -> bool {
        let (node, group) = self.route_text(route);
        node.is_none_or(|node| request.node_name.as_deref() == Some(node))
            && group.is_none_or(|group| request.groups.iter().any(|mine| &**mine == group))
    }

    /// Claims the lane if its turn fits into the remaining bytes.
    pub(in crate::stores) fn claim_lane(
        &mut self,
        now: Timestamp,
        number: u64,
        request: &Claim,
        room: &mut Room,
    ) -> Option<Turn> {
        let row = self.queues.shared(&self.queues.number(&request.queue)?)?;
        let definition = &row.queue;
        let lane = self.lanes.get_mut(&number)?;
        let group = lane.position.ready.map_or(0, |(class, ..)| group_of_class(class));
        let closed = lane.close(definition, request.series_of(definition), now, room)?;
        let token = self.next_token(now);
        let lane = self.lanes.get_mut(&number)?;
        let longest = closed.iter().filter_map(|job| job.options.as_ref()?.lease_ttl).max();
        let longest = longest.unwrap_or_default().min(definition.lease_max);
        let ttl = request.lease.ttl().max(longest);
        lane.next_due = (!lane.has_no_open()).then_some(lane.due);
        lane.token = token;
        lane.hold = Some(Hold {
            node: request.node.clone(),
            group,
            lease: with_ttl(request.lease, ttl),
            until: now + ttl,
            claimed_at: now,
            beat_at: now,
            closed,
        });
        self.claimed.insert(number);
        self.position(number, now);
        self.turn_of(number, true)
    }

    /// The turn of a claimed lane.
    pub(in crate::stores) fn turn_of(&self, number: u64, with_payload: bool) -> Option<Turn> {
        let lane = self.lanes.get(&number)?;
        let hold = lane.hold.as_ref()?;
        let (retry_count, crashes, error) = lane.trouble();
        Some(Turn {
            lane: lane.id,
            queue: self.queue_row(lane.id.queue)?.name.clone(),
            key: lane.key.clone(),
            token: lane.token,
            retry_count,
            crashes,
            error: error.cloned(),
            claimed_at: hold.claimed_at,
            jobs: lane.closed().iter().map(|job| job.turn_job(with_payload)).collect(),
        })
    }

    pub(in crate::stores) fn turn(&self, lane: LaneId, token: Token) -> Option<Turn> {
        let turn = self.turn_of(lane.number, true)?;
        (turn.lane == lane && turn.token == token).then_some(turn)
    }

    pub(in crate::stores) fn rescue(
        &mut self,
        now: Timestamp,
        request: &Rescue,
    ) -> Result<Vec<Turn>> {
        self.check_node(&request.node, request.ticket)?;
        for row in self.nodes.values_mut() {
            if row.is_silent(now) {
                row.dead_at = Some(now);
            } else if row.is_ahead(now) {
                row.beat_at = now;
            }
        }
        self.check_node(&request.node, request.ticket)?;
        let expired: Vec<u64> =
            self.claimed.iter().copied().filter(|number| self.has_expired(*number, now)).collect();
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let lease = Lease::Node { ttl: request.lease };
        let take_over = |number| self.take_over(now, number, &request.node, lease);
        Ok(expired.into_iter().take(most).filter_map(take_over).collect())
    }

    pub(in crate::stores) fn release(
        &mut self,
        now: Timestamp,
        request: &Release,
    ) -> Result<Vec<Turn>> {
        let queue = match &request.claims {
            ClaimSelection::Key { queue, .. } | ClaimSelection::Queue(queue) => {
                Some(self.queue(queue)?.number)
            }
            ClaimSelection::Lane(_) | ClaimSelection::Node(_) => None,
        };
        let is_chosen = |number: &u64| {
            let Some(lane) = self.lanes.get(number) else { return false };
            let chosen = match &request.claims {
                ClaimSelection::Key { key, .. } => lane.key.as_deref() == Some(key.as_str()),
                ClaimSelection::Lane(id) => lane.id == *id,
                ClaimSelection::Queue(_) => true,
                ClaimSelection::Node(node) => {
                    lane.hold.as_ref().is_some_and(|hold| hold.node == *node)
                }
            };
            chosen
                && queue.is_none_or(|queue| lane.id.queue == queue)
                && request
                    .made_by
                    .is_none_or(|by| lane.hold.as_ref().is_some_and(|hold| hold.claimed_at <= by))
        };
        let most = request.lanes_max.min(CLAIM_LANES_MAX);
        let held: Vec<u64> = self.claimed.iter().copied().filter(is_chosen).take(most).collect();
        let no_holder = NodeId::from(NOBODY);
        let release = |number| self.take_over(now, number, &no_holder, NO_LEASE);
        Ok(held.into_iter().filter_map(release).collect())
    }

    fn has_expired(&self, number: u64, now: Timestamp) -> bool {
        let Some(hold) = self.lanes.get(&number).and_then(|lane| lane.hold.as_ref()) else {
            return false;
        };
        match hold.lease {
            Lease::Own { .. } => hold.until < now,
            Lease::Node { ttl } => {
                self.nodes.get(&hold.node).is_none_or(|node| node.beat_at + ttl < now)
            }
        }
    }

    fn take_over(
        &mut self,
        now: Timestamp,
        number: u64,
        node: &NodeId,
        lease: Lease,
    ) -> Option<Turn> {
        let token = self.next_token(now);
        let lane = self.lanes.get_mut(&number)?;
        lane.token = token;
        let hold = lane.hold.as_mut()?;
        hold.node = node.clone();
        hold.lease = lease;
        hold.until = now + lease.ttl();
        self.turn_of(number, false)
    }

    pub(in crate::stores) fn due(&self, queues: &[Arc<str>]) -> Vec<QueueDue> {
        let is_asked = is_asked(queues);
        let rows = self.queues.values().filter(|row| is_asked(&row.name));
        rows.map(|row| {
            QueueDue::new(row.name.clone(), self.first_due(row.number).filter(|_| !row.paused))
        })
        .collect()
    }

    pub(in crate::stores) fn first_due(&self, queue: u32) -> Option<Timestamp> {
        let from = (queue, Timestamp::from_micros(i64::MIN), 0);
        let to = (queue, Timestamp::from_micros(i64::MAX), u64::MAX);
        self.due.range(from..=to).next().map(|(_, due, _)| *due)
    }
}

fn with_ttl(lease: Lease, ttl: Duration) -> Lease {
    match lease {
        Lease::Node { .. } => Lease::Node { ttl },
        Lease::Own { .. } => Lease::Own { ttl },
    }
}
