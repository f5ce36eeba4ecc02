//! What users put around the calls of an engine: middleware, codec, hooks.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use super::periodic::Periodic;
use super::splitter::Splitter;
use super::turn_log::TurnLog;
use crate::codec::Codec;
use crate::middleware::Middleware;
use crate::store::Origin;
use crate::worker::Failure;

pub(super) type Starting = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A hook that runs once before the engine starts.
pub(super) type OnStart = dyn FnOnce() -> Starting + Send + Sync;

/// A hook that ends what a process has left behind.
pub(super) type BeforeTakeover = dyn Fn(Origin) -> Starting + Send + Sync;

pub(super) type FormatError = dyn Fn(&Failure) -> String + Send + Sync;
pub(super) type OnFatal = dyn Fn(&str) + Send + Sync;

#[derive(Default)]
pub(super) struct Extras {
    pub(super) middleware: Vec<Arc<Middleware>>,
    pub(super) codec: Option<Arc<dyn Codec>>,
    pub(super) format_error: Option<Arc<FormatError>>,
    pub(super) on_start: Vec<Box<OnStart>>,
    pub(super) on_fatal: Option<Arc<OnFatal>>,
    pub(super) periodic: Vec<Periodic>,
    pub(super) splitter: Splitter,
    #[cfg(feature = "cron")]
    pub(super) crons: Vec<crate::cron::Cron>,
    /// This process, as other nodes of the machine see it. None: neither are they taken over from
    /// before their lease ends, nor is this one.
    pub(super) origin: Option<Origin>,
    pub(super) before_takeover: Option<Arc<BeforeTakeover>>,
    /// Shared with whoever settles besides the engine.
    pub(super) turn_log: Arc<TurnLog>,
    /// Whether somebody wants to be told of exhausted jobs.
    pub(super) tells_exhausted: bool,
}

impl Extras {
    /// A failure as it is kept with its jobs.
    pub(super) fn text_of(&self, failure: &Failure) -> String {
        let Some(format) = &self.format_error else { return failure.to_string() };
        // A formatter of the user's that panics must not take the outcome with it.
        catch_unwind(AssertUnwindSafe(|| format(failure))).unwrap_or_else(|_| failure.to_string())
    }

    /// Tells that the process cannot go on.
    pub(super) fn fatal(&self, why: &str) {
        if let Some(hook) = &self.on_fatal
            && catch_unwind(AssertUnwindSafe(|| hook(why))).is_err()
        {
            tracing::error!("the on_fatal hook panicked");
        }
    }
}

impl fmt::Debug for Extras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extras").field("middleware", &self.middleware.len()).finish_non_exhaustive()
    }
}
