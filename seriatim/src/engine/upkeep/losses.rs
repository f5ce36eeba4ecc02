//! What a server lacks of this node's last writes, after it has taken over or was restarted. Nobody may read this node's log, so
//! a trouble tells it for an hour.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::contract::TroubleKind;
use crate::engine::upkeep::troubles::Troubles;
use crate::lock::lock;

/// What is found so long before or after a change of servers was probably lost in it: the comparison of claims may come before the
/// heartbeat that notices the change.
const FOUND_WITHIN: Duration = Duration::from_mins(1);
const TOLD_FOR: Duration = Duration::from_hours(1);
const ABOUT: &str = "the store";

/// What was found, in total, around the last change of servers.
#[derive(Debug, Default)]
pub(in crate::engine) struct Losses(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    gone: u64,
    back: u64,
    /// When something was found last.
    at: Option<Instant>,
    /// When another server took over last.
    moved: Option<Instant>,
    /// Whether it is not told yet, and when it was told last.
    is_new: bool,
    told: Option<Instant>,
}

impl Losses {
    /// Another server has taken over, or one was restarted.
    pub(in crate::engine) fn moved(&self) {
        let mut found = lock(&self.0);
        found.begin();
        found.moved = Some(Instant::now());
    }

    /// Calls that ran, whose claims the server does not know.
    pub(in crate::engine) fn gone(&self, calls: usize) {
        self.found(calls, 0);
    }

    /// Claims that the server knows, and this node does not hold: their turns were settled, or their answers were lost.
    pub(in crate::engine) fn back(&self, claims: usize) {
        self.found(0, claims);
    }

    fn found(&self, gone: usize, back: usize) {
        if gone + back > 0 {
            let mut found = lock(&self.0);
            found.begin();
            found.gone += gone as u64;
            found.back += back as u64;
            (found.at, found.is_new) = (Some(Instant::now()), true);
        }
    }

    /// Tells what is new, or that it is over.
    pub(in crate::engine) fn tell(&self, troubles: &Troubles) {
        let mut found = lock(&self.0);
        if found.told.take_if(|told| told.elapsed() >= TOLD_FOR).is_some() {
            troubles.clear(TroubleKind::WritesLost, ABOUT);
        }
        if found.is_new && is_recent(found.moved) {
            let text = format!(
                "a server was restarted, or took over, without the last writes; calls that ran without their claims: {}; \
                 claims that this node had ended or never got: {}",
                found.gone, found.back
            );
            troubles.set(TroubleKind::WritesLost, None, ABOUT, &text);
            (found.is_new, found.told) = (false, Some(Instant::now()));
        }
    }
}

impl Found {
    /// Forgets what belongs to no change that is recent.
    fn begin(&mut self) {
        if !is_recent(self.at) && !is_recent(self.moved) {
            (self.gone, self.back, self.is_new) = (0, 0, false);
        }
    }
}

fn is_recent(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < FOUND_WITHIN)
}
