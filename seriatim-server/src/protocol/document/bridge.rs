//! Bridges: what each has moved, and what is left.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protocol::value::Time;

/// The bridges of all nodes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Bridges {
    pub(crate) bridges: Vec<Bridge>,
}

/// A bridge.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Bridge {
    pub(crate) name: String,
    /// The pause of all of it, if it is paused: nothing is taken
    pub(crate) paused: Option<BridgePause>,
    pub(crate) sources: Vec<BridgeSource>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BridgePause {
    pub(crate) since: Time,
    /// Who paused it
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

/// A queue of the other system, or one of its sets.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BridgeSource {
    /// The pause of this source alone
    pub(crate) paused: Option<BridgePause>,
    #[serde(flatten)]
    pub(crate) status: BridgeStatus,
}

/// The report of the node that moves its jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BridgeStatus {
    /// `queue:NAME`, `schedule`, `retry`, `dead`; `morgue:NAME` of Lowkiq
    pub(crate) source: String,
    /// The process that moves its jobs
    pub(crate) node: String,
    /// When it reported this
    pub(crate) at: Time,
    pub(crate) state: BridgeState,
    /// Why nothing is moved
    pub(crate) why: Option<String>,
    /// Jobs that left the source
    pub(crate) taken: u64,
    /// Of these, new jobs here; in accumulate also those that merged into waiting ones
    pub(crate) pushed: u64,
    /// Of these, jobs that were here already: a chunk was pushed again
    pub(crate) duplicates: u64,
    /// Jobs that were refused, by reason
    pub(crate) refused: BTreeMap<String, u64>,
    /// Jobs that left the source and are not yet known to be here
    pub(crate) in_flight: u64,
    /// Of these, jobs whose chunk is so old that it cannot be pushed again safely
    pub(crate) in_doubt: u64,
    /// Refused jobs that are kept beside the source
    pub(crate) rejected: u64,
    /// Jobs in the source; of a set, those of the bridge's queues that were seen last
    pub(crate) length: u64,
    /// How long the oldest has been in it, in seconds
    pub(crate) lag: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum BridgeState {
    // Also while nothing is there.
    Moving,
    Paused,
    // Something must be decided, or is not as it was: see `why`.
    Held,
    // The other system's Redis does not answer.
    SourceAway,
    // This store does not accept jobs.
    StoreAway,
}

impl BridgeState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Paused => "paused",
            Self::Held => "held",
            Self::SourceAway => "source away",
            Self::StoreAway => "store away",
        }
    }
}
