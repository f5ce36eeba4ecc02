//! A lane of the model, and its position.

use std::collections::btree_map::OccupiedEntry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::rank::{LAST, Rank, score_rank};
use super::unread::Unread;
use crate::contract::Lease;
use crate::model::limits::{PROMOTE_JOBS_MAX, SERIES_BYTES_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX};
use crate::model::window::open_until;
use crate::model::{
    Digest, Dues, JobId, JobOptions, LaneId, Mode, NodeId, Payload, Queue, Timestamp, Token,
    TurnJob, Window,
};
use crate::stores::room::Room;

/// A job of the model.
#[derive(Clone, Debug)]
pub(in crate::stores) struct Entry {
    pub id: JobId,
    pub task: Option<Arc<str>>,
    pub payload: Payload,
    pub digest: Option<Digest>,
    pub score: f64,
    pub priority: u16,
    pub run_at: Timestamp,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    /// How many of its claims counted and have ended.
    pub attempts: u32,
    pub retry_count: i32,
    pub crashes: u32,
    pub error: Option<Arc<str>>,
    pub options: Option<Arc<JobOptions>>,
    pub route: u64,
    pub flagged: bool,
    /// The ids of equal jobs that were merged into this one.
    pub aliases: Vec<JobId>,
}

impl Entry {
    /// Whether it may be handed over with others, one after the other.
    fn may_join(&self) -> bool {
        self.attempts == 0 && self.options.as_ref().is_none_or(|options| options.are_plain())
    }

    pub(in crate::stores) fn turn_job(&self, with_payload: bool) -> TurnJob {
        TurnJob {
            id: self.id,
            task: self.task.clone(),
            payload: match with_payload {
                true => self.payload.clone(),
                false => Payload::from_bytes(Vec::new()),
            },
            score: self.score,
            priority: self.priority,
            run_at: self.run_at,
            attempt: self.attempts + 1,
            options: self.options.clone(),
        }
    }
}

/// The class of a lane with this route, whose head has this number of crashes.
fn class_of(route: u64, crashes: u32) -> u64 {
    route * 2 + u64::from(crashes > 0)
}

/// The claim of a lane.
#[derive(Clone, Debug)]
pub(in crate::stores) struct Hold {
    pub node: NodeId,
    /// The lane's group when it was claimed.
    pub group: u64,
    pub lease: Lease,
    /// When an own lease expires.
    pub until: Timestamp,
    pub claimed_at: Timestamp,
    pub beat_at: Timestamp,
    /// The jobs of the turn, in the order of execution.
    pub closed: Vec<Entry>,
}

/// The position of an unclaimed lane in the indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::stores) struct Position {
    /// (class, priority, due) of a ready lane.
    pub ready: Option<(u64, u16, Timestamp)>,
    /// When the position must be computed again.
    pub wake: Option<Timestamp>,
    /// When the lane is due, for listings and lag.
    pub due: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub(in crate::stores) struct Lane {
    pub id: LaneId,
    pub mode: Mode,
    pub key: Option<Arc<str>>,
    pub token: Token,
    pub hold: Option<Hold>,
    /// The last progress report. Cleared when a turn ends with no job kept.
    pub progress: Option<Arc<str>>,
    /// Open jobs in order; in `exclusive` the due ones.
    pub open: BTreeMap<Rank, Entry>,
    /// Open jobs of `exclusive` that are not due yet, by (`run_at`, seq).
    pub later: BTreeMap<(Timestamp, u64), Entry>,
    /// Open jobs by digest, if equal payloads merge.
    pub by_digest: HashMap<Digest, Rank>,
    /// How many open jobs have each priority (`accumulate`).
    priorities: BTreeMap<u16, usize>,
    pub retry_count: i32,
    pub crashes: u32,
    pub error: Option<Arc<str>>,
    pub due: Timestamp,
    /// See [`Dues::next`].
    pub next_due: Option<Timestamp>,
    pub held: bool,
    pub paused: bool,
    pub route: u64,
    pub position: Position,
    /// What is not here.
    pub unread: Unread,
}

