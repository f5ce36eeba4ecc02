//! Who last paused a queue or a key, and why, by the audit log: the store keeps only whether it is paused. `now` is the
//! time of the store, by whose clock deeds are noted.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use seriatim::limits::NAME_BYTES_MAX;
use seriatim::store::Store;
use seriatim::text::one_line;
use seriatim::{Error, ErrorKind, Timestamp};

use super::deeds::{self, Deed, Wanted};
use super::operations::{self, Operation};
use crate::base::time::{length, read};

/// Deeds that are looked at: the first that was not refused is meant.
const DEEDS_READ: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    by: String,
    /// How long ago; unknown if the time of an operation cannot be read.
    ago: Option<Duration>,
    reason: Option<String>,
}

/// The last pause of a queue.
pub(crate) async fn of_queue(
    store: &dyn Store,
    queue: &str,
    now: Timestamp,
) -> seriatim::Result<Option<Pause>> {
    let wanted = Wanted { queue: Some(queue), ..Wanted::default() };
    last(store, Wanted { action: Some("queue pause"), ..wanted }, now).await
}

/// The last pause of a key.
pub(crate) async fn of_key(
    store: &dyn Store,
    queue: &str,
    key: &str,
    now: Timestamp,
) -> seriatim::Result<Option<Pause>> {
    let name = one_line(key);
    let wanted = Wanted { of: Some(&name), queue: Some(queue), ..Wanted::default() };
    let own = last(store, Wanted { action: Some("lane pause"), ..wanted }, now).await?;
    Ok(later(own, by_operation(&operations::list(store).await?, (queue, key), now)))
}

/// The last pauses of these keys, as far as the latest entries of the queue in the audit log tell them.
pub(crate) async fn of_keys(
    store: &dyn Store,
    queue: &str,
    keys: &[&str],
    now: Timestamp,
) -> seriatim::Result<HashMap<String, Pause>> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let wanted = Wanted { queue: Some(queue), action: Some("lane pause"), ..Wanted::default() };
    let deeds = deeds::step(store, wanted).await?;
    let operations = operations::list(store).await?;
    let pause = |key: &&str| {
        let name = one_line(key);
        let is_of_key = |on: &String| *on == name;
        let done = |deed: &&Deed| !deed.is_refused() && deed.on.get("key").is_some_and(is_of_key);
        let own = deeds.iter().find(done).cloned().map(|deed| Pause::of(deed, now));
        Some(((*key).to_owned(), later(own, by_operation(&operations, (queue, key), now))?))
    };
    Ok(keys.iter().filter_map(pause).collect())
}

/// The last operation that paused a key.
fn by_operation(
    operations: &[Operation],
    (queue, key): (&str, &str),
    now: Timestamp,
) -> Option<Pause> {
    let operation = operations.iter().find(|operation| operation.has_paused(queue, key))?;
    Some(Pause {
        by: operation.who.clone(),
        ago: read(&operation.created_at).ok().map(|at| now.since(at)),
        reason: Some(format!("operation {}", operation.id)),
    })
}

fn later(one: Option<Pause>, other: Option<Pause>) -> Option<Pause> {
    one.into_iter().chain(other).min_by_key(|pause| pause.ago.unwrap_or(Duration::MAX))
}

impl Pause {
    fn of(mut deed: Deed, now: Timestamp) -> Self {
        Self {
            ago: Some(now.since(deed.noted_at)),
            reason: deed.on.remove("reason").filter(|reason| !reason.is_empty()),
            by: deed.who,
        }
    }

    pub(crate) fn into_reason(self) -> Option<String> {
        self.reason
    }
}

/// Operations, and programs that write no audit log, pause too: so it may not be the one that holds now.
async fn last(
    store: &dyn Store,
    wanted: Wanted<'_>,
    now: Timestamp,
) -> seriatim::Result<Option<Pause>> {
    let deeds = deeds::latest(store, wanted, DEEDS_READ).await?.entries;
    let done = deeds.into_iter().find(|deed| !deed.is_refused());
    Ok(done.map(|deed| Pause::of(deed, now)))
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
        self.ago.map_or(Ok(()), |ago| write!(f, "{} ago ", length(ago)))?;
        write!(f, "by {}", self.by)?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}
