//! Jobs that were pushed here lately: clients name a job by its jid, the API by its own id.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use crate::base::lock::lock;

/// Most jobs that are remembered.
const JOBS_MAX: usize = 10_000;

/// The token of who pushed it, and its jid.
type Name = (Option<Arc<str>>, Arc<str>);

/// The ids of the jobs that were pushed last.
#[derive(Default)]
pub(super) struct Recent(Mutex<Jobs>);

#[derive(Default)]
struct Jobs {
    ids: HashMap<Name, String>,
    /// The oldest first.
    names: VecDeque<Name>,
}

impl Recent {
    pub(super) fn note(&self, token: Option<&Arc<str>>, jid: &str, id: String) {
        let mut jobs = lock(&self.0);
        let name: Name = (token.cloned(), jid.into());
        if jobs.ids.insert(name.clone(), id).is_some() {
            return;
        }
        jobs.names.push_back(name);
        if jobs.names.len() > JOBS_MAX
            && let Some(oldest) = jobs.names.pop_front()
        {
            jobs.ids.remove(&oldest);
        }
    }

    /// The id of the job that was pushed with this token.
    pub(super) fn id(&self, token: Option<&Arc<str>>, jid: &str) -> Option<String> {
        lock(&self.0).ids.get(&(token.cloned(), jid.into())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_jobs_of_a_token_are_remembered_and_no_more() {
        let (recent, token) = (Recent::default(), Some(Arc::from("secret")));
        recent.note(token.as_ref(), "jid-first", "1".to_owned());
        recent.note(token.as_ref(), "jid-first", "2".to_owned());
        assert_eq!(recent.id(token.as_ref(), "jid-first").as_deref(), Some("2"));
        assert_eq!(recent.id(None, "jid-first"), None);
        for n in 1..JOBS_MAX {
            recent.note(None, &format!("jid-{n}"), n.to_string());
        }
        assert!(recent.id(token.as_ref(), "jid-first").is_some());
        recent.note(None, "jid-last", "3".to_owned());
        assert_eq!(recent.id(token.as_ref(), "jid-first"), None);
        assert_eq!(lock(&recent.0).ids.len(), JOBS_MAX);
    }
}
