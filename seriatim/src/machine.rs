//! The machine that a process runs on: its clock, its random numbers, its tasks. All that decides by them says so.

use std::future::Future;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::clock::Timestamp;
use crate::model::id::NodeId;

impl Timestamp {
    /// This machine's wall clock. Only stores without a server read it to decide anything.
    pub fn of_this_machine() -> Self {
        #[cfg(feature = "simulation")]
        if let Some(time) = stand_in::time() {
            return time;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

impl NodeId {
    /// A new id, for a process that starts now, beginning with the node's configured name.
    pub fn unique(name: &str) -> Self {
        let micros = Timestamp::of_this_machine().as_micros();
        Self(format!("{name}-{micros:x}-{:08x}", fastrand::u32(..)).into())
    }
}

/// A task of an engine, as this machine runs it.
#[cfg(not(feature = "simulation"))]
pub(crate) fn task(
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    task
}

/// The same; a stand-in may put something before it.
#[cfg(feature = "simulation")]
pub(crate) fn task(task: impl Future<Output = ()> + Send + 'static) -> stand_in::Task {
    stand_in::task(Box::pin(task))
}

/// What takes the machine's place on a thread that simulates others.
#[cfg(feature = "simulation")]
pub mod stand_in {
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::Pin;

    use crate::model::clock::Timestamp;

    /// A task of an engine.
    pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Its clock, and what it makes of tasks.
    #[derive(Clone, Copy)]
    pub struct StandIn {
        /// What the clock shows; none: what the machine's does.
        pub time: fn() -> Option<Timestamp>,
        /// What becomes of a task.
        pub task: fn(Task) -> Task,
    }

    thread_local! {
        static CURRENT: Cell<Option<StandIn>> = const { Cell::new(None) };
    }

    /// From now on this thread asks it; or the machine again.
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
