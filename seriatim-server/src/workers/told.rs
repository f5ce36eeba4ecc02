//! Reports troubles of workers through the engine.

use std::sync::{Arc, OnceLock};

use seriatim::engine::Handle;
use seriatim::store::{Trouble, TroubleKind};

/// Reports troubles of workers once the engine exists. Earlier reports are lost: a failed start is
/// retried soon, and reported again.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<OnceLock<Handle>>);

impl Told {
    pub(super) fn by(&self, engine: Handle) {
        // There is one engine in a process that serves; a second changes nothing.
        let _ = self.0.set(engine);
    }

    /// A worker cannot be started.
    pub(super) fn cannot_start(&self, queue: &str, task: Option<&str>, why: &str) {
        if let Some(engine) = self.0.get() {
            let about = Trouble::about_worker(queue, task);
            engine.trouble(TroubleKind::WorkerCannotStart, Some(queue), &about, why);
        }
    }

    /// It has started.
    pub(super) fn started(&self, queue: &str, task: Option<&str>) {
        if let Some(engine) = self.0.get() {
            let about = Trouble::about_worker(queue, task);
            engine.trouble_over(TroubleKind::WorkerCannotStart, &about);
        }
    }

    /// A process is silent about one of its calls.
    pub(super) fn is_silent(&self, queue: &str, pid: u32, what: &str) {
        if let Some(engine) = self.0.get() {
            engine.trouble(TroubleKind::WorkerSilent, Some(queue), &process(queue, pid), what);
        }
    }

    /// It has sent a message, or the call is over.
    pub(super) fn is_heard(&self, queue: &str, pid: u32) {
        if let Some(engine) = self.0.get() {
            engine.trouble_over(TroubleKind::WorkerSilent, &process(queue, pid));
        }
    }
}

fn process(queue: &str, pid: u32) -> String {
    format!("{}, process {pid},", Trouble::about_worker(queue, None))
}
