//! Rows of lanes and jobs, and the model's structs that they are.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::error::Try;
use super::sql::{Columns, bytes, json, maybe, maybe_bytes, maybe_text};
use crate::clock::Timestamp;
use crate::id::{JobId, LaneId, NodeId, Token};
use crate::job::JobOptions;
use crate::payload::{Digest, Payload};
use crate::queue::{Mode, Queue};
use crate::store::memory::lane::{Entry, Hold, Lane, Position, score_rank};
use crate::store::memory::state::Ended;
use crate::store::request::Lease;
use crate::store::view::JobState;

/// What a lane does.
pub(super) mod st {
    pub(crate) const READY: i64 = 0;
    pub(crate) const SCHEDULED: i64 = 1;
    pub(crate) const CLAIMED: i64 = 2;
    pub(crate) const PARKED: i64 = 3;
    /// Nobody but the transaction that made it ever sees such a lane.
    pub(crate) const OPENING: i64 = 9;
}

const HELD: i64 = 1;
const PAUSED: i64 = 2;
/// The generation of jobs that a claim closed one by one; below every lane's.
const TAKEN: i64 = -1;

pub(super) const LANE_COLUMNS: &str = "id, q, k, age, st, class, prio, due, wake, tok, open, n, c, flags, retry, crashes, error, \
    next_due, route, node, own, ttl, until, claimed_at, beat_at, progress";

/// A lane, as its table holds it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaneRow {
    pub id: u64,
    pub q: u32,
    pub k: Option<Arc<str>>,
    pub age: i64,
    pub st: i64,
    pub class: i64,
    pub prio: i64,
    pub due: i64,
    pub wake: Option<i64>,
    pub tok: i64,
    pub open: i64,
    pub n: i64,
    pub c: i64,
    pub flags: i64,
    pub retry: i64,
    pub crashes: i64,
    pub error: Option<Arc<str>>,
    pub next_due: Option<i64>,
    pub route: i64,
    pub node: Option<Arc<str>>,
    pub own: bool,
    pub ttl: i64,
    pub until: i64,
    pub claimed_at: i64,
    pub beat_at: i64,
    pub progress: Option<Arc<str>>,
}

impl LaneRow {
    pub(super) fn read(row: &mut Columns) -> Try<Self> {
        Ok(Self {
            id: row.int()? as u64,
            q: row.int()? as u32,
            k: row.maybe_text()?,
            age: row.int()?,
            st: row.int()?,
            class: row.int()?,
            prio: row.int()?,
            due: row.int()?,
            wake: row.maybe_int()?,
            tok: row.int()?,
            open: row.int()?,
            n: row.int()?,
            c: row.int()?,
            flags: row.int()?,
            retry: row.int()?,
            crashes: row.int()?,
            error: row.maybe_text()?,
            next_due: row.maybe_int()?,
            route: row.int()?,
            node: row.maybe_text()?,
            own: row.int()? != 0,
            ttl: row.int()?,
            until: row.int()?,
            claimed_at: row.int()?,
            beat_at: row.int()?,
            progress: row.maybe_text()?,
        })
    }

    /// The lane without its jobs.
    pub(super) fn lane(&self, mode: Mode) -> Lane {
        let time = Timestamp::from_micros;
        let id = LaneId { queue: self.q, shard: 0, number: self.id };
        let mut lane = Lane::new(id, mode, self.k.clone(), time(self.due), self.route as u32);
        lane.token = Token(self.tok);
        lane.progress.clone_from(&self.progress);
        lane.next_due = self.next_due.map(time);
        (lane.held, lane.paused) = (self.flags & HELD != 0, self.flags & PAUSED != 0);
        if mode == Mode::Accumulate {
            (lane.retry_count, lane.crashes) = (self.retry as i32, self.crashes as u32);
            lane.error.clone_from(&self.error);
        }
        let ready = (self.class as u32, self.prio as u16, time(self.due));
        lane.position = match self.st {
            st::READY => Position {
                ready: Some(ready),
                wake: self.wake.map(time),
                due: Some(time(self.due)),
            },
            st::SCHEDULED => {
                Position { ready: None, wake: self.wake.map(time), due: self.wake.map(time) }
            }
            _ => Position::default(),
        };
        lane.hold = self.hold();
        lane
    }

