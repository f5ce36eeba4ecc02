//! Why a bridge does not move jobs now.

use std::fmt;

use crate::protocol::document::BridgeState;

#[derive(Debug)]
pub(super) enum Fault {
    /// The other system's Redis does not answer, or refuses.
    Source(String),
    Store(seriatim::Error),
    /// Something must be decided or changed first.
    Held(String),
    /// Jobs are in flight that another configuration took.
    Foreign(String),
}

impl Fault {
    /// What Redis says, with what it was about.
    pub(super) fn of_redis(error: &redis::RedisError, keys: &str) -> Self {
        let said = error.to_string();
        let advice = if said.contains("WRONGTYPE") {
            format!(
                "; look at the types of {keys}: rename or delete the key that holds something else"
            )
        } else if said.contains("OOM") {
            format!(
                "; it is at `maxmemory`, and moving jobs safely from {keys} needs some memory before it frees any: make room, or raise the limit"
            )
        } else {
            String::new()
        };
        Self::Source(said + &advice)
    }

    pub(super) fn state(&self) -> BridgeState {
        match self {
            Self::Source(_) => BridgeState::SourceAway,
            Self::Store(_) => BridgeState::StoreAway,
            Self::Held(_) | Self::Foreign(_) => BridgeState::Held,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(why) | Self::Held(why) | Self::Foreign(why) => f.write_str(why),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl From<redis::RedisError> for Fault {
    fn from(error: redis::RedisError) -> Self {
        Self::Source(error.to_string())
    }
}

impl From<seriatim::Error> for Fault {
    fn from(error: seriatim::Error) -> Self {
        Self::Store(error)
    }
}
