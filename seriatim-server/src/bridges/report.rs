//! What a bridge would do, from a look at the other system.

use std::collections::BTreeMap;

use serde::Serialize;

use super::route::Refusal;
use crate::config::BridgeConfig;

/// What a bridge would do.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) bridge: String,
    pub(crate) sources: Vec<SourceReport>,
    /// Living processes of Sidekiq; Lowkiq's do not tell that they live.
    pub(crate) consumers: Option<Vec<String>>,
    /// What stays in Redis, and what to think of.
    pub(crate) notes: Vec<String>,
    /// Whether nothing is refused and nothing stands in the way.
    pub(crate) ready: bool,
}

#[derive(Default, Serialize)]
pub(crate) struct SourceReport {
    pub(crate) source: String,
    pub(crate) length: u64,
    /// How many of these were read.
    pub(crate) read: u64,
    /// Of a set, how many of these are of the bridge's queues.
    pub(crate) ours: u64,
    /// Age of the oldest job, in seconds.
    pub(crate) age: Option<f64>,
    pub(crate) in_flight: u64,
    pub(crate) rejected: u64,
    pub(crate) classes: BTreeMap<String, ClassReport>,
    /// Why the bridge takes nothing from it.
    pub(crate) held: Option<String>,
    /// What is no job.
    pub(crate) malformed: u64,
}

#[derive(Default, Serialize)]
pub(crate) struct ClassReport {
    pub(crate) jobs: u64,
    /// The queue here; `None` if all are refused.
    pub(crate) queue: Option<String>,
    pub(crate) with_key: u64,
    pub(crate) refused: u64,
    /// Why the first of these is.
    pub(crate) why: Option<String>,
}

impl Report {
    pub(super) fn of(
        bridge: &BridgeConfig,
        sources: Vec<SourceReport>,
        consumers: Option<Vec<String>>,
        notes: Vec<String>,
    ) -> Self {
        let ready = !sources.iter().any(SourceReport::is_refused);
        Self { bridge: bridge.name.clone(), ready, sources, consumers, notes }
    }
}

impl SourceReport {
    fn is_refused(&self) -> bool {
        self.malformed > 0
            || self.held.is_some()
            || self.classes.values().any(|class| class.refused > 0)
    }
}

impl ClassReport {
    pub(super) fn refuse(&mut self, refusal: &Refusal) {
        self.refused += 1;
        self.why.get_or_insert_with(|| refusal.to_string());
    }
}