    fn hold(&self) -> Option<Hold> {
        let node = self.node.clone().filter(|_| self.st == st::CLAIMED)?;
        let ttl = Duration::from_micros(self.ttl.max(0) as u64);
        Some(Hold {
            node: NodeId(node),
            lease: if self.own { Lease::Own { ttl } } else { Lease::Node { ttl } },
            until: Timestamp::from_micros(self.until),
            claimed_at: Timestamp::from_micros(self.claimed_at),
            beat_at: Timestamp::from_micros(self.beat_at),
            closed: Vec::new(),
        })
    }

    /// The row of a lane of the model, of which `before` is the row that it was read from and `n`
    /// the number of its open jobs. `closed_here`: its closed jobs are all in the model.
    pub(super) fn of(lane: &Lane, before: Option<&Self>, n: i64, closed_here: bool) -> Self {
        let hold = lane.hold.as_ref();
        let (retry, crashes, error) = lane.trouble();
        let (mut retry, mut crashes, mut error) =
            (i64::from(retry), i64::from(crashes), error.cloned());
        let open = before.map_or(0, |before| before.open);
        let was_claimed = before.is_some_and(|before| before.st == st::CLAIMED);
        let mut c = hold.map_or(0, |hold| hold.closed.len() as i64);
        if let Some(before) = before.filter(|_| hold.is_some() && was_claimed && !closed_here) {
            c = before.c;
            if lane.mode != Mode::Accumulate {
                (retry, crashes) = (before.retry, before.crashes);
                error.clone_from(&before.error);
            }
        }
        // A lane of which no job was read shows what it showed.
        let is_bare = lane.open_count() == 0 && hold.is_none_or(|hold| hold.closed.is_empty());
        if let Some(before) = before.filter(|_| is_bare && lane.mode != Mode::Accumulate) {
            (retry, crashes) = (before.retry, before.crashes);
            error.clone_from(&before.error);
        }
        let position = lane.position;
        let state = match (hold, position.ready) {
            (Some(_), _) => st::CLAIMED,
            _ if lane.held || lane.paused => st::PARKED,
            (None, Some(_)) => st::READY,
            (None, None) => st::SCHEDULED,
        };
        let (class, prio, at) = position.ready.unwrap_or((0, 0, lane.due));
        let due = if lane.mode == Mode::Accumulate { lane.due } else { at };
        // With nothing left open, raising the generation closes all jobs without touching them.
        let closes_all = hold.is_some() && !was_claimed && n == 0;
        Self {
            id: lane.id.number,
            q: lane.id.queue,
            k: lane.key.clone(),
            age: before.map_or(0, |before| before.age),
            st: state,
            class: i64::from(class),
            prio: i64::from(prio),
            due: due.as_micros(),
            wake: position.wake.map(Timestamp::as_micros),
            tok: lane.token.0,
            open: open + i64::from(closes_all),
            n,
            c,
            flags: i64::from(lane.held) * HELD + i64::from(lane.paused) * PAUSED,
            retry,
            crashes,
            error,
            next_due: lane.next_due.map(Timestamp::as_micros),
            route: i64::from(lane.route),
            node: hold.map(|hold| hold.node.0.clone()),
            own: hold.is_some_and(|hold| matches!(hold.lease, Lease::Own { .. })),
            ttl: hold.map_or(0, |hold| micros(hold.lease.ttl())),
            until: hold.map_or(0, |hold| hold.until.as_micros()),
            claimed_at: hold.map_or(0, |hold| hold.claimed_at.as_micros()),
            beat_at: hold.map_or(0, |hold| hold.beat_at.as_micros()),
            progress: lane.progress.clone(),
        }
    }

    /// The values of [`LANE_COLUMNS`].
    pub(super) fn values(&self, id: &str) -> String {
        format!(
            "({id},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{})",
            self.q,
            maybe_text(self.k.as_deref()),
            self.age,
            self.st,
            self.class,
            self.prio,
            self.due,
            maybe(self.wake),
            self.tok,
            self.open,
            self.n,
            self.c,
            self.flags,
            self.retry,
            self.crashes,
            maybe_text(self.error.as_deref()),
            maybe(self.next_due),
            self.route,
            maybe_text(self.node.as_deref()),
            i64::from(self.own),
            self.ttl,
            self.until,
            self.claimed_at,
            self.beat_at,
            maybe_text(self.progress.as_deref()),
        )
    }
}

