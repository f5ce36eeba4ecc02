//! Reports troubles of workers through the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use seriatim::engine::Handle;
use seriatim::store::{Trouble, TroubleKind};

use crate::base::lock::lock;

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

    /// A process is silent about one of its calls; `None`: about none of them.
    pub(super) fn is_silent(&self, queue: &str, pid: u32, what: Option<&str>) {
        let Some(engine) = self.0.get() else { return };
        let process = format!("{}, process {pid},", Trouble::about_worker(queue, None));
        match what {
            Some(what) => {
                engine.trouble(TroubleKind::WorkerSilent, Some(queue), &process, what);
            }
            None => engine.trouble_over(TroubleKind::WorkerSilent, &process),
        }
    }
}

/// The calls about which a process is silent, with what was said of each.
#[derive(Default)]
pub(super) struct Silent(Mutex<BTreeMap<String, String>>);

impl Silent {
    /// It is silent about a call, or (`None`) has sent a message about it, or the call is over. `tell` gets what is
    /// now to be said of the process.
    pub(super) fn set(&self, batch: &str, what: Option<&str>, tell: impl FnOnce(Option<&str>)) {
        let mut calls = lock(&self.0);
        match what {
            Some(what) => drop(calls.insert(batch.to_owned(), what.to_owned())),
            None => drop(calls.remove(batch)),
        }
        tell(what.or_else(|| calls.values().next().map(String::as_str)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_silent_until_it_is_heard_about_all_of_its_calls() {
        let silent = Silent::default();
        let told = |batch: &str, what: Option<&str>| {
            let mut told = None;
            silent.set(batch, what, |left| told = left.map(str::to_owned));
            told
        };
        assert_eq!(told("1", Some("first")).as_deref(), Some("first"));
        assert_eq!(told("2", Some("second")).as_deref(), Some("second"));
        assert_eq!(told("2", None).as_deref(), Some("first"));
        assert_eq!(told("1", None), None);
    }
}
