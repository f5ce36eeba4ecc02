//! Calls whose handlers are waiting. Handlers that end at their first poll are never listed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::contract::{Beat, CancelNotice};
use crate::handler::call::Call;
use crate::handler::control::Stop;
use crate::lock::lock;
use crate::model::{JobId, LaneId};

#[derive(Default)]
pub(in crate::engine) struct Running {
    calls: Mutex<Calls>,
    /// Notified of the first call of an empty list.
    first: Notify,
}

/// By number, and so in the order in which they began to wait.
#[derive(Default)]
struct Calls {
    by_number: BTreeMap<u64, (Arc<Call>, Instant)>,
    last: u64,
    /// Why calls that are listed from now on must stop.
    closed: Option<Stop>,
}

/// Removes the call from the list on drop.
pub(in crate::engine) struct Listed<'a> {
    running: &'a Running,
    number: u64,
}

impl Running {
    pub(in crate::engine) fn list(&self, call: &Arc<Call>) -> Listed<'_> {
        let mut calls = lock(&self.calls);
        if calls.by_number.is_empty() {
            self.first.notify_one();
        }
        calls.last += 1;
        let number = calls.last;
        calls.by_number.insert(number, (call.clone(), Instant::now()));
        if let Some(reason) = calls.closed {
            call.control.stop(reason);
        }
        Listed { running: self, number }
    }

    /// Waits until there is a call. It may have ended by then: calls may follow each other faster than a thread wakes.
    pub(in crate::engine) async fn any(&self) {
        let is_empty = lock(&self.calls).by_number.is_empty();
        if is_empty {
            self.first.notified().await;
        }
    }

    /// The calls, and how long each has been listed.
    pub(in crate::engine) fn all(&self) -> Vec<(Arc<Call>, Duration)> {
        let calls = lock(&self.calls);
        calls.by_number.values().map(|(call, since)| (call.clone(), since.elapsed())).collect()
    }

    /// Asks all calls to stop, those too that are listed later: they may be in their first poll. Returns the number of
    /// those that are listed.
    pub(in crate::engine) fn close(&self, reason: Stop) -> usize {
        lock(&self.calls).closed = Some(reason);
        self.stop(reason, |_| true)
    }

    /// Asks the calls selected by `which` to stop. Returns their number.
    pub(in crate::engine) fn stop(&self, reason: Stop, which: impl Fn(&Call) -> bool) -> usize {
        let calls = lock(&self.calls);
        let picked = calls.by_number.values().map(|(call, _)| call);
        let picked = picked.filter(|call| call.control.reason() < Some(reason));
        let picked: Vec<_> = picked.filter(|call| which(call)).collect();
        for call in &picked {
            call.control.stop(reason);
        }
        picked.len()
    }

    /// Passes a cancellation to its call.
    pub(in crate::engine) fn flag(&self, notice: &CancelNotice) {
        let calls = lock(&self.calls);
        let holds = |call: &&Arc<Call>| {
            call.turn_of(notice.lane).is_some_and(|turn| turn.token == notice.token)
        };
        let mut held = calls.by_number.values().map(|(call, _)| call);
        let Some(call) = held.find(holds) else { return };
        call.control.flag(notice.lane, &notice.jobs);
        if call.is_all_flagged() {
            call.control.stop(Stop::Cancelled);
        }
    }

    /// Lanes with reports that wait until it is known what earlier turns left, with the first job of each.
    pub(in crate::engine) fn forgotten(&self, lanes_max: usize) -> Vec<(Arc<Call>, LaneId, JobId)> {
        let calls = lock(&self.calls);
        let lanes_of = |call: &Arc<Call>| {
            let lanes = call.control.forgotten().into_iter();
            let first = |lane| Some((call.clone(), lane, call.turn_of(lane)?.head()?.id));
            lanes.filter_map(first).collect::<Vec<_>>()
        };
        calls.by_number.values().flat_map(|(call, _)| lanes_of(call)).take(lanes_max).collect()
    }

    /// Progress that handlers reported and no heartbeat has taken yet.
    pub(in crate::engine) fn take_progress(&self) -> Vec<Beat> {
        let mut beats = Vec::new();
        for (call, _) in lock(&self.calls).by_number.values() {
            for (lane, progress) in call.control.take_reports() {
                let Some(turn) = call.turn_of(lane) else { continue };
                beats.push(Beat { progress: Some(progress), ..Beat::of(turn) });
            }
        }
        beats
    }

    /// Turns whose handlers have waited for at least `length`, except those that the handler settled itself.
    pub(in crate::engine) fn longer_than(&self, length: Duration) -> Vec<Beat> {
        let calls = lock(&self.calls);
        let long = calls
            .by_number
            .values()
            .filter(|(call, since)| since.elapsed() >= length && !call.control.is_committed());
        let turns = long.flat_map(|(call, _)| &call.turns);
        turns.map(Beat::of).collect()
    }

    /// Records that the progress taken last is in the store.
    pub(in crate::engine) fn progress_arrived(&self) {
        for (call, _) in lock(&self.calls).by_number.values() {
            call.control.arrived();
        }
    }

    pub(in crate::engine) fn has_progress(&self) -> bool {
        lock(&self.calls).by_number.values().any(|(call, _)| call.control.has_reports())
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.running.calls).by_number.remove(&self.number);
    }
}
