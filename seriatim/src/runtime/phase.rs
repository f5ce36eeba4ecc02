//! How far an engine is with stopping.

use tokio::sync::watch;

/// Each phase follows the one before; there is no way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It works.
    Running,
    /// No new claims; what runs may finish.
    Draining,
}

/// The phase, for all tasks to see.
#[derive(Debug)]
pub(super) struct Phases(watch::Sender<Phase>);

impl Phases {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Phase::Running))
    }

    pub(super) fn drain(&self) {
        self.0.send_replace(Phase::Draining);
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.0.borrow() >= Phase::Draining
    }

    pub(super) async fn draining(&self) {
        let mut phase = self.0.subscribe();
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
    }
}
