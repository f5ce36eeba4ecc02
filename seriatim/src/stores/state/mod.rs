//! The state of the model and its indexes.

pub(super) mod actions;
mod batch_rows;
mod batches;
mod claim;
mod deletion;
pub(super) mod lane;
mod nodes;
pub(super) mod push;
pub(super) mod queues;
pub(super) mod rank;
mod settle;
mod sharing;
mod unread;
pub(super) mod views;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::contract::errors::{no_queue, too_many_routes, undeclared};
use crate::contract::{Claim, Command, JobState, NodeInfo, Secret};
use crate::model::limits::ROUTES_MAX;
use crate::model::{JobId, JobOptions, Leave, NodeId, Result, Timestamp, Token};
use crate::stores::route::{bound_of, route_in};
use lane::{Entry, Lane, Position};
pub(in crate::stores) use queues::QueueRow;
use queues::Queues;

/// A job that has ended and is still stored: finished or dead.
#[derive(Clone, Debug)]
pub(in crate::stores) struct Ended {
    pub queue: u32,
    pub key: Option<Arc<str>>,
    pub entry: Entry,
    pub state: JobState,
    pub at: Timestamp,
    /// When it may be deleted (finished jobs only).
    pub until: Timestamp,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Location {
    /// In this lane, open or closed.
    Lane(u64),
    /// Finished.
    Done,
    /// In the morgue.
    Dead,
    /// Merged into this job.
    Alias(JobId),
}

/// A node of the model.
#[derive(Clone, Debug)]
pub(in crate::stores) struct NodeRow {
    /// Claims and rescues with a ticket up to this one take nothing.
    pub given_up: u64,
    pub info: NodeInfo,
    pub beat_at: Timestamp,
    pub dead_at: Option<Timestamp>,
    pub command: Option<Command>,
}

impl NodeRow {
    /// Whether it counts as living and has not beaten for longer than its lease.
    pub(in crate::stores) fn is_silent(&self, now: Timestamp) -> bool {
        self.dead_at.is_none() && self.beat_at + self.info.lease < now
    }

    /// Whether its last heartbeat is from before the clock was set back: by it, a node that has died since would live
    /// until that time comes again.
    pub(in crate::stores) fn is_ahead(&self, now: Timestamp) -> bool {
        self.dead_at.is_none() && now + self.info.lease < self.beat_at
    }
}

/// (queue, key, idempotency key): see `Job::repeat`.
pub(in crate::stores) type IdempotencyKey = (u32, Option<String>, String);

/// Ready lanes in the order in which claims take them: (priority, due, lane).
pub(in crate::stores) type ReadyLanes = BTreeSet<(u16, Timestamp, u64)>;

#[derive(Default)]
pub(in crate::stores) struct State {
    pub closed: bool,
    pub seq: u64,
    pub token: i64,
    pub queues: Queues,
    /// How many jobs of each queue were processed, and how many turns failed.
    pub ended: BTreeMap<u32, (u64, u64)>,
    pub lanes: BTreeMap<u64, Lane>,
    pub keys: HashMap<(u32, Arc<str>), u64>,
    /// By (queue, class).
    pub ready: BTreeMap<(u32, u64), ReadyLanes>,
    pub wake: BTreeSet<(u32, Timestamp, u64)>,
    pub due: BTreeSet<(u32, Timestamp, u64)>,
    /// Claimed lanes.
    pub claimed: BTreeSet<u64>,
    pub jobs: HashMap<JobId, Location>,
    pub done: BTreeMap<JobId, Ended>,
    pub dead: BTreeMap<JobId, Ended>,
    pub idempotency: BTreeMap<IdempotencyKey, (JobId, Timestamp)>,
    /// Routes other than the unbound one (0): (node, group).
    pub routes: Arc<Vec<(Option<String>, Option<String>)>>,
    pub sharing: sharing::Sharing,
    pub nodes: BTreeMap<NodeId, NodeRow>,
    pub leaders: HashMap<Arc<str>, (NodeId, Timestamp)>,
    pub secret: Option<Secret>,
    pub batches: batch_rows::Batches,
}

impl State {
    pub(in crate::stores) fn queue(&self, name: &str) -> Result<&QueueRow> {
        self.queues.named(name).ok_or_else(|| no_queue(name))
    }

    /// The queue to claim from. Fails if it does not exist, is undeclared but must be declared, or its `lease_max` is
    /// shorter than the requested lease.
    pub(in crate::stores) fn queue_to_claim(&self, request: &Claim) -> Result<&QueueRow> {
        let row = self.queue(&request.queue)?;
        if request.declared && !row.declared {
            return Err(undeclared(&request.queue));
        }
        row.queue.check_lease(request.lease.ttl()).map(|()| row)
    }

    pub(in crate::stores) fn queue_mut(&mut self, name: &str) -> Result<&mut QueueRow> {
        let number = self.queues.number(name);
        number.and_then(|number| self.queues.get_mut(&number)).ok_or_else(|| no_queue(name))
    }

    pub(in crate::stores) fn queue_row(&self, number: u32) -> Option<&QueueRow> {
        self.queues.get(&number)
    }

    pub(in crate::stores) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    pub(in crate::stores) fn next_token(&mut self, now: Timestamp) -> Token {
        self.token = (self.token + 1).max(now.as_micros());
        Token(self.token)
    }

    /// The number of a job's route, bound to this node.
    pub(in crate::stores) fn route(&mut self, options: &JobOptions, node: Option<&str>) -> u64 {
        route_in(options.group.as_deref(), self.bound(node, options.consumer_group.as_deref()))
    }

