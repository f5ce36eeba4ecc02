//! Who paused a queue or a key, and why: as the audit log tells, which remembers more than the store's switch.

use std::fmt;

use seriatim::limits::NAME_BYTES_MAX;
use seriatim::store::Store;
use seriatim::text::one_line;
use seriatim::{Error, ErrorKind};

use super::deeds::{self, Wanted};

/// Deeds that are looked at: a pause is followed by few others.
const DEEDS_READ: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    by: String,
    /// In UTC.
    at: String,
    reason: Option<String>,
}

/// The pause of a queue that is paused.
pub(crate) async fn of_queue(store: &dyn Store, queue: &str) -> seriatim::Result<Option<Pause>> {
    let wanted = Wanted { queue: Some(queue), action: Some("queue "), ..Wanted::default() };
    last(store, wanted, "queue").await
}

/// The pause of a key that is paused.
pub(crate) async fn of_key(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> seriatim::Result<Option<Pause>> {
    let key = one_line(key);
    let wanted = Wanted { of: Some(&key), queue: Some(queue), ..Wanted::default() };
    last(store, Wanted { action: Some("lane "), ..wanted }, "lane").await
}

/// The last one that was not ended since. One by a program that writes no audit log is unknown.
async fn last(
    store: &dyn Store,
    wanted: Wanted<'_>,
    noun: &str,
) -> seriatim::Result<Option<Pause>> {
    let deeds = deeds::latest(store, wanted, DEEDS_READ).await?.entries;
    let is_about =
        |verb: &str, action: &str| action.strip_prefix(noun).is_some_and(|of| of.trim() == verb);
    let mut switched = deeds.into_iter().filter(|deed| {
        deed.status < 400 && ["pause", "resume"].iter().any(|verb| is_about(verb, &deed.action))
    });
    let paused = switched.next().filter(|deed| is_about("pause", &deed.action));
    Ok(paused.map(|mut deed| Pause {
        by: deed.who,
        at: deed.at,
        reason: deed.on.remove("reason").filter(|reason| !reason.is_empty()),
    }))
}

/// Refuses a reason that the audit log would cut.
pub(crate) fn check_reason(reason: Option<&str>) -> seriatim::Result<()> {
    match reason.filter(|reason| reason.is_empty() || reason.len() > NAME_BYTES_MAX) {
        Some(reason) => {
            let message = format!("has {} bytes: 1 to {NAME_BYTES_MAX}", reason.len());
            Err(Error::new(ErrorKind::Invalid, message).in_field("reason"))
        }
        None => Ok(()),
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by {} at {}", self.by, self.at)?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}
