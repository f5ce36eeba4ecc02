//! The machine's clock while a simulation runs on this thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use seriatim::Timestamp;
use seriatim::stand_in::{self, StandIn};
use tokio::time::Instant;

use super::gate::{Gate, of_this_node};

/// The time of all clocks at the start of a run.
pub(super) const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

thread_local! {
    static ORIGIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// While it exists, the machine's clock shows virtual time.
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

/// The clock of the current task's machine. `None` outside of a simulation.
fn machine_time() -> Option<Timestamp> {
    let origin = ORIGIN.get()?;
    let skew_us = Gate::current().map_or(0, |gate| gate.skew_us.load(Ordering::SeqCst));
    Some(shifted(START + origin.elapsed(), skew_us))
}

/// `time` plus (or minus) microseconds.
pub(super) fn shifted(time: Timestamp, by_us: i64) -> Timestamp {
    let length = Duration::from_micros(by_us.unsigned_abs());
    if by_us < 0 { time - length } else { time + length }
}

/// The store's clock: it follows virtual time and may jump.
pub(super) struct StoreClock {
    origin: Instant,
    offset_us: AtomicI64,
}

impl StoreClock {
    pub(super) fn start() -> Self {
        Self { origin: Instant::now(), offset_us: AtomicI64::new(0) }
    }

    pub(super) fn now(&self) -> Timestamp {
        shifted(START + self.origin.elapsed(), self.offset_us.load(Ordering::SeqCst))
    }

    pub(super) fn jump(&self, by_us: i64) {
        self.offset_us.fetch_add(by_us, Ordering::SeqCst);
    }
}
