//! What a store does with a declaration of a queue: one rule for all stores and for callers that must know
//! beforehand.

#[cfg(all(
    test,
    any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")
))]
pub(crate) mod tests;

use super::{Declare, QueueStats, QueueView, Store};
use crate::model::{Error, ErrorKind, Merge, Mode, Queue, Result};

/// What happens to a queue when it is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declaration {
    /// It does not exist yet: it is created.
    Created,
    /// It exists with the same definition.
    Kept,
    /// It gets the new settings; if it is empty, also a new mode or merge.
    Updated,
    /// A push created it in another mode: its jobs are pushed again under the new one.
    Converted,
    /// As `Converted`, as soon as none of its jobs runs; until then the declaration is refused.
    Waits,
    /// A push created it, and its jobs do not fit the new mode, which requires a key or forbids it: refused.
    Stuck,
    /// It was declared in another mode or merge, and has jobs: refused.
    Refused,
}

impl Declaration {
    /// Whether the store accepts the declaration.
    pub fn is_taken(self) -> bool {
        matches!(self, Self::Created | Self::Kept | Self::Updated | Self::Converted)
    }

    /// What a declaration of `queue` would do, given the store's view of it.
    pub fn of(queue: &Queue, view: Option<&QueueView>, stats: Option<&QueueStats>) -> Self {
        let Some(view) = view else { return Self::Created };
        // A queue that exists keeps its number of shards.
        let asked = Queue { shards: view.queue.shards, ..queue.clone() };
        if view.declared && view.queue == asked {
            return Self::Kept;
        }
        let found = Found {
            mode: view.queue.mode,
            merge: view.queue.merge,
            declared: view.declared,
            holds_jobs: stats.is_some_and(|stats| stats.lanes > 0),
            runs: stats.is_some_and(|stats| stats.claimed > 0),
        };
        found.fate(queue)
    }
}

/// An existing queue, as far as a declaration depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub mode: Mode,
    pub merge: Merge,
    pub declared: bool,
    pub holds_jobs: bool,
    /// Whether one of its lanes is claimed.
    pub runs: bool,
}

impl Found {
    fn fate(self, new: &Queue) -> Declaration {
        if (self.mode, self.merge) == (new.mode, new.merge) || !self.holds_jobs {
            return Declaration::Updated;
        }
        match (self.declared, self.mode.is_keyed() && new.mode.is_keyed()) {
            (true, _) => Declaration::Refused,
            (false, false) => Declaration::Stuck,
            (false, true) if self.runs => Declaration::Waits,
            (false, true) => Declaration::Converted,
        }
    }

    /// Refuses a declaration that cannot be carried out.
    pub(crate) fn check(self, new: &Queue) -> Result<()> {
        match self.fate(new) {
            fate if fate.is_taken() => Ok(()),
            fate => Err(self.refusal(new, fate)),
        }
    }

    /// The error of a declaration that cannot be carried out now.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn conflict(self, new: &Queue) -> Error {
        self.refusal(new, self.fate(new))
    }

    fn refusal(self, new: &Queue, fate: Declaration) -> Error {
        let (name, old, mode) = (&new.name, self.mode, new.mode);
        let message = match fate {
            Declaration::Waits => format!(
                "a push made queue {name:?} {old}, and it becomes {mode} as soon as none of its jobs runs"
            ),
            Declaration::Stuck => {
                let why = match mode.is_keyed() {
                    true => "have no key, which every job needs there",
                    false => "have keys, which no job has there",
                };
                format!(
                    "a push made queue {name:?} {old}; it cannot become {mode} while it holds jobs that {why}: \
                     run them with a worker on a declaration as {old}, or delete them with \
                     `seriatim jobs --queue {name}` and `seriatim jobs delete ID --yes`; it becomes {mode} when it is empty"
                )
            }
            _ => format!(
                "queue {name:?} is {old} (merge {}) in the store and {mode} (merge {}) here, and it is not empty: \
                 drain it, or declare it as it is",
                self.merge.as_str(),
                new.merge.as_str()
            ),
        };
        Error::new(ErrorKind::Conflict, message).in_field("mode")
    }
}

/// A queue created by a push that could not be declared yet: see [`declare_each`].
#[derive(Debug)]
pub struct Undeclared {
    /// Its name.
    pub queue: String,
    /// Why: it waits, or it is stuck.
    pub fate: Declaration,
    /// The refusal in words, with what to do.
    pub error: Error,
}

impl Undeclared {
    /// A queue that the store refuses for another reason.
    pub(crate) fn of(queue: &Queue, error: Error) -> Self {
        Self { queue: queue.name.clone(), fate: Declaration::Refused, error }
    }
}

/// Declares queues: together if the store accepts them all, otherwise one by one. Fails if one was declared in
/// another mode before. Returns the queues that a push created and that cannot be converted now.
///
/// With `keep`, a queue that is declared keeps its settings, also if that happens at this moment.
pub async fn declare_each(
    store: &dyn Store,
    queues: &[Queue],
    keep: bool,
) -> Result<Vec<Undeclared>> {
    let mut asked: Vec<&Queue> = queues.iter().collect();
    if keep {
        let views = store.queues().await?;
        for queue in queues {
            let known = views.iter().find(|view| view.queue.name == queue.name);
            let Some(known) = known.filter(|view| view.declared) else { continue };
            if (known.queue.mode, known.queue.merge) != (queue.mode, queue.merge) {
                return Err(declared_otherwise(&known.queue, queue));
            }
            asked.retain(|other| other.name != queue.name);
        }
    }
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let declare = async |queues| {
        let request = Declare { now: None, queues };
        if keep { store.declare_new(request).await } else { store.declare(request).await }
    };
    let together: Vec<Queue> = asked.iter().copied().cloned().collect();
    match declare(together.clone()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        Err(error) => return Err(error.naming_queues(together.iter().map(|queue| &*queue.name))),
        Ok(()) => return Ok(Vec::new()),
    }
    let mut undeclared = Vec::new();
    for queue in asked {
        let Err(error) = declare(vec![queue.clone()]).await else { continue };
        let error = error.naming_queues([&*queue.name]);
        if error.kind() != ErrorKind::Conflict {
            return Err(error);
        }
        let views = store.queues().await?;
        let Some(view) = views.iter().find(|view| view.queue.name == queue.name && !view.declared)
        else {
            return Err(error);
        };
        let fits = view.queue.mode.is_keyed() && queue.mode.is_keyed();
        let fate = if fits { Declaration::Waits } else { Declaration::Stuck };
        undeclared.push(Undeclared { queue: queue.name.clone(), fate, error });
    }
    Ok(undeclared)
}

fn declared_otherwise(known: &Queue, queue: &Queue) -> Error {
    let message = format!(
        "queue {:?} was declared as {} (merge {}) and is {} (merge {}) here: declare it as it is",
        queue.name,
        known.mode,
        known.merge.as_str(),
        queue.mode,
        queue.merge.as_str()
    );
    let field = format!("queues.{}", queue.name);
    Error::new(ErrorKind::Conflict, message).in_field("mode").in_field(field)
}
