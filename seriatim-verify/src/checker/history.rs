//! The events of a history.

use std::fmt;
use std::io::BufRead;

use serde::{Deserialize, Serialize};
use seriatim::store::{JobState, PushStatus, Throttled};
use seriatim::text::{cut_middle, one_line};
use seriatim::{
    Groups, JobId, Limit, Merge, Mode, Queue,
    store::{Fate, LaneId, Token, Turn},
};

/// Longest line of a history, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a line that an error quotes.
const QUOTED_BYTES_MAX: usize = 1_000;

/// An event seen by a producer or a worker. Times are microseconds of one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// How the jobs of a queue relate.
    Queue {
        /// The queue.
        queue: String,
        /// Its mode.
        mode: Mode,
        /// How equal payloads merge.
        #[serde(default)]
        merge: Merge,
        /// Its limit.
        #[serde(default, skip_serializing_if = "is_unlimited")]
        limit: Limit,
        /// What its groups get, if it has some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        groups: Option<Groups>,
        /// For how long a push throttles its key, in microseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        throttle_us: Option<u64>,
        /// What happens to further ones.
        #[serde(default, skip_serializing_if = "merges")]
        throttled: Throttled,
    },
    /// A push was answered, or its answer was lost.
    Push {
        /// When it was sent.
        sent_at: i64,
        /// When it was answered.
        at: i64,
        /// The queue.
        queue: String,
        /// The key.
        key: Option<String>,
        /// The score, if one was given.
        score: Option<f64>,
        /// Identifies payload and task: equal ones have equal tags.
        tag: String,
        /// The result.
        result: PushResult,
        /// The job's id, if it was acknowledged.
        job_id: Option<JobId>,
        /// Whether it was a new job.
        status: Option<PushStatus>,
        /// If its key was throttled: until when, by the store's clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        again_at: Option<i64>,
    },
    /// A handler starts a turn.
    Start {
        /// When.
        at: i64,
        /// Which process.
        actor: String,
        /// The queue.
        queue: String,
        /// The key.
        key: Option<String>,
        /// The lane.
        lane: LaneId,
        /// The token of its claim.
        token: Token,
        /// When the store made the claim.
        claimed_at: i64,
        /// The group of its jobs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        /// The jobs delivered, in order.
        jobs: Vec<Handed>,
    },
    /// A handler has ended.
    End {
        /// When.
        at: i64,
        /// The lane.
        lane: LaneId,
        /// The token.
        token: Token,
    },
    /// A settle is about to be sent. If no answer follows, its process died or the answer was lost: it may or may not
    /// have been executed.
    Settling {
        /// When.
        at: i64,
        /// The queue.
        queue: String,
        /// The key.
        key: Option<String>,
        /// The lane.
        lane: LaneId,
        /// The token.
        token: Token,
        /// The fates of the turn's jobs.
        fates: Vec<JobFate>,
    },
    /// The store has answered a settle.
    Settle {
        /// When it was sent.
        sent_at: i64,
        /// When it was answered.
        at: i64,
        /// The queue.
        queue: String,
        /// The key.
        key: Option<String>,
        /// The lane.
        lane: LaneId,
        /// The token.
        token: Token,
        /// When the store made the claim that the settle ends.
        claimed_at: Option<i64>,
        /// Whether it was executed.
        accepted: bool,
        /// The fates of the turn's jobs.
        fates: Vec<JobFate>,
        /// One word: done, retry, snooze, bury, cancel, release, crash.
        cause: String,
    },
    /// A claim was taken over.
    Rescue {
        /// When the store answered.
        at: i64,
        /// The queue.
        queue: String,
        /// The key.
        key: Option<String>,
        /// The lane.
        lane: LaneId,
        /// The new token.
        token: Token,
        /// Its first job.
        job_id: Option<JobId>,
        /// Whether a person released the claim; otherwise it had expired.
        #[serde(default, skip_serializing_if = "is_false")]
        by_person: bool,
    },
    /// The store has confirmed a heartbeat of a process: its claims cannot expire before `until`.
    Lease {
        /// When it was answered.
        at: i64,
        /// Which process.
        actor: String,
        /// Under which name: another one if it had been declared dead.
        node: String,
        /// Until when its claims last if there is no further heartbeat.
        until: i64,
    },
    /// A process has died: its handlers ended with it.
    Died {
        /// When.
        at: i64,
        /// Which.
        actor: String,
    },
    /// An administrator requeued a dead job: it may run after later ones, and once more.
    Requeue {
        /// When.
        at: i64,
        /// The job.
        job_id: JobId,
    },
    /// A waiting job was removed by an administrator or expired: deleted, cancelled or buried.
    Removed {
        /// When.
        at: i64,
        /// The job.
        job_id: JobId,
    },
    /// A job that the store still has at the end.
    Final {
        /// The job.
        job_id: JobId,
        /// Its state.
        state: JobState,
    },
    /// All jobs that the store still has are listed: the others are gone.
    FinalEnd {},
}

