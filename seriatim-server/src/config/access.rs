//! What tokens let their bearers do, and what is audited.

use serde::{Deserialize, Serialize};

/// What a token lets its bearer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Sees everything, changes nothing.
    Reader,
    /// Sees everything; pauses, resumes, retries, requeues, reschedules, cancels, and quiets nodes. Deletes and
    /// defines nothing.
    Operator,
    /// Pushes jobs, asks for their state and cancels them.
    Producer,
    /// Claims, heartbeats and settles.
    Worker,
    /// Everything.
    Admin,
}

impl Role {
    /// As configurations have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Admin => "admin",
        }
    }
}

/// Which requests are written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Audited {
    /// Actions on queues, lanes, jobs and nodes, and refused requests.
    #[default]
    Actions,
    /// Pushes, claims, heartbeats and settles too: a line for each request.
    All,
}
