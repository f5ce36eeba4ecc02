//! Rows of the tables as structs: a job in any table, and the head of a lane.

use std::sync::Arc;

use rusqlite::Row;

use crate::model::{
    Digest, Dues, JobId, JobOptions, LaneId, Mode, Payload, Queue, Timestamp, TurnJob,
};
use crate::stores::order::sortable;
use crate::stores::state::rank::score_rank;

pub(super) type Sql<T> = rusqlite::Result<T>;

/// The state of a lane.
pub(super) mod state {
    pub(crate) const READY: i64 = 0;
    pub(crate) const SCHEDULED: i64 = 1;
    pub(crate) const CLAIMED: i64 = 2;
    pub(crate) const PARKED: i64 = 3;
}

/// Bits of `lane.flags`.
pub(super) mod flag {
    pub(crate) const HELD: i64 = 1;
    pub(crate) const PAUSED: i64 = 2;
    pub(crate) const ALIASES: i64 = 4;
    pub(crate) const FLAGGED: i64 = 8;
    pub(crate) const BODIES: i64 = 16;
    pub(crate) const PROGRESS: i64 = 32;
    pub(crate) const CLOSED_ITEMS: i64 = 64;
    pub(crate) const BATCH: i64 = 128;
}

/// The generation of jobs that a claim closed individually; below every lane's `open`.
pub(super) const TAKEN: i64 = -1;
/// The generation of `exclusive` jobs that are not due yet, ordered by their time.
pub(super) const LATER: i64 = i64::MAX;

/// The columns of a job, in the order of [`Job::read`].
pub(super) const JOB_COLUMNS: &str = "seq, gen, created, score, jprio, run_at, attempts, started, flagged, expires, jroute, retry, crashes, error, task, digest, opts, aliases, payload";

/// A job, from any of the tables.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub seq: i64,
    pub gen_: i64,
    pub created: i64,
    pub score: f64,
    pub prio: i64,
    pub run_at: i64,
    pub attempts: i64,
    pub started: Option<i64>,
    pub flagged: bool,
    pub expires: Option<i64>,
    pub route: i64,
    pub retry: i64,
    pub crashes: i64,
    pub error: Option<Arc<str>>,
    pub task: Option<Arc<str>>,
    pub digest: Option<Digest>,
    /// JSON of [`JobOptions`].
    pub options: Option<String>,
    /// Ids of equal jobs that were merged into it, joined by commas.
    pub aliases: Option<String>,
    /// `None` if it is too large for the row: then it is in `body`.
    pub payload: Option<Vec<u8>>,
}

impl Job {
    /// Reads [`JOB_COLUMNS`], starting at column `at`.
    pub(super) fn read(row: &Row<'_>, at: usize) -> Sql<Self> {
        Ok(Self {
            seq: row.get(at)?,
            gen_: row.get(at + 1)?,
            created: row.get(at + 2)?,
            score: row.get(at + 3)?,
            prio: row.get(at + 4)?,
            run_at: row.get(at + 5)?,
            attempts: row.get(at + 6)?,
            started: row.get(at + 7)?,
            flagged: row.get(at + 8)?,
            expires: row.get(at + 9)?,
            route: row.get(at + 10)?,
            retry: row.get(at + 11)?,
            crashes: row.get(at + 12)?,
            error: row.get(at + 13)?,
            task: row.get(at + 14)?,
            digest: row.get(at + 15)?,
            options: row.get(at + 16)?,
            aliases: row.get(at + 17)?,
            payload: row.get(at + 18)?,
        })
    }

    pub(super) fn id(&self, queue: u32) -> JobId {
        JobId::new(Timestamp::from_micros(self.created), queue, 0, self.seq as u64)
    }

    /// Whether it was tried elsewhere, or made there.
    pub(super) fn has_past(&self) -> bool {
        self.attempts > 0 || self.started.is_some() || self.error.is_some()
    }

    pub(super) fn options(&self) -> Option<Arc<JobOptions>> {
        self.options.as_deref().and_then(|text| serde_json::from_str(text).ok())
    }

    /// The batch that it belongs to.
    pub(super) fn batch(&self) -> Option<String> {
        if self.may_have_batch() { batch_in(self.options.as_deref()?) } else { None }
    }

    /// False if it has none.
    pub(super) fn may_have_batch(&self) -> bool {
        self.options.as_deref().is_some_and(|text| text.contains("\"batch\":"))
    }

    pub(super) fn into_turn_job(self, queue: u32, payload: Vec<u8>) -> TurnJob {
        TurnJob {
            id: self.id(queue),
            options: self.options(),
            payload: Payload::from_bytes(payload),
            task: self.task,
            score: self.score,
            priority: self.prio as u16,
            run_at: Timestamp::from_micros(self.run_at),
            attempt: self.attempts as u32 + 1,
        }
    }

