//! Waits for an unreachable store: logged once, with growing pauses.

#[cfg(feature = "cron")]
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::limits::{OUTAGE_LOG_EVERY, OUTAGE_WAIT_MAX, OUTAGE_WAIT_MIN};
use crate::lock::lock;
#[cfg(feature = "cron")]
use crate::model::Result;
use crate::model::{Error, ErrorKind};

/// Shared by all tasks of an engine, so that an outage is logged once and not by each of them. A store of several
/// servers may fail in part: then it answers and fails in turn, and only the first of these outages is logged.
#[derive(Debug, Default)]
pub(in crate::engine) struct Outage(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    since: Option<Instant>,
    ended: Option<Instant>,
    is_logged: bool,
}

impl Outage {
    pub(in crate::engine) fn failed(&self, what: &str, error: &Error) {
        let mut known = lock(&self.0);
        let is_new = known.since.is_none();
        if is_new {
            known.since = Some(Instant::now());
            known.is_logged = known.ended.is_none_or(|at| at.elapsed() >= OUTAGE_LOG_EVERY);
        }
        match is_new && known.is_logged {
            true => {
                tracing::warn!(%error, kind = error.kind().as_str(), "{what} failed: trying until the store answers again");
            }
            false => tracing::debug!(%error, "{what} failed again"),
        }
    }

    pub(in crate::engine) fn succeeded(&self) {
        let mut known = lock(&self.0);
        let Some(since) = known.since.take() else { return };
        known.ended = Some(Instant::now());
        if known.is_logged {
            tracing::info!(
                after_ms = since.elapsed().as_millis() as u64,
                "the store answers again"
            );
        }
    }

    /// Repeats a request until the store accepts it. An error: the store refuses it for good.
    #[cfg(feature = "cron")]
    pub(in crate::engine) async fn until_answered<T, F>(
        &self,
        what: &str,
        ask: impl Fn() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut pauses = Pauses::default();
        loop {
            match ask().await {
                Ok(answer) => {
                    self.succeeded();
                    return Ok(answer);
                }
                Err(error) if will_pass(&error) => self.failed(what, &error),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pauses.next()).await;
        }
    }
}

/// Whether the store may accept the same request later: it is unavailable, full or read-only.
pub(in crate::engine) fn will_pass(error: &Error) -> bool {
    error.is_transient() || error.kind() == ErrorKind::ReadOnly
}

/// Whether a call that failed with `error` may have taken effect.
pub(in crate::engine) fn may_have_been_done(error: &Error) -> bool {
    use ErrorKind::{Invalid, NodeGone, NotFound, ReadOnly, Unsupported};
    !matches!(error.kind(), Invalid | NodeGone | NotFound | ReadOnly | Unsupported)
}

/// The growing pauses of one task.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Pauses {
    count: u32,
}

impl Pauses {
    /// The next pause: twice the last, less a random part of up to a half, so that the nodes of a fleet do not return
    /// all at the same time.
    pub(in crate::engine) fn next(&mut self) -> Duration {
        let full = OUTAGE_WAIT_MIN.saturating_mul(1 << self.count.min(16)).min(OUTAGE_WAIT_MAX);
        self.count += 1;
        full.mul_f64(1.0 - fastrand::f64() / 2.0)
    }

    pub(in crate::engine) fn reset(&mut self) {
        self.count = 0;
    }
}
