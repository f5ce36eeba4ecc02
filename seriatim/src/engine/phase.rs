//! Whether an engine stops.

use tokio::sync::watch;

/// Draining: nothing new is claimed, and running calls may finish. Visible to all tasks; never taken back.
#[derive(Debug)]
pub(in crate::engine) struct Phases(watch::Sender<bool>);

impl Phases {
    pub(in crate::engine) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(in crate::engine) fn drain(&self) {
        self.0.send_replace(true);
    }

    pub(in crate::engine) fn is_draining(&self) -> bool {
        *self.0.borrow()
    }

    pub(in crate::engine) async fn draining(&self) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|draining| *draining).await;
    }
}
