//! What users put around the calls of an engine: middleware, codec, hooks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::periodic::Periodic;
use super::shield::shielded;
use super::splitter::Splitter;
use super::turn_log::TurnLog;
use crate::codec::Codec;
use crate::contract::Origin;
use crate::middleware::Middleware;
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
        // Neither a formatter nor a `Display` that panics may take the outcome with it.
        let own = self.format_error.as_ref().and_then(|format| shielded(|| format(failure)).ok());
        own.or_else(|| shielded(|| failure.to_string()).ok())
            .unwrap_or_else(|| "a failure whose text cannot be written: that panicked".to_owned())
    }

    /// Tells that the process cannot go on.
    pub(super) fn fatal(&self, why: &str) {
        if let Some(hook) = &self.on_fatal
            && let Err(text) = shielded(|| hook(why))
        {
            tracing::error!("the on_fatal hook panicked: {text}");
        }
    }
}

impl fmt::Debug for Extras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extras").field("middleware", &self.middleware.len()).finish_non_exhaustive()
    }
}
