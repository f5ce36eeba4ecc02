//! Observes the engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use seriatim::store::{Pushed, Settled};
use seriatim::{
    Error, Job, Timestamp,
    engine::Observer,
    store::{LaneId, NodeId, Settlement, Token, Turn, Verdict},
};

use crate::base::lock::lock;
use crate::http::Meter;
use crate::trace::Traces;

/// Observes an engine: durations go to the meter, results to the traces, and everything to the recorder,
/// if there is one.
pub(crate) struct Watch {
    meter: Arc<Meter>,
    traces: Traces,
    recorder: Option<Arc<dyn Observer>>,
    /// When the running turns began.
    began: Mutex<HashMap<(LaneId, Token), Instant>>,
}

impl Watch {
    pub(crate) fn new(
        meter: Arc<Meter>,
        traces: Traces,
        recorder: Option<Arc<dyn Observer>>,
    ) -> Self {
        Self { meter, traces, recorder, began: Mutex::default() }
    }
}

impl Observer for Watch {
    fn push_answered(&self, sent_at: Timestamp, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        self.recorder.iter().for_each(|to| to.push_answered(sent_at, jobs, answer));
    }

    fn started(&self, turn: &Turn) {
        lock(&self.began).insert((turn.lane, turn.token), Instant::now());
        self.recorder.iter().for_each(|to| to.started(turn));
    }

    fn ended(&self, turn: &Turn, verdict: &Verdict) {
        if let Some(began) = lock(&self.began).remove(&(turn.lane, turn.token)) {
            self.meter.handled(turn, verdict.outcome.name(), began.elapsed());
        }
        self.traces.ended(turn, verdict);
        self.recorder.iter().for_each(|to| to.ended(turn, verdict));
    }

    fn settling(&self, turn: &Turn, settlement: &Settlement) {
        self.recorder.iter().for_each(|to| to.settling(turn, settlement));
    }

    fn settled(&self, turn: &Turn, settlement: &Settlement, settled: &Settled, sent_at: Timestamp) {
        self.recorder.iter().for_each(|to| to.settled(turn, settlement, settled, sent_at));
    }

    fn rescued(&self, turn: &Turn) {
        self.recorder.iter().for_each(|to| to.rescued(turn));
    }

    fn renewed(&self, node: &NodeId, until: Timestamp) {
        self.recorder.iter().for_each(|to| to.renewed(node, until));
    }

    fn lost(&self, tokens: &[Token]) {
        lock(&self.began).retain(|(_, token), _| !tokens.contains(token));
        self.recorder.iter().for_each(|to| to.lost(tokens));
    }
}
