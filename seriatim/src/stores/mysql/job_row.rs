//! Rows of jobs, and conversion to and from the model's entries.

use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::Try;
use super::sql::{Columns, bytes, maybe, maybe_bytes, maybe_text};
use crate::contract::JobState;
use crate::model::{Digest, JobId, JobOptions, Mode, Payload, Queue, Timestamp};
use crate::stores::json::json;
use crate::stores::order::sortable;
use crate::stores::state::Ended;
use crate::stores::state::lane::Entry;
use crate::stores::state::rank::score_rank;

/// The generation of jobs that a claim closed individually; below every lane's.
const TAKEN: i64 = -1;

/// The columns that the three tables with jobs share. In a lane's row each has the prefix `j_`.
pub(super) const BODY_COLUMNS: [&str; 9] =
    ["created", "score", "prio", "run_at", "attempts", "started", "retry", "digest", "rest"];

/// The columns read from `seriatim_job j`.
pub(super) const JOB_COLUMNS: &str = "j.seq, j.q, j.lane, j.gen, NULL, 0, 0, NULL, j.created, j.score, j.prio, j.run_at, \
     j.attempts, j.started, j.retry, j.digest, j.rest";
/// The columns read from `seriatim_ended j`.
pub(super) const ENDED_COLUMNS: &str = "j.seq, j.q, NULL, 0, j.k, j.state, j.at, j.until, j.created, j.score, j.prio, j.run_at, \
     j.attempts, j.started, j.retry, j.digest, j.rest";

/// A job from one of the tables.
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

/// The state of a row's job.
pub(super) const WAITING: i64 = 0;
pub(super) const SUCCEEDED: i64 = 1;
pub(super) const CANCELED: i64 = 2;
pub(super) const DEAD: i64 = 3;

/// The table of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// The lane table: the job opened its lane.
    Lane,
    Job,
    Ended,
}

impl Table {
    /// The payload of a job in this table, for a statement that writes it to another one.
    pub(super) fn payload(self, seq: u64) -> String {
        match self {
            Self::Lane => format!("(SELECT payload FROM seriatim_lane WHERE id = {seq})"),
            Self::Job => format!("(SELECT payload FROM seriatim_job WHERE seq = {seq})"),
            Self::Ended => format!("(SELECT payload FROM seriatim_ended WHERE seq = {seq})"),
        }
    }
}

/// Fields that most jobs do not have.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Rest {
    /// In `exclusive`: was not due yet.
    #[serde(skip_serializing_if = "is_default")]
    later: bool,
    #[serde(skip_serializing_if = "is_default")]
    task: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    error: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    crashes: u32,
    #[serde(skip_serializing_if = "is_default")]
    route: u64,
    #[serde(skip_serializing_if = "is_default")]
    flagged: bool,
    #[serde(skip_serializing_if = "is_default")]
    aliases: Vec<JobId>,
    #[serde(skip_serializing_if = "is_default")]
    options: Option<Arc<JobOptions>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads [`BODY_COLUMNS`], and whether the job is a later one. The payload is read separately.
pub(super) fn read_body(row: &mut Columns, seq: u64, q: u32) -> Try<(Entry, bool)> {
    let time = Timestamp::from_micros;
    let created_at = time(row.int()?);
    let (score, priority, run_at) = (row.float()?, row.int()? as u16, time(row.int()?));
    let (attempts, started_at) = (row.int()? as u32, row.maybe_int()?.map(time));
    let retry_count = row.int()? as i32;
    let digest = row.bytes()?.and_then(|bytes| Digest::try_from(bytes).ok());
    let rest: Rest = row.json()?.unwrap_or_default();
    let entry = Entry {
        id: JobId::new(created_at, q, 0, seq),
        task: rest.task,
        payload: Payload::from_bytes(Vec::new()),
        digest,
        score,
        priority,
        run_at,
        created_at,
        started_at,
        attempts,
        retry_count,
        crashes: rest.crashes,
        error: rest.error,
        options: rest.options,
        route: rest.route,
        flagged: rest.flagged,
        aliases: rest.aliases,
    };
    Ok((entry, rest.later))
}

impl JobRow {
    /// Reads [`JOB_COLUMNS`] or [`ENDED_COLUMNS`].
    pub(super) fn read(row: &mut Columns) -> Try<Self> {
        let (seq, q) = (row.int()? as u64, row.int()? as u32);
        let lane = row.maybe_int()?.map(|lane| lane as u64);
        let (gen_, k) = (row.int()?, row.maybe_text()?);
        let (state, at, until) = (row.int()?, row.int()?, row.maybe_int()?);
        let (entry, later) = read_body(row, seq, q)?;
        Ok(Self { q, lane, gen_, later, k, state, at, until, entry })
    }

    /// The row of a job in this lane.
    pub(super) fn live(entry: Entry, q: u32, lane: u64, gen_: i64, later: bool) -> Self {
        let lane = Some(lane);
        Self { q, lane, gen_, later, k: None, state: WAITING, at: 0, until: None, entry }
    }