impl Lane {
    pub(in crate::stores) fn new(
        id: LaneId,
        mode: Mode,
        key: Option<Arc<str>>,
        due: Timestamp,
        route: u64,
    ) -> Self {
        Self {
            id,
            mode,
            key,
            token: Token(0),
            hold: None,
            progress: None,
            open: BTreeMap::new(),
            later: BTreeMap::new(),
            by_digest: HashMap::new(),
            priorities: BTreeMap::new(),
            retry_count: -1,
            crashes: 0,
            error: None,
            due,
            next_due: None,
            held: false,
            paused: false,
            route,
            position: Position::default(),
            unread: Unread::default(),
        }
    }

    fn rank(&self, entry: &Entry) -> Rank {
        let seq = entry.id.seq();
        match self.mode {
            Mode::Parallel => (0, 0, seq),
            Mode::Accumulate | Mode::Fifo => (score_rank(entry.score), 0, seq),
            Mode::Exclusive => (i64::from(entry.priority), entry.run_at.as_micros(), seq),
        }
    }

    /// In `accumulate`, failures belong to the lane: those of a new job are the lane's if it opens it, and else forgotten.
    pub(in crate::stores) fn take_failures(&mut self, entry: &mut Entry) {
        if self.mode != Mode::Accumulate {
            return;
        }
        let (retry_count, error) = (entry.retry_count, entry.error.take());
        entry.retry_count = -1;
        if self.is_empty() {
            (self.retry_count, self.error) = (retry_count, error);
        }
    }

    /// Adds a job to the open ones.
    pub(in crate::stores) fn insert(&mut self, entry: Entry) {
        if self.mode == Mode::Exclusive {
            self.later.insert((entry.run_at, entry.id.seq()), entry);
            return;
        }
        let rank = self.rank(&entry);
        if let Some(digest) = entry.digest {
            self.by_digest.insert(digest, rank);
        }
        *self.priorities.entry(entry.priority).or_default() += 1;
        self.open.insert(rank, entry);
    }

    /// Records that the lane has open jobs that are not loaded, the most urgent with this priority. For stores that
    /// load only part of a lane.
    #[cfg(feature = "mysql")]
    pub(in crate::stores) fn there_are_more(&mut self, soonest: u16) {
        self.unread.soonest = true;
        *self.priorities.entry(soonest).or_default() += 1;
    }

    /// Puts a job of `exclusive` back among the due ones.
    #[cfg(feature = "mysql")]
    pub(in crate::stores) fn insert_due(&mut self, entry: Entry) {
        let rank = self.rank(&entry);
        self.open.insert(rank, entry);
    }