/// A job as delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handed {
    /// Its id.
    pub job_id: JobId,
    /// Its score.
    pub score: f64,
    /// Identifies payload and task.
    pub tag: String,
}

/// The fate of a job of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFate {
    /// The job.
    pub job_id: JobId,
    /// Its fate.
    #[serde(with = "fate_name")]
    pub fate: Fate,
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushResult {
    /// The store has it.
    Acknowledged,
    /// The answer was lost: the store may or may not have it.
    Unknown,
    /// The store refused it.
    Refused,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_unlimited(limit: &Limit) -> bool {
    !limit.is_set()
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn merges(throttled: &Throttled) -> bool {
    *throttled == Throttled::Merge
}

impl Event {
    /// The definition of a queue.
    pub fn queue(queue: &Queue) -> Self {
        Self::Queue {
            queue: queue.name.clone(),
            mode: queue.mode,
            merge: queue.merge,
            limit: queue.limit,
            groups: queue.groups.clone(),
            throttle_us: queue.throttle.map(|period| period.as_micros() as u64),
            throttled: queue.throttled,
        }
    }

    /// A claim was taken over, or released by a person: its turn has the new token.
    pub(crate) fn rescued(at: i64, turn: &Turn, by_person: bool) -> Self {
        let (queue, key) = (turn.queue.to_string(), turn.key.as_deref().map(str::to_owned));
        let (lane, token, job_id) = (turn.lane, turn.token, turn.head().map(|job| job.id));
        Self::Rescue { at, queue, key, lane, token, job_id, by_person }
    }

    /// When it happened; `None` for facts about the whole history.
    pub fn at(&self) -> Option<i64> {
        match self {
            Self::Push { at, .. }
            | Self::Start { at, .. }
            | Self::End { at, .. }
            | Self::Settling { at, .. }
            | Self::Settle { at, .. }
            | Self::Rescue { at, .. }
            | Self::Lease { at, .. }
            | Self::Died { at, .. }
            | Self::Requeue { at, .. }
            | Self::Removed { at, .. } => Some(*at),
            Self::Queue { .. } | Self::Final { .. } | Self::FinalEnd {} => None,
        }
    }
}

/// A recorded history.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    /// Incomplete lines: their writer was killed.
    torn: u64,
}

/// A history that cannot be read.
#[derive(Debug)]
pub struct HistoryError {
    name: String,
    line: u64,
    message: String,
}

impl HistoryError {
    pub(super) fn new(name: &str, line: u64, message: String) -> Self {
        Self { name: name.to_owned(), line, message }
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.name, self.message),
            line => write!(f, "{}:{line}: {}", self.name, self.message),
        }
    }
}

impl std::error::Error for HistoryError {}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event.
    pub fn add(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Reads JSON lines. An incomplete line is counted and skipped: its writer was killed, and another one may have gone on
    /// behind it. Any other unreadable line is an error that names it.
    pub fn read(&mut self, reader: impl BufRead, name: &str) -> Result<(), HistoryError> {
        // Split bytes: a writer can be killed in the middle of a character.
        for (i, line) in reader.split(b'\n').enumerate() {
            let at = i as u64 + 1;
            let wrong = |message: String| HistoryError::new(name, at, message);
            let line = line.map_err(|e| wrong(format!("cannot be read: {e}")))?;
            if line.len() > LINE_BYTES_MAX {
                return Err(wrong(format!("is longer than {LINE_BYTES_MAX} bytes")));
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(event) => self.events.push(event),
                Err(e) if e.is_eof() => self.torn += 1,
                Err(e) => {
                    let text = one_line(&e.to_string());
                    let text = cut_middle(&text, QUOTED_BYTES_MAX);
                    return Err(wrong(format!("is not an event: {text}")));
                }
            }
        }
        Ok(())
    }

    /// All events, in the order in which they were added.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The number of incomplete lines.
    pub fn torn_lines(&self) -> u64 {
        self.torn
    }
}

mod fate_name {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use seriatim::store::Fate;

    const NAMES: [(Fate, &str); 6] = [
        (Fate::Done, "done"),
        (Fate::Bury, "bury"),
        (Fate::Cancel, "cancel"),
        (Fate::Expire, "expire"),
        (Fate::Drop, "drop"),
        (Fate::Keep, "keep"),
    ];

    // Serde calls it with a reference to the field.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn serialize<S: Serializer>(fate: &Fate, to: S) -> Result<S::Ok, S::Error> {
        let name = NAMES.iter().find(|(known, _)| known == fate).map_or("?", |(_, name)| name);
        to.serialize_str(name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Fate, D::Error> {
        let text = String::deserialize(from)?;
        let known = NAMES.iter().find(|(_, name)| *name == text).map(|(fate, _)| *fate);
        known.ok_or_else(|| de::Error::custom(format!("no fate is called {text:?}")))
    }
}
