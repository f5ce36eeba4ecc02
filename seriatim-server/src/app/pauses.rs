//! Who last paused a queue or a key, and why, by the audit log: the store keeps only whether it is paused.

use std::fmt;
use std::time::Duration;

use seriatim::limits::NAME_BYTES_MAX;
use seriatim::store::Store;
use seriatim::text::one_line;
use seriatim::{Error, ErrorKind, Timestamp};

use super::deeds::{self, Wanted};
use super::operations;
use crate::base::time::{length, read};

/// Deeds that are looked at: the first that was not refused is meant.
const DEEDS_READ: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    by: String,
    /// How long ago; unknown if the time in the log cannot be read.
    ago: Option<Duration>,
    reason: Option<String>,
}

/// The last pause of a queue.
pub(crate) async fn of_queue(store: &dyn Store, queue: &str) -> seriatim::Result<Option<Pause>> {
    let wanted = Wanted { queue: Some(queue), ..Wanted::default() };
    last(store, Wanted { action: Some("queue pause"), ..wanted }).await
}

/// The last pause of a key.
pub(crate) async fn of_key(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> seriatim::Result<Option<Pause>> {
    let name = one_line(key);
    let wanted = Wanted { of: Some(&name), queue: Some(queue), ..Wanted::default() };
    let own = last(store, Wanted { action: Some("lane pause"), ..wanted }).await?;
    let all = operations::list(store).await?;
    let of_many = all.into_iter().find(|operation| operation.has_paused(queue, key));
    let of_many = of_many.map(|operation| Pause {
        by: operation.who,
        ago: ago(&operation.created_at),
        reason: Some(format!("operation {}", operation.id)),
    });
    Ok(own.into_iter().chain(of_many).min_by_key(|pause| pause.ago.unwrap_or(Duration::MAX)))
}

/// By the clock that wrote it.
fn ago(at: &str) -> Option<Duration> {
    read(at).ok().map(|at| Timestamp::of_this_machine().since(at))
}

/// Operations, and programs that write no audit log, pause too: so it may not be the one that holds now.
async fn last(store: &dyn Store, wanted: Wanted<'_>) -> seriatim::Result<Option<Pause>> {
    let deeds = deeds::latest(store, wanted, DEEDS_READ).await?.entries;
    let done = deeds.into_iter().find(|deed| deed.status < 400);
    Ok(done.map(|mut deed| Pause {
        by: deed.who,
        ago: ago(&deed.at),
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
        self.ago.map_or(Ok(()), |ago| write!(f, "{} ago ", length(ago)))?;
        write!(f, "by {}", self.by)?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}