    /// The row of an ended job.
    pub(super) fn ended(ended: &Ended) -> Self {
        let (state, until) = match ended.state {
            JobState::Succeeded => (SUCCEEDED, Some(ended.until.as_micros())),
            JobState::Dead => (DEAD, None),
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
                DEAD => JobState::Dead,
                _ => JobState::Canceled,
            },
            at: Timestamp::from_micros(self.at),
            until: self.until.map_or(Timestamp::MAX, Timestamp::from_micros),
            entry: self.entry,
        }
    }

    pub(super) fn table(&self) -> Table {
        match self.lane {
            None => Table::Ended,
            Some(lane) if lane == self.entry.id.seq() => Table::Lane,
            Some(_) => Table::Job,
        }
    }

    /// When it expires, if it has not ended and was never tried.
    pub(super) fn expires_at(&self) -> Option<Timestamp> {
        self.lane.filter(|_| self.entry.attempts == 0).and(self.entry.options.as_ref()?.expires_at)
    }

    /// Whether both rows are equal, apart from the payload, which never changes.
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

    /// The values of [`BODY_COLUMNS`].
    pub(super) fn body(&self) -> Try<[String; 9]> {
        let entry = &self.entry;
        let rest = Rest {
            later: self.later,
            task: entry.task.clone(),
            error: entry.error.clone(),
            crashes: entry.crashes,
            route: entry.route,
            flagged: entry.flagged,
            aliases: entry.aliases.clone(),
            options: entry.options.clone(),
        };
        let rest = if rest == Rest::default() { None } else { Some(json(&rest)?) };
        Ok([
            entry.created_at.as_micros().to_string(),
            format!("{:?}", entry.score),
            entry.priority.to_string(),
            entry.run_at.as_micros().to_string(),
            entry.attempts.to_string(),
            maybe(entry.started_at.map(Timestamp::as_micros)),
            entry.retry_count.to_string(),
            maybe_bytes(entry.digest.as_ref().map(|digest| &digest[..])),
            maybe_text(rest.as_deref()),
        ])
    }

    /// The assignments that change `old` into this row in the same table.
    pub(super) fn changes(&self, old: &Self, queue: &Queue) -> Try<String> {
        let mut text = String::new();
        let prefix = if self.table() == Table::Lane { "j_" } else { "" };
        for ((name, new), old) in BODY_COLUMNS.iter().zip(self.body()?).zip(old.body()?) {
            if new != old {
                let _ = write!(text, "{prefix}{name} = {new},");
            }
        }
        if self.table() != Table::Ended && self.gen_ != old.gen_ {
            let _ = write!(text, "{prefix}gen = {},", self.gen_);
        }
        if self.table() == Table::Job {
            let order = self.order(queue);
            // The sort key changes with the queue's mode.
            if order != old.order(queue) || self.lane != old.lane {
                let lane = maybe(self.lane.map(|lane| lane as i64));
                let _ = write!(text, "lane = {lane}, ord = {},", bytes(&order));
            }
        }
        text.pop();
        Ok(text)
    }

    /// The assignments that write the job into its lane's row.
    pub(super) fn all(&self) -> Try<String> {
        let mut text = format!("j_gen = {}", self.gen_);
        for (name, value) in BODY_COLUMNS.iter().zip(self.body()?) {
            let _ = write!(text, ",j_{name} = {value}");
        }
        Ok(text)
    }

    /// The row of `seriatim_job` or `seriatim_ended`, in the order of [`JobRow::columns`].
    pub(super) fn values(&self, queue: &Queue, payload: String) -> Try<String> {
        let seq = self.entry.id.seq();
        let place = match self.lane {
            Some(lane) => format!("{lane},{},{}", self.gen_, bytes(&self.order(queue))),
            None => {
                let (k, until) = (maybe_text(self.k.as_deref()), maybe(self.until));
                format!("{k},{},{},{until}", self.state, self.at)
            }
        };
        Ok(format!("({seq},{},{place},{},{payload})", self.q, self.body()?.join(",")))
    }

    /// The columns of a table of jobs.
    pub(super) fn columns(table: Table) -> String {
        let place = if table == Table::Job { "lane, gen, ord" } else { "k, state, at, until" };
        format!("seq, q, {place}, {}, payload", BODY_COLUMNS.join(", "))
    }

    /// Sort key of a lane's open jobs; if equal payloads merge, the digest. Ties are in order of arrival.
    fn order(&self, queue: &Queue) -> Vec<u8> {
        let entry = &self.entry;
        match (queue.mode, entry.digest) {
            (_, Some(digest)) if queue.merges() => digest.to_vec(),
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

/// The generation of a job in a lane of generation `open`; `before` is its old one.
pub(super) fn generation(before: Option<i64>, open: i64, is_closed: bool) -> i64 {
    match (before, is_closed) {
        (Some(before), true) if before < open => before,
        (_, true) => TAKEN,
        (Some(before), false) if before >= open => before,
        (_, false) => open,
    }
}

/// The sort key of a job of `exclusive` that is not due yet.
pub(super) fn later_order(run_at: Timestamp) -> Vec<u8> {
    let mut order = vec![1];
    order.extend_from_slice(&sortable(run_at.as_micros()));
    order
}
