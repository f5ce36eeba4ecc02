//! Ends a run immediately after a violation.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// Raised once; after that, no task of the run continues, so that no defect can hang it.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    reason: OnceLock<String>,
    raised: Notify,
}

impl Alarm {
    /// Raises it. The first reason counts.
    pub(super) fn raise(&self, reason: String) {
        if self.reason.set(reason).is_ok() {
            self.raised.notify_one();
        }
    }

    pub(super) fn is_raised(&self) -> bool {
        self.reason.get().is_some()
    }

    /// Waits until it is raised. Only one task may wait.
    pub(super) async fn raised(&self) -> String {
        loop {
            if let Some(reason) = self.reason.get() {
                return reason.clone();
            }
            self.raised.notified().await;
        }
    }
}
