//! Which queues a look concerns.

use std::collections::HashSet;
use std::sync::Arc;

/// Tells whether a queue is one of these; all are, if none is named. One look may name a thousand.
pub(in crate::stores) fn is_asked(queues: &[Arc<str>]) -> impl Fn(&str) -> bool {
    let asked: HashSet<&str> = queues.iter().map(AsRef::as_ref).collect();
    move |name| asked.is_empty() || asked.contains(name)
}
