//! What happened to a job elsewhere, before it was pushed.

use std::sync::Arc;

use serde::Serialize;

use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};
use crate::model::limits::{ATTEMPTS_MAX, ERROR_BYTES_MAX};

/// The history of a job that moves here from another system or store. See [`Job::past`](crate::Job::past).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Past {
    /// How often it failed: further failures here are added.
    pub failures: u32,
    /// Its last error.
    pub error: Option<Arc<str>>,
    /// When it was created; if unset, when it arrives here.
    pub created_at: Option<Timestamp>,
    /// When it was first tried.
    pub started_at: Option<Timestamp>,
    /// When it died. Then it goes to the morgue, not into a lane.
    pub dead_at: Option<Timestamp>,
}

impl Past {
    /// −1 without a failure.
    pub(crate) fn retry_count(&self) -> i32 {
        i32::try_from(self.failures).map_or(i32::MAX, |failures| failures - 1)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.failures > ATTEMPTS_MAX {
            let message = format!("must be 0 to {ATTEMPTS_MAX}");
            return Err(Error::invalid("past.failures", message));
        }
        let text = self.error.as_deref().unwrap_or_default();
        if text.len() > ERROR_BYTES_MAX || text.contains('\0') {
            let bytes = text.len();
            let message =
                format!("has {bytes} bytes; at most {ERROR_BYTES_MAX} are taken, without NUL");
            return Err(Error::invalid("past.error", message));
        }
        let times = [
            ("past.created_at", self.created_at),
            ("past.started_at", self.started_at),
            ("past.dead_at", self.dead_at),
        ];
        for (field, time) in times {
            if time.is_some_and(|t| t < Timestamp::default() || t > Timestamp::MAX) {
                return Err(Error::invalid(field, "must be between 1970 and 2255"));
            }
        }
        Ok(())
    }
}
