//! Errors of operations. The command line and the HTTP API each add advice.

use std::fmt;
use std::sync::Arc;

use seriatim::store::{JobState, JobView, LaneId, LaneState};
use seriatim::{ErrorKind, JobId};

use super::words::state_name;
use crate::base::text::one_line;

/// The result of an operation, or of a part of it.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) enum Error {
    /// The store refused it or failed.
    Store(seriatim::Error),
    /// `near` asks whether another name was meant.
    NoQueue {
        name: String,
        near: String,
    },
    NoJob {
        id: JobId,
        why: String,
    },
    /// No queue of the store gives such ids.
    ForeignJob(JobId),
    /// Nothing of the key waits or is claimed.
    NoLane {
        queue: String,
        key: String,
    },
    /// The lane of the key is claimed.
    Claimed {
        key: String,
    },
    NotClaimed,
    /// There is no such lane, or it is claimed.
    NoLaneFree {
        queue: String,
    },
    NoNode(String),
    SeveralNodes {
        name: String,
        ids: Vec<String>,
    },
    /// Only a job that waits can be changed.
    NotWaiting {
        job: JobId,
        queue: Arc<str>,
        state: JobState,
    },
    /// Only a dead job of this queue can be edited.
    NotDead {
        job: Box<JobView>,
        queue: String,
    },
    /// The lane of the job is held or paused: another time would not make it run.
    StandsStill {
        queue: Arc<str>,
        key: Option<String>,
        lane: LaneId,
        state: LaneState,
    },
    /// There is no such operation, or it has been forgotten.
    NoOperation(String),
    TooManyOperations {
        open: usize,
    },
    /// This many are deleted or cancelled only if their number is confirmed.
    Unconfirmed {
        count: u64,
        said: Option<u64>,
    },
    /// The cursor is none that a page ended with.
    Cursor,
    /// Lanes in this order have no ranges.
    Unranged {
        field: &'static str,
    },
    /// The end of a range cannot be read.
    Bound {
        field: &'static str,
        why: String,
    },
}

impl Error {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::NoQueue { .. }
            | Self::NoJob { .. }
            | Self::ForeignJob(_)
            | Self::NoLane { .. }
            | Self::NoLaneFree { .. }
            | Self::NoNode(_)
            | Self::NoOperation(_)
            | Self::SeveralNodes { .. } => ErrorKind::NotFound,
            Self::Claimed { .. }
            | Self::NotClaimed
            | Self::TooManyOperations { .. }
            | Self::Unconfirmed { .. }
            | Self::NotWaiting { .. }
            | Self::NotDead { .. }
            | Self::StandsStill { .. } => ErrorKind::Conflict,
            Self::Cursor | Self::Unranged { .. } | Self::Bound { .. } => ErrorKind::Invalid,
        }
    }

    /// Whether the queue does not exist, or not any more. A store that deletes it may still list it.
    pub(crate) fn is_no_queue(&self) -> bool {
        match self {
            Self::Store(error) => {
                error.kind() == ErrorKind::NotFound && error.field() == Some("queue")
            }
            _ => matches!(self, Self::NoQueue { .. }),
        }
    }
}

/// The HTTP status of a request that fails like this; in the audit log, that of a command too.
pub(crate) fn status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Invalid => 400,
        ErrorKind::NotFound => 404,
        ErrorKind::Conflict | ErrorKind::NodeGone => 409,
        ErrorKind::Unsupported => 501,
        ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::ReadOnly => 503,
        _ => 500,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::NoQueue { name, near } => write!(f, "no queue {name:?}{near}"),
            Self::NoJob { id, why } => write!(f, "unknown job {id}: {why}"),
            Self::ForeignJob(id) => {
                write!(f, "unknown job {id}: the id belongs to no queue of this store")
            }
            Self::NoLane { queue, key } => {
                let key = one_line(key);
                write!(f, "queue {queue:?} has no waiting or claimed jobs with key {key:?}")
            }
            Self::Claimed { key } => write!(f, "the lane of {:?} is claimed", one_line(key)),
            Self::NotClaimed => f.write_str("the lane is not claimed"),
            Self::NoLaneFree { queue } => {
                write!(f, "no such lane of {queue}, or it is claimed")
            }
            Self::NoNode(name) => write!(f, "no live node {name:?}"),
            Self::SeveralNodes { name, ids } => {
                let (count, ids) = (ids.len(), ids.join(", "));
                write!(f, "{name:?} matches {count} nodes: use one of {ids}")
            }
            Self::NotWaiting { job, state, .. } => {
                write!(f, "job {job} is not waiting, but {}", state_name(*state))?;
                f.write_str(match state {
                    JobState::Running => ": cancel it, or wait until its turn has ended",
                    JobState::Succeeded | JobState::Canceled => ": push it again",
                    JobState::Queued | JobState::Dead => "",
                })
            }
            Self::NotDead { job, queue } => {
                let id = job.id;
                write!(f, "job {id} is not in the morgue of {queue}: it ")?;
                match *job.queue == **queue {
                    false => write!(f, "is one of queue {}", job.queue),
                    true => write!(f, "is {}", state_name(job.state)),
                }
            }
            Self::StandsStill { key, lane, state, .. } => {
                let what = if *state == LaneState::Paused { "paused" } else { "held" };
                match key {
                    Some(key) => write!(f, "the lane of {:?} is {what}", one_line(key)),
                    None => write!(f, "the lane {lane} is {what}"),
                }
            }
            Self::NoOperation(id) => {
                write!(f, "no operation {:?}: it may have been forgotten", one_line(id))
            }
            Self::TooManyOperations { open } => {
                write!(f, "{open} operations have not ended: wait until one has, or stop one")
            }
            Self::Unconfirmed { count, said: None } => {
                write!(f, "this is for {count}: confirm it with that number")
            }
            Self::Unconfirmed { count, said: Some(said) } => {
                write!(f, "there are {count} now, not {said}: nothing was done")
            }
            Self::Cursor => f.write_str("use the cursor at the end of the page before"),
            Self::Unranged { .. } => f.write_str("ranges need an order by key, due or retries"),
            Self::Bound { why, .. } => f.write_str(why),
        }
    }
}

impl From<seriatim::Error> for Error {
    fn from(error: seriatim::Error) -> Self {
        Self::Store(error)
    }
}