pub(super) const JOB_COLUMNS: &str = "j.seq, j.q, j.lane, j.gen, j.later, j.ord, j.created, j.score, j.prio, j.run_at, \
    j.attempts, j.started, j.flagged, j.expires, j.route, j.retry, j.crashes, j.error, j.task, j.digest, j.opts, \
    j.aliases, j.k, j.state, j.at, j.until";

/// A job, as its table holds it.
#[derive(Clone, Debug)]
pub(super) struct JobRow {
    pub q: u32,
    pub lane: Option<u64>,
    pub gen_: i64,
    pub later: bool,
    pub k: Option<Arc<str>>,
    pub state: i64,
    pub at: i64,
    pub until: Option<i64>,
    pub entry: Entry,
}

/// Where the job of a row stands.
pub(super) const WAITING: i64 = 0;
pub(super) const SUCCEEDED: i64 = 1;
pub(super) const CANCELED: i64 = 2;
pub(super) const DEAD: i64 = 3;

impl JobRow {
    /// Reads [`JOB_COLUMNS`]. The payload is another's affair.
    pub(super) fn read(row: &mut Columns) -> Try<Self> {
        let (seq, q) = (row.int()? as u64, row.int()? as u32);
        let lane = row.maybe_int()?.map(|lane| lane as u64);
        let (gen_, later) = (row.int()?, row.int()? != 0);
        row.bytes()?;
        let created_at = Timestamp::from_micros(row.int()?);
        let time = Timestamp::from_micros;
        let (score, priority, run_at) = (row.float()?, row.int()? as u16, time(row.int()?));
        let (attempts, started_at) = (row.int()? as u32, row.maybe_int()?.map(time));
        let flagged = row.int()? != 0;
        row.maybe_int()?;
        let (route, retry_count, crashes) =
            (row.int()? as u32, row.int()? as i32, row.int()? as u32);
        let (error, task) = (row.maybe_text()?, row.maybe_text()?);
        let digest = row.bytes()?.and_then(|bytes| Digest::try_from(bytes).ok());
        let options: Option<Box<JobOptions>> = row.json()?;
        let aliases = row.bytes()?.unwrap_or_default();
        let aliases = aliases.as_chunks::<16>().0.iter().map(|id| JobId::from_bytes(*id)).collect();
        let id = JobId::new(created_at, q, 0, seq);
        let payload = Payload::from_bytes(Vec::new());
        let entry = Entry {
            id,
            task,
            payload,
            digest,
            score,
            priority,
            run_at,
            created_at,
            started_at,
            attempts,
            retry_count,
            crashes,
            error,
            options,
            route,
            flagged,
            aliases,
        };
        let k = row.maybe_text()?;
        let (state, at, until) = (row.int()?, row.int()?, row.maybe_int()?);
        Ok(Self { q, lane, gen_, later, k, state, at, until, entry })
    }

    /// The row of a job in a lane.
    pub(super) fn live(entry: &Entry, lane: &LaneRow, gen_: i64, later: bool) -> Self {
        Self {
            q: lane.q,
            lane: Some(lane.id),
            gen_,
            later,
            k: None,
            state: WAITING,
            at: 0,
            until: None,
            entry: entry.clone(),
        }
    }

    /// The row of a job that has ended.
    pub(super) fn ended(ended: &Ended) -> Self {
        let (state, until) = match ended.state {
            JobState::Succeeded => (SUCCEEDED, Some(ended.until.as_micros())),
            JobState::Failed => (DEAD, None),
            _ => (CANCELED, Some(ended.until.as_micros())),
        };
        Self {
            q: ended.queue,
            lane: None,
            gen_: 0,
            later: false,
            k: ended.key.clone(),
            state,
            at: ended.at.as_micros(),
            until,
            entry: ended.entry.clone(),
        }
    }

