//! The machine's clock while a simulation runs on this thread.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seriatim::Timestamp;
use seriatim::stand_in::{self, StandIn};
use tokio::time::Instant;

use super::gate::{Gate, of_this_node};

/// What all clocks show at the start of a run.
pub(super) const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

thread_local! {
    static ORIGIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// While it lives, the machine's clock shows virtual time.
pub(super) struct Simulated;

impl Simulated {
    pub(super) fn from_now() -> Self {
        ORIGIN.set(Some(Instant::now()));
        stand_in::set(Some(StandIn { time: machine_time, task: of_this_node }));
        Self
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        ORIGIN.set(None);
        stand_in::set(None);
    }
}

/// What the clock of the machine shows on which the current task runs; none outside of a simulation.
fn machine_time() -> Option<Timestamp> {
    let origin = ORIGIN.get()?;
    let skew_us = Gate::current().map_or(0, |gate| gate.skew_us.load(Ordering::SeqCst));
    Some(shifted(START + origin.elapsed(), skew_us))
}

/// `time`, so many microseconds later (or earlier).
pub(super) fn shifted(time: Timestamp, by_us: i64) -> Timestamp {
    let length = Duration::from_micros(by_us.unsigned_abs());
    if by_us < 0 { time - length } else { time + length }
}