    /// Sort key of a lane's open jobs; if equal payloads merge, the digest.
    pub(super) fn order(&self, queue: &Queue) -> Vec<u8> {
        let two = |a: i64, b: i64| {
            let mut order = Vec::with_capacity(24);
            order.extend_from_slice(&sortable(a));
            order.extend_from_slice(&sortable(b));
            order
        };
        match (queue.mode, self.digest) {
            (_, Some(digest)) if queue.merges() => digest.to_vec(),
            (Mode::Exclusive, _) if self.gen_ == LATER => two(self.run_at, self.seq),
            (Mode::Exclusive, _) => {
                let mut order = two(self.prio, self.run_at);
                order.extend_from_slice(&sortable(self.seq));
                order
            }
            _ => two(score_rank(self.score), self.seq),
        }
    }

    /// (score, arrival).
    pub(super) fn rank(&self) -> (i64, i64) {
        (score_rank(self.score), self.seq)
    }
}

/// The columns of a lane's head, in the order of [`Head::read`].
pub(super) const HEAD_COLUMNS: &str = "id, q, key, st, class, prio, due, wake, tok, open, n, flags, retry, crashes, error, next_due, route, claimed_at, beat_at,
 iif(st = 0, EXISTS (SELECT 1 FROM ready r WHERE r.q = lane.q AND r.class = lane.class AND r.prio = lane.prio
                     AND r.due = lane.due AND r.id = lane.id), 0)";
pub(super) const HEAD_COUNT: usize = 20;

/// A lane without its jobs.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub id: i64,
    pub queue: u32,
    pub key: Option<Arc<str>>,
    pub st: i64,
    pub class: i64,
    pub prio: i64,
    pub due: i64,
    pub wake: Option<i64>,
    pub token: i64,
    pub open: i64,
    pub items: i64,
    pub flags: i64,
    /// The lane's own in `accumulate`, else the slot's.
    pub retry: i64,
    pub crashes: i64,
    pub error: Option<Arc<str>>,
    /// See [`Dues::next`].
    pub next_due: Option<i64>,
    pub route: i64,
    pub claimed_at: Option<i64>,
    pub beat_at: Option<i64>,
    /// Whether it is in `ready`.
    pub in_ready: bool,
}

/// A lane's place in `ready`: class, priority, due time.
pub(super) type Place = (i64, i64, i64);

impl Head {
    pub(super) fn read(row: &Row<'_>) -> Sql<Self> {
        Ok(Self {
            id: row.get(0)?,
            queue: row.get(1)?,
            key: row.get(2)?,
            st: row.get(3)?,
            class: row.get(4)?,
            prio: row.get(5)?,
            due: row.get(6)?,
            wake: row.get(7)?,
            token: row.get(8)?,
            open: row.get(9)?,
            items: row.get(10)?,
            flags: row.get(11)?,
            retry: row.get(12)?,
            crashes: row.get(13)?,
            error: row.get(14)?,
            next_due: row.get(15)?,
            route: row.get(16)?,
            claimed_at: row.get(17)?,
            beat_at: row.get(18)?,
            in_ready: row.get(19)?,
        })
    }

    pub(super) fn lane_id(&self) -> LaneId {
        LaneId { queue: self.queue, shard: 0, number: self.id as u64 }
    }

    pub(super) fn dues(&self) -> Dues {
        let time = Timestamp::from_micros;
        Dues { due: time(self.due), next: self.next_due.map(time) }
    }

    pub(super) fn set_dues(&mut self, dues: Dues) {
        (self.due, self.next_due) = (dues.due.as_micros(), dues.next.map(Timestamp::as_micros));
    }

    /// Its place in `ready`, if it belongs there.
    pub(super) fn place(&self) -> Option<Place> {
        (self.st == state::READY).then_some((self.class, self.prio, self.due))
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.st == state::CLAIMED
    }
}

/// A lane with the job in its slot, if any.
#[derive(Clone, Debug)]
pub(super) struct LaneRow {
    pub head: Head,
    pub slot: Option<Job>,
}

impl LaneRow {
    /// Reads the columns of [`lane_columns`].
    pub(super) fn read(row: &Row<'_>) -> Sql<Self> {
        let head = Head::read(row)?;
        let slot = match row.get_ref(HEAD_COUNT)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(Job::read(row, HEAD_COUNT)?),
        };
        Ok(Self { head, slot })
    }

    /// The slot's job, if the current claim closed it.
    pub(super) fn closed_slot(&self) -> Option<&Job> {
        self.slot.as_ref().filter(|job| self.head.is_claimed() && job.gen_ < self.head.open)
    }

    /// The slot's job, if it is waiting.
    pub(super) fn open_slot(&self) -> Option<&Job> {
        self.slot.as_ref().filter(|job| !self.head.is_claimed() || job.gen_ >= self.head.open)
    }
}

/// The columns that [`LaneRow::read`] reads.
pub(super) fn lane_columns() -> String {
    format!("{HEAD_COLUMNS}, {JOB_COLUMNS}")
}

/// The batch that options name.
pub(super) fn batch_in(options: &str) -> Option<String> {
    serde_json::from_str::<JobOptions>(options).ok()?.batch
}