    /// The number of a node and a consumer group. 0: none.
    fn bound(&mut self, node: Option<&str>, group: Option<&str>) -> u64 {
        if node.is_none() && group.is_none() {
            return 0;
        }
        let wanted = (node.map(str::to_owned), group.map(str::to_owned));
        let known = self.routes.iter().position(|route| *route == wanted);
        let place = known.unwrap_or_else(|| {
            Arc::make_mut(&mut self.routes).push(wanted);
            self.routes.len() - 1
        });
        place as u64 + 1
    }

    /// Refuses to bind jobs to these nodes and consumer groups if there are no numbers for them.
    pub(in crate::stores) fn check_routes<'r>(
        &'r self,
        wanted: impl ExactSizeIterator<Item = (Option<&'r str>, Option<&'r str>)>,
    ) -> Result<()> {
        // Few stores have so many.
        if self.routes.len() + wanted.len() <= ROUTES_MAX {
            return Ok(());
        }
        let mut known: HashSet<_> = HashSet::from([(None, None)]);
        known.extend(self.routes.iter().map(|(node, group)| (node.as_deref(), group.as_deref())));
        let before = known.len();
        known.extend(wanted);
        // One of them is no route.
        let is_too_many = known.len() > before && known.len() - 1 > ROUTES_MAX;
        if is_too_many { Err(too_many_routes()) } else { Ok(()) }
    }

    pub(in crate::stores) fn route_text(&self, route: u64) -> (Option<&str>, Option<&str>) {
        match (bound_of(route) as usize).checked_sub(1).and_then(|i| self.routes.get(i)) {
            Some((node, group)) => (node.as_deref(), group.as_deref()),
            None => (None, None),
        }
    }

    /// Puts a lane at its position for `now`, or removes it if it is empty.
    pub(in crate::stores) fn position(&mut self, number: u64, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return;
        };
        if lane.hold.is_some() && lane.has_no_open() {
            // What arrived during the turn has left: the next job to arrive says when the lane is due.
            lane.next_due = None;
        }
        let (old, queue) = (lane.position, lane.id.queue);
        let new = if lane.is_empty() { Position::default() } else { lane.positioned(now) };
        lane.position = new;
        self.unindex(queue, number, old);
        if self.lanes.get(&number).is_some_and(Lane::is_empty) {
            self.remove_lane(number);
            return;
        }
        if let Some((class, priority, due)) = new.ready {
            self.ready.entry((queue, class)).or_default().insert((priority, due, number));
        }
        self.wake.extend(new.wake.map(|wake| (queue, wake, number)));
        self.due.extend(new.due.map(|due| (queue, due, number)));
    }

    fn unindex(&mut self, queue: u32, number: u64, old: Position) {
        if let Some((class, priority, due)) = old.ready
            && let Some(lanes) = self.ready.get_mut(&(queue, class))
        {
            lanes.remove(&(priority, due, number));
            if lanes.is_empty() {
                self.ready.remove(&(queue, class));
            }
        }
        if let Some(wake) = old.wake {
            self.wake.remove(&(queue, wake, number));
        }
        if let Some(due) = old.due {
            self.due.remove(&(queue, due, number));
        }
    }

    fn remove_lane(&mut self, number: u64) {
        if let Some(lane) = self.lanes.remove(&number)
            && let Some(key) = lane.key
        {
            self.keys.remove(&(lane.id.queue, key));
        }
    }

    /// Records the end of a job. If the queue keeps no finished jobs, forgets it.
    pub(in crate::stores) fn finish(
        &mut self,
        now: Timestamp,
        queue: u32,
        key: Option<Arc<str>>,
        mut entry: Entry,
        state: JobState,
        error: Option<Arc<str>>,
    ) {
        let how = if state == JobState::Succeeded { Leave::Done } else { Leave::Cancelled };
        self.batches.leave(&entry, how);
        let retention = self.queue_row(queue).map(|row| row.queue.retention()).unwrap_or_default();
        entry.error = error.or(entry.error);
        if retention.is_zero() {
            self.forget(&entry);
            return;
        }
        self.jobs.insert(entry.id, Location::Done);
        let ended = Ended { queue, key, entry, state, at: now, until: now + retention };
        self.done.insert(ended.entry.id, ended);
    }

    pub(in crate::stores) fn bury(
        &mut self,
        now: Timestamp,
        queue: u32,
        key: Option<Arc<str>>,
        mut entry: Entry,
        error: Option<Arc<str>>,
    ) {
        self.batches.leave(&entry, Leave::Dead);
        entry.error = error.or(entry.error);
        entry.flagged = false;
        self.jobs.insert(entry.id, Location::Dead);
        let state = JobState::Dead;
        let ended = Ended { queue, key, entry, state, at: now, until: Timestamp::MAX };
        self.dead.insert(ended.entry.id, ended);
    }

    /// Removes a job that waits, without a record.
    pub(in crate::stores) fn delete(&mut self, entry: &Entry) {
        self.batches.leave(entry, Leave::Cancelled);
        self.forget(entry);
    }

    /// Removes all traces of a job and its aliases.
    pub(in crate::stores) fn forget(&mut self, entry: &Entry) {
        self.jobs.remove(&entry.id);
        for alias in &entry.aliases {
            self.jobs.remove(alias);
        }
    }

    /// The id of the job that this id refers to, through aliases.
    pub(in crate::stores) fn resolve(&self, id: JobId) -> JobId {
        match self.jobs.get(&id) {
            Some(Location::Alias(survivor)) => self.resolve(*survivor),
            _ => id,
        }
    }
}
