//! The machine's clock, random numbers and tasks, which a simulation can replace.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::model::{NodeId, Timestamp};

impl Timestamp {
    /// This machine's wall clock. Only stores without a server decide by it.
    pub fn of_this_machine() -> Self {
        #[cfg(feature = "simulation")]
        if let Some(time) = stand_in::time() {
            return time;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// How long this machine has been suspended since it was started. Monotonic clocks do not count that.
pub(crate) fn suspended() -> Duration {
    #[cfg(test)]
    let pretended = PRETENDED.get();
    #[cfg(not(test))]
    let pretended = Duration::ZERO;
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        let since = |time: Timespec| Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        let monotonic = since(clock_gettime(ClockId::Monotonic));
        pretended + since(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic)
    }
    #[cfg(not(target_os = "linux"))]
    pretended
}

#[cfg(test)]
thread_local! {
    /// Tests pretend that the machine was suspended for this long.
    pub(crate) static PRETENDED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

impl NodeId {
    /// A new id for a process that starts now: the node's configured name plus a unique suffix.
    pub fn unique(name: &str) -> Self {
        let micros = Timestamp::of_this_machine().as_micros();
        Self(format!("{name}-{micros:x}-{:08x}", fastrand::u32(..)).into())
    }
}

/// A task of an engine, unchanged.
#[cfg(not(feature = "simulation"))]
pub(crate) fn task(
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    task
}

/// The same; a stand-in may wrap the task.
#[cfg(feature = "simulation")]
pub(crate) fn task(task: impl Future<Output = ()> + Send + 'static) -> stand_in::Task {
    stand_in::task(Box::pin(task))
}

/// Replaces the machine on a thread that runs a simulation.
#[cfg(feature = "simulation")]
pub mod stand_in {
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::Pin;

    use crate::model::Timestamp;

    /// A task of an engine.
    pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

    /// The clock and the task wrapper of a simulation.
    #[derive(Clone, Copy)]
    pub struct StandIn {
        /// The simulated time; `None`: use the machine's clock.
        pub time: fn() -> Option<Timestamp>,
        /// Wraps a task.
        pub task: fn(Task) -> Task,
    }

    thread_local! {
        static CURRENT: Cell<Option<StandIn>> = const { Cell::new(None) };
    }

    /// Sets the stand-in of this thread; `None` restores the machine.
    pub fn set(stand_in: Option<StandIn>) {
        CURRENT.set(stand_in);
    }

    pub(super) fn time() -> Option<Timestamp> {
        (CURRENT.get()?.time)()
    }

    pub(super) fn task(task: Task) -> Task {
        match CURRENT.get() {
            Some(stand_in) => (stand_in.task)(task),
            None => task,
        }
    }
}
