//! The morgue of a queue of Lowkiq: payload by payload, as it has no order.

use seriatim::Timestamp;
use tokio::time::Duration;

use super::ids::{BATCH_BYTES_MAX, BATCH_PAYLOADS_MAX, page};
use super::link::TAKE_MORGUE;
use super::{Call, Fault, Keys, Link, Source};

/// Ids that one step looks at.
const LOOK_IDS_MAX: usize = 500;
/// How often an empty morgue is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Takes a batch: `none` if there is nothing, `held` if one is in flight, `taken` with its payloads.
pub(super) async fn take(
    link: &mut Link,
    (keys, source): (&Keys, &Source),
    queue: &str,
    mark: &str,
) -> Result<(String, u64), Fault> {
    let ids = page(link, (keys, source), 0, LOOK_IDS_MAX).await?;
    if ids.is_empty() {
        return Ok(("none".to_owned(), 0));
    }
    let mut script = Call::of(&TAKE_MORGUE);
    script.key(keys.in_flight(source)).key(keys.sequence(source)).key(keys.source(source));
    script.prefix(keys.morgue(queue)).arg(BATCH_PAYLOADS_MAX).arg(BATCH_BYTES_MAX);
    script.arg(Timestamp::of_this_machine().as_micros() / 1_000).arg(mark);
    script.arg(keys.run(source, &link.run));
    for (id, _) in &ids {
        script.arg(id);
    }
    link.call(&script).await
}
