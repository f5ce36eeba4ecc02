//! Contains panics of the user's code: a panic fails its caller, and nothing else.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;

use crate::contract::{Pushed, Settled};
use crate::model::{Error, Job, NodeId, Settlement, Timestamp, Token, Turn, Verdict};
use crate::observe::Observer;

/// Runs user code. A panic is returned as its text.
pub(in crate::engine) fn shielded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| panic_text(&*panic))
}

/// The same for a future.
pub(in crate::engine) async fn shielded_future<T>(
    future: impl Future<Output = T>,
) -> Result<T, String> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| panic_text(&*panic))
}

pub(in crate::engine) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no text)").to_owned()
}

/// An observer whose panics are caught.
pub(in crate::engine) struct Shielded(pub(in crate::engine) Arc<dyn Observer>);

impl Shielded {
    fn call(&self, what: &str, call: impl FnOnce(&dyn Observer)) {
        if let Err(text) = shielded(|| call(&*self.0)) {
            tracing::error!("the observer panicked on {what}: {text}");
        }
    }
}

impl Observer for Shielded {
    fn push_answered(&self, sent_at: Timestamp, jobs: &[Job], answer: Result<&[Pushed], &Error>) {
        self.call("a push", |observer| observer.push_answered(sent_at, jobs, answer));
    }

    fn started(&self, turn: &Turn) {
        self.call("a start", |observer| observer.started(turn));
    }

    fn ended(&self, turn: &Turn, verdict: &Verdict) {
        self.call("an end", |observer| observer.ended(turn, verdict));
    }

    fn settling(&self, turn: &Turn, settlement: &Settlement) {
        self.call("a settlement", |observer| observer.settling(turn, settlement));
    }

    fn settled(&self, turn: &Turn, settlement: &Settlement, settled: &Settled, sent_at: Timestamp) {
        self.call("a settlement", |observer| observer.settled(turn, settlement, settled, sent_at));
    }

    fn rescued(&self, turn: &Turn) {
        self.call("a rescue", |observer| observer.rescued(turn));
    }

    fn released(&self, turn: &Turn) {
        self.call("a release", |observer| observer.released(turn));
    }

    fn renewed(&self, node: &NodeId, until: Timestamp) {
        self.call("a heartbeat", |observer| observer.renewed(node, until));
    }

    fn lost(&self, tokens: &[Token]) {
        self.call("a loss", |observer| observer.lost(tokens));
    }
}