    /// Removes the open job with this rank.
    pub(in crate::stores) fn take(&mut self, rank: Rank) -> Option<Entry> {
        let entry = self.open.remove(&rank)?;
        if let Some(digest) = entry.digest {
            self.by_digest.remove(&digest);
        }
        if let Some(count) = self.priorities.get_mut(&entry.priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&entry.priority);
            }
        }
        Some(entry)
    }

    /// Removes the open job with this number.
    pub(in crate::stores) fn take_seq(&mut self, seq: u64) -> Option<Entry> {
        if let Some(rank) = self.open.keys().copied().find(|rank| rank.2 == seq) {
            return self.take(rank);
        }
        let place = self.later.keys().copied().find(|place| place.1 == seq);
        let Some(place) = place else {
            self.unread.need_open();
            return None;
        };
        self.later.remove(&place)
    }

    /// Removes all open jobs, in order of rank.
    pub(in crate::stores) fn take_all(&mut self) -> Vec<Entry> {
        self.unread.need_open();
        self.by_digest.clear();
        self.priorities.clear();
        let open = std::mem::take(&mut self.open).into_values();
        open.chain(std::mem::take(&mut self.later).into_values()).collect()
    }

    pub(in crate::stores) fn open_jobs(&self) -> impl Iterator<Item = &Entry> {
        self.unread.need_open();
        self.loaded_jobs()
    }

    /// The open jobs that are here, in a lane that may have more.
    pub(in crate::stores) fn loaded_jobs(&self) -> impl Iterator<Item = &Entry> {
        self.open.values().chain(self.later.values())
    }

    pub(in crate::stores) fn dues(&self) -> Dues {
        Dues { due: self.due, next: self.next_due }
    }

    pub(in crate::stores) fn set_dues(&mut self, dues: Dues) {
        (self.due, self.next_due) = (dues.due, dues.next);
    }

    /// Makes a lane due whose window is open and full.
    pub(in crate::stores) fn end_full_window(&mut self, window: Option<&Window>, now: Timestamp) {
        let Some(window) = window.filter(|window| window.has_limits()) else { return };
        if self.hold.is_some() || open_until(&self.dues(), now).is_none() {
            return;
        }
        let bytes = self.loaded_jobs().map(|job| job.payload.as_bytes().len() as u64);
        let bytes = window.max_bytes.map_or(0, |_| self.unread.bytes + bytes.sum::<u64>());
        if window.is_full(self.open_count() as u64 + self.unread.open, bytes) {
            self.set_dues(Dues { due: now, next: None });
        }
    }

    pub(in crate::stores) fn open_count(&self) -> usize {
        self.open.len() + self.later.len()
    }

    /// Whether there are no open jobs.
    pub(in crate::stores) fn has_no_open(&self) -> bool {
        self.unread.open == 0 && self.open.is_empty() && self.later.is_empty()
    }

    pub(in crate::stores) fn is_empty(&self) -> bool {
        self.hold.is_none() && self.unread.closed == 0 && self.has_no_open()
    }

    /// The first open job with this digest.
    pub(in crate::stores) fn equal(&self, digest: &Digest) -> Option<Rank> {
        let equal = self.by_digest.get(digest).copied();
        if equal.is_none() {
            self.unread.need_equal(digest);
        }
        equal
    }

    /// The first of the due jobs; outside `exclusive`, the first of all.
    fn first(&self) -> Option<(&Rank, &Entry)> {
        let first = self.open.iter().next();
        self.unread.need_to(first.map(|(rank, _)| rank));
        first
    }

    /// Its place.
    pub(in crate::stores) fn first_rank(&self) -> Option<Rank> {
        self.first().map(|(rank, _)| *rank)
    }

    fn first_later(&self) -> Option<&Entry> {
        let first = self.later.first_key_value();
        if self.mode == Mode::Exclusive {
            self.unread.need_later(first.map(|(place, _)| place));
        }
        first.map(|(_, job)| job)
    }

    /// The job whose state the lane shows; not used in `accumulate`, whose lanes have their own.
    pub(in crate::stores) fn head(&self) -> Option<&Entry> {
        self.first().map(|(_, job)| job).or_else(|| self.first_later())
    }

    /// The best priority of the open jobs (`accumulate`).
    pub(in crate::stores) fn soonest(&self) -> Option<u16> {
        self.unread.need_soonest();
        self.priorities.keys().next().copied()
    }

    /// The jobs of the turn.
    pub(in crate::stores) fn closed(&self) -> &[Entry] {
        self.unread.need_closed();
        self.hold.as_ref().map_or(&[], |hold| &hold.closed)
    }

    /// Retry count, crashes and error: the lane's own in `accumulate`, else its head's.
    pub(in crate::stores) fn trouble(&self) -> (i32, u32, Option<&Arc<str>>) {
        if self.mode == Mode::Accumulate {
            return (self.retry_count, self.crashes, self.error.as_ref());
        }
        self.closed()
            .first()
            .or_else(|| self.head())
            .map_or((-1, 0, None), |job| (job.retry_count, job.crashes, job.error.as_ref()))
    }

    /// In `exclusive`, moves jobs that are now due to the open ones, at most [`PROMOTE_JOBS_MAX`].
    fn promote(&mut self, now: Timestamp) {
        for _ in 0..PROMOTE_JOBS_MAX {
            let first = self.later.first_entry().filter(|entry| entry.key().0 <= now);
            let Some(job) = first.map(OccupiedEntry::remove) else { return };
            self.open.insert(self.rank(&job), job);
        }
    }

    /// Computes the lane's position at `now`.
    pub(in crate::stores) fn positioned(&mut self, now: Timestamp) -> Position {
        if self.hold.is_some() {
            return Position::default();
        }
        self.promote(now);
        if self.held || self.paused {
            return Position::default();
        }
        let next_later = self.first_later().map(|job| job.run_at);
        if self.mode == Mode::Accumulate {
            return self.positioned_whole(now);
        }
        let Some((_, head)) = self.first() else {
            return Position { ready: None, wake: next_later, due: next_later };
        };
        let route = if self.mode == Mode::Fifo { self.route } else { head.route };
        let (class, due) = (class_of(route, head.crashes), head.run_at);
        match due <= now {
            true => {
                let ready = Some((class, head.priority, due));
                Position { ready, wake: next_later, due: Some(due) }
            }
            false => Position { ready: None, wake: Some(due), due: Some(due) },
        }
    }

    /// The same in `accumulate`, where the lane is due as a whole.
    fn positioned_whole(&self, now: Timestamp) -> Position {
        if self.has_no_open() {
            return Position::default();
        }
        let (class, due) = (class_of(self.route, self.crashes), Some(self.due));
        match self.due <= now {
            true => {
                let soonest = self.soonest().unwrap_or_default();
                Position { ready: Some((class, soonest, self.due)), wake: None, due }
            }
            false => Position { ready: None, wake: due, due },
        }
    }

    /// Closes the jobs of a turn and returns them in the order of execution. `None`, with the lane unchanged, if they
    /// do not fit.
    pub(in crate::stores) fn close(
        &mut self,
        queue: &Queue,
        series_max: u32,
        now: Timestamp,
        room: &mut Room,
    ) -> Option<Vec<Entry>> {
        if self.open.is_empty() {
            self.promote(now);
        }
        let Some((_, head)) = self.first() else {
            return Some(Vec::new());
        };
        let (together, most) = match self.mode {
            Mode::Accumulate => (TURN_JOBS_MAX, TURN_JOBS_MAX),
            Mode::Fifo if head.retry_count < 0 && head.crashes == 0 => {
                let series_max = if head.may_join() { series_max } else { 1 };
                (queue.take as usize, queue.take.max(series_max) as usize)
            }
            _ => (1, 1),
        };
        let (task, mut bytes) = (head.task.clone(), 0);
        let mut fits = |place: usize, job: &Entry| {
            let fresh = job.retry_count < 0 && job.crashes == 0 && job.run_at <= now;
            let joins = match place < together {
                true => self.mode == Mode::Accumulate || fresh,
                false => fresh && job.may_join(),
            };
            bytes += job.payload.as_bytes().len();
            let bytes_max = if place < together { TURN_BYTES_MAX } else { SERIES_BYTES_MAX };
            place == 0 || job.task == task && bytes <= bytes_max && joins
        };
        let ranks: Vec<Rank> = self
            .open
            .iter()
            .take(most)
            .enumerate()
            .take_while(|(place, (_, job))| fits(*place, job))
            .map(|(_, (rank, _))| *rank)
            .collect();
        // The one at which the turn ends, too.
        let behind = self.open.keys().nth(ranks.len()).copied().unwrap_or(LAST);
        let last = if ranks.len() < most { Some(&behind) } else { ranks.last() };
        self.unread.need_to(last);
        let payloads = ranks.iter().map(|rank| self.open[rank].payload.as_bytes().len());
        room.take(payloads).then(|| ranks.into_iter().filter_map(|rank| self.take(rank)).collect())
    }
}
