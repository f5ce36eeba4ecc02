//! What a source's mover says about itself in the store.

use seriatim::Timestamp;
use seriatim::store::Store;
use tokio::time::{Duration, Instant};

use super::batch::Done;
use super::fault::Fault;
use crate::app::bridges;
use crate::protocol::document::{BridgeState, BridgeStatus};
use crate::protocol::value::Time;

/// How often it says so while something moves.
const EVERY: Duration = Duration::from_secs(5);
/// And while nothing changes: twice within the time after which a source counts as unattended.
const STILL_EVERY: Duration = Duration::from_secs(25);

pub(super) struct Ledger {
    bridge: String,
    pub(super) status: BridgeStatus,
    written: Option<(Instant, BridgeStatus)>,
}

impl Ledger {
    pub(super) fn new(bridge: &str, source: String, node: &str) -> Self {
        let status = BridgeStatus {
            source,
            node: node.to_owned(),
            at: Time(Timestamp::of_this_machine()),
            state: BridgeState::Moving,
            why: None,
            taken: 0,
            pushed: 0,
            duplicates: 0,
            refused: std::collections::BTreeMap::new(),
            in_flight: 0,
            in_doubt: 0,
            rejected: 0,
            length: 0,
            lag: 0.0,
        };
        Self { bridge: bridge.to_owned(), status, written: None }
    }

    /// Goes on with the counts of the node that led before.
    pub(super) async fn load(&mut self, store: &dyn Store) -> Result<(), Fault> {
        let known = bridges::status(store, &self.bridge, &self.status.source).await?;
        if let Some(known) = known {
            let node = std::mem::take(&mut self.status.node);
            self.status = BridgeStatus { node, ..known };
        }
        self.written = None;
        Ok(())
    }

    pub(super) fn took(&mut self, jobs: u64) {
        self.status.taken += jobs;
        self.status.in_flight = jobs;
    }

    pub(super) fn did(&mut self, done: &Done) {
        self.status.pushed += done.pushed;
        self.status.duplicates += done.duplicates;
        self.none_in_flight();
        for refusal in &done.refused {
            *self.status.refused.entry(refusal.reason.as_str().to_owned()).or_default() += 1;
        }
    }

    /// Nothing is in flight any more: this node, another one or an operator ended the batch.
    pub(super) fn none_in_flight(&mut self) {
        (self.status.in_flight, self.status.in_doubt) = (0, 0);
    }

    /// Another state. Tells it in the log, once.
    pub(super) fn becomes(&mut self, state: BridgeState, why: Option<String>) {
        if self.status.state != state || self.status.why != why {
            let (bridge, source) = (&self.bridge, &self.status.source);
            match (&why, state) {
                (Some(why), _) => {
                    tracing::warn!(
                        bridge,
                        source,
                        state = state.as_str(),
                        "the bridge moves nothing: {why}"
                    );
                }
                (None, state) => tracing::info!(bridge, source, state = state.as_str(), "bridge"),
            }
        }
        (self.status.state, self.status.why) = (state, why);
    }

    /// Whether the figures of the source should be read and written again.
    pub(super) fn is_due(&self) -> bool {
        let now = &self.status;
        let is_old = |(at, known): &(Instant, BridgeStatus)| {
            // Refused jobs need a person: the first are reported at once.
            let first_refused = known.rejected == 0 && known.refused != now.refused;
            at.elapsed() >= EVERY || known.state != now.state || first_refused
        };
        self.written.as_ref().is_none_or(is_old)
    }

    /// Records that its node ends: it is not moved until another node takes over.
    pub(super) async fn leave(&mut self, store: &dyn Store) -> Result<(), Fault> {
        self.status.at = Time(store.now().await? - bridges::UNATTENDED_AFTER);
        Ok(bridges::note(store, &self.bridge, &self.status).await?)
    }

    /// Writes what changed, and that it is there.
    pub(super) async fn write(&mut self, store: &dyn Store) -> Result<(), Fault> {
        if let Some((at, known)) = &self.written
            && at.elapsed() < STILL_EVERY
            && (BridgeStatus { at: known.at, ..self.status.clone() }) == *known
        {
            return Ok(());
        }
        self.status.at = Time(store.now().await?);
        bridges::note(store, &self.bridge, &self.status).await?;
        self.written = Some((Instant::now(), self.status.clone()));
        Ok(())
    }
}
