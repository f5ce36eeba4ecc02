//! The user's code around the calls of an engine: middleware, codec, hooks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::contract::{InboxDeed, Origin};
use crate::engine::claim::splitter::Splitter;
use crate::engine::settle::turn_log::TurnLog;
use crate::engine::shield::{shielded, shielded_future};
use crate::engine::upkeep::periodic::Periodic;
use crate::handler::codec::Codec;
use crate::handler::failure::Failure;
use crate::handler::middleware::Middleware;

pub(in crate::engine) type Starting = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A hook that runs once before the engine starts.
pub(in crate::engine) type OnStart = dyn FnOnce() -> Starting + Send + Sync;

/// A hook that ends the programs that a process left behind.
pub(in crate::engine) type BeforeTakeover = dyn Fn(Origin) -> Starting + Send + Sync;

pub(in crate::engine) type FormatError = dyn Fn(&Failure) -> String + Send + Sync;
pub(in crate::engine) type OnFatal = dyn Fn(&str) + Send + Sync;
pub(in crate::engine) type OnInboxDeed =
    dyn Fn(InboxDeed, Option<String>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

#[derive(Default)]
pub(in crate::engine) struct Hooks {
    pub(in crate::engine) middleware: Vec<Arc<Middleware>>,
    pub(in crate::engine) codec: Option<Arc<dyn Codec>>,
    pub(in crate::engine) format_error: Option<Arc<FormatError>>,
    pub(in crate::engine) on_start: Vec<Box<OnStart>>,
    pub(in crate::engine) on_fatal: Option<Arc<OnFatal>>,
    pub(in crate::engine) on_inbox_action: Option<Arc<OnInboxDeed>>,
    pub(in crate::engine) periodic: Vec<Periodic>,
    pub(in crate::engine) splitter: Splitter,
    #[cfg(feature = "cron")]
    pub(in crate::engine) crons: Vec<crate::cron::Cron>,
    /// This process, as other nodes of the machine identify it. `None`: this node takes over from no other before its
    /// lease expires, and none from it.
    pub(in crate::engine) origin: Option<Origin>,
    pub(in crate::engine) before_takeover: Option<Arc<BeforeTakeover>>,
    /// Shared with other code that settles, such as an HTTP API.
    pub(in crate::engine) turn_log: Arc<TurnLog>,
    /// Whether there is a worker for jobs about exhausted jobs.
    pub(in crate::engine) exhausted: bool,
}

impl Hooks {
    /// The text of a failure as kept with its jobs.
    pub(in crate::engine) fn text_of(&self, failure: &Failure) -> String {
        // A formatter or `Display` that panics must not lose the outcome.
        let own = self.format_error.as_ref().and_then(|format| shielded(|| format(failure)).ok());
        own.or_else(|| shielded(|| failure.to_string()).ok())
            .unwrap_or_else(|| "a failure whose text cannot be written: that panicked".to_owned())
    }

    /// Calls the hook for fatal failures.
    pub(in crate::engine) fn fatal(&self, why: &str) {
        if let Some(hook) = &self.on_fatal
            && let Err(text) = shielded(|| hook(why))
        {
            tracing::error!("the on_fatal hook panicked: {text}");
        }
    }

    /// Calls the hook for actions requested by SQL sessions.
    pub(in crate::engine) async fn inbox_deed(&self, deed: &InboxDeed, refused: Option<&str>) {
        let Some(hook) = &self.on_inbox_action else { return };
        let call = async { hook(deed.clone(), refused.map(str::to_owned)).await };
        if let Err(text) = shielded_future(call).await {
            tracing::error!("the on_inbox_action hook panicked: {text}");
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("middleware", &self.middleware.len()).finish_non_exhaustive()
    }
}