    pub(super) fn into_ended(self) -> Ended {
        Ended {
            queue: self.q,
            key: self.k,
            state: match self.state {
                SUCCEEDED => JobState::Succeeded,
                DEAD => JobState::Failed,
                _ => JobState::Canceled,
            },
            at: Timestamp::from_micros(self.at),
            until: self.until.map_or(Timestamp::MAX, Timestamp::from_micros),
            entry: self.entry,
        }
    }

    /// Whether both say the same, apart from the payload, which never changes.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (a, b) = (&self.entry, &other.entry);
        (self.lane, self.gen_, self.later, self.state, self.at, self.until)
            == (other.lane, other.gen_, other.later, other.state, other.at, other.until)
            && self.k == other.k
            && a.score.to_bits() == b.score.to_bits()
            && (a.priority, a.run_at, a.started_at, a.attempts, a.retry_count, a.crashes)
                == (b.priority, b.run_at, b.started_at, b.attempts, b.retry_count, b.crashes)
            && (a.route, a.flagged, a.digest) == (b.route, b.flagged, b.digest)
            && a.error == b.error
            && a.options == b.options
            && a.aliases == b.aliases
    }

    /// The values of [`JOB_COLUMNS`], and that of the payload.
    pub(super) fn values(&self, seq: &str, queue: &Queue, payload: Option<&[u8]>) -> Try<String> {
        let entry = &self.entry;
        let options = entry.options.as_ref().map(json).transpose()?;
        let expires = entry.options.as_ref().and_then(|options| options.expires_at);
        let mut aliases = Vec::with_capacity(entry.aliases.len() * 16);
        for alias in &entry.aliases {
            aliases.extend_from_slice(&alias.to_bytes());
        }
        let mut text = String::new();
        let _ = write!(
            text,
            "({seq},{},{},{},{},{},{},{:?},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{})",
            self.q,
            maybe(self.lane.map(|lane| lane as i64)),
            self.gen_,
            i64::from(self.later),
            bytes(&self.order(queue)),
            entry.created_at.as_micros(),
            entry.score,
            entry.priority,
            entry.run_at.as_micros(),
            entry.attempts,
            maybe(entry.started_at.map(Timestamp::as_micros)),
            i64::from(entry.flagged),
            maybe(expires.map(Timestamp::as_micros)),
            entry.route,
            entry.retry_count,
            entry.crashes,
            maybe_text(entry.error.as_deref()),
            maybe_text(entry.task.as_deref()),
            maybe_bytes(entry.digest.as_ref().map(|digest| &digest[..])),
            maybe_text(options.as_deref()),
            maybe_bytes((!aliases.is_empty()).then_some(&aliases)),
            maybe_text(self.k.as_deref()),
            self.state,
            self.at,
            maybe(self.until),
            maybe_bytes(payload),
        );
        Ok(text)
    }

    /// What orders (or, where equal payloads merge, identifies) the open jobs of a lane; equal ones
    /// stand in order of arrival.
    fn order(&self, queue: &Queue) -> Vec<u8> {
        let entry = &self.entry;
        match (queue.mode, entry.digest) {
            (Mode::Accumulate, Some(digest)) => digest.to_vec(),
            (Mode::Exclusive, _) if self.later => later_order(entry.run_at),
            (Mode::Exclusive, _) => {
                let mut order = vec![0];
                order.extend_from_slice(&sortable(i64::from(entry.priority)));
                order.extend_from_slice(&sortable(entry.run_at.as_micros()));
                order
            }
            _ => sortable(score_rank(entry.score)).to_vec(),
        }
    }
}

/// The generation that a job has, which had `before`, in a lane of generation `open`.
pub(super) fn generation(before: Option<i64>, open: i64, is_closed: bool) -> i64 {
    match (before, is_closed) {
        (Some(before), true) if before < open => before,
        (_, true) => TAKEN,
        (Some(before), false) if before >= open => before,
        (_, false) => open,
    }
}

/// The order of a job of `exclusive` that is not due yet.
pub(super) fn later_order(run_at: Timestamp) -> Vec<u8> {
    let mut order = vec![1];
    order.extend_from_slice(&sortable(run_at.as_micros()));
    order
}

/// Bytes that order as the number does.
fn sortable(number: i64) -> [u8; 8] {
    ((number as u64) ^ (1 << 63)).to_be_bytes()
}

pub(super) fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}
