//! The figures of all queues, in Lowkiq's shape (L17).

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use seriatim::Mode;
use seriatim::store::QueueStats;

use crate::protocol::figures::Numbers;
use crate::protocol::schema::Foreign;

/// The figures of all queues.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Stats {
    pub(crate) total: LowkiqFigures,
    pub(crate) by_worker: BTreeMap<Arc<str>, NamedFigures>,
}

/// Figures with Lowkiq's names. As there, `length` counts waiting keys, without payloads and claims.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LowkiqFigures {
    /// The same as `waiting`
    length: u64,
    /// The same as `dead`
    morgue_length: u64,
    #[serde(flatten)]
    figures: Numbers,
}

impl From<Numbers> for LowkiqFigures {
    fn from(figures: Numbers) -> Self {
        Self { length: figures.waiting, morgue_length: figures.dead, figures }
    }
}

/// The figures of one queue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NamedFigures {
    #[schemars(with = "Option<Foreign<Mode>>")]
    mode: Option<Mode>,
    paused: bool,
    #[serde(flatten)]
    figures: LowkiqFigures,
}

impl NamedFigures {
    pub(crate) fn new(stats: &QueueStats, figures: Numbers) -> Self {
        Self { mode: stats.mode, paused: stats.paused, figures: figures.into() }
    }
}
