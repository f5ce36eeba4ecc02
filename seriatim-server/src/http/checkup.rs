//! The doctor's findings, repeated at most every 15 s.

use std::sync::Arc;
use std::time::Duration;

use seriatim::Queue;
use seriatim::store::Store;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::app::doctor::{Finding, Seen, judge, look};

/// How old findings may be. A check reads up to a few thousand rows of each queue that has trouble.
const OLD: Duration = Duration::from_secs(15);

/// The last findings.
#[derive(Default)]
pub(super) struct Checkups(Mutex<Option<Arc<Checkup>>>);

/// What was seen, and what it means.
pub(super) struct Checkup {
    pub(super) at: Instant,
    pub(super) seen: Seen,
    pub(super) findings: Vec<Finding>,
}

impl Checkups {
    /// The findings of the last [`OLD`]. Callers that ask meanwhile wait for the same check.
    pub(super) async fn recent(
        &self,
        store: &dyn Store,
        declared: &[Queue],
    ) -> seriatim::Result<Arc<Checkup>> {
        let mut last = self.0.lock().await;
        if let Some(checkup) = last.as_ref().filter(|checkup| checkup.at.elapsed() < OLD) {
            return Ok(checkup.clone());
        }
        let seen = look(store).await?;
        let findings = judge(&seen, declared);
        let checkup = Arc::new(Checkup { at: Instant::now(), seen, findings });
        *last = Some(checkup.clone());
        Ok(checkup)
    }

    /// Something was repaired: the next caller looks again.
    pub(super) async fn forget(&self) {
        *self.0.lock().await = None;
    }
}
