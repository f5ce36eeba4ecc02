//! The phases in which an engine stops.

use tokio::sync::watch;

/// A phase only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Phase {
    /// Works normally.
    Running,
    /// Claims nothing new; running calls may finish.
    Draining,
}

/// The current phase, visible to all tasks.
#[derive(Debug)]
pub(in crate::engine) struct Phases(watch::Sender<Phase>);

impl Phases {
    pub(in crate::engine) fn new() -> Self {
        Self(watch::Sender::new(Phase::Running))
    }

    pub(in crate::engine) fn drain(&self) {
        self.0.send_replace(Phase::Draining);
    }

    pub(in crate::engine) fn is_draining(&self) -> bool {
        *self.0.borrow() >= Phase::Draining
    }

    pub(in crate::engine) async fn draining(&self) {
        let mut phase = self.0.subscribe();
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
    }
}
