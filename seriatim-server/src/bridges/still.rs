//! Waits until a paused bridge has stopped moving: the node that leads it notices a pause a little later.

use seriatim::store::Store;
use tokio::time::{Duration, Instant, sleep};

use super::{Fault, Keys, Link, Source};
use crate::app::bridges::{is_unattended, status};
use crate::protocol::document::BridgeState;

/// A node looks every 2 s, and may wait as long for a job.
const WAIT_MAX: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Waits for these sources of a bridge. Otherwise which of them still moves, or has a batch in flight.
pub(super) async fn still(
    store: &dyn Store,
    bridge: &str,
    sources: &[String],
) -> Result<(), String> {
    let end = Instant::now() + WAIT_MAX;
    for source in sources {
        while let Some(why) = moves(store, bridge, source).await? {
            if Instant::now() >= end {
                return Err(format!("bridge {bridge}, {source}: {why}"));
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Why a source is not still, if it is not.
pub(super) async fn moves(
    store: &dyn Store,
    bridge: &str,
    source: &str,
) -> Result<Option<&'static str>, String> {
    let told = |error: seriatim::Error| error.to_string();
    let now = store.now().await.map_err(told)?;
    let Some(known) = status(store, bridge, source).await.map_err(told)? else { return Ok(None) };
    Ok(match known.state {
        _ if known.in_flight > 0 => {
            Some("a chunk is in flight: a node with this bridge must push it first")
        }
        BridgeState::Moving if !is_unattended(&known, now) => {
            Some("its node has not seen the pause yet, or died: repeat this in a minute")
        }
        _ => None,
    })
}

/// What the bridge still has in hand of a source, as Redis itself tells: a node that was killed may have taken it after
/// its last report.
pub(super) async fn in_hand(
    link: &mut Link,
    keys: &Keys,
    source: &Source,
) -> Result<Option<&'static str>, Fault> {
    let is_in_flight: bool = link.ask(redis::cmd("EXISTS").arg(keys.in_flight(source))).await?;
    if is_in_flight {
        return Ok(Some(
            "a chunk is in flight: start a node with this bridge, which pushes it also while the bridge is paused",
        ));
    }
    let is_woken: bool = link.ask(redis::cmd("EXISTS").arg(keys.woken(source))).await?;
    Ok(is_woken.then_some(
        "a job is not back in its queue: start a node with this bridge, which puts it there also while the bridge is paused",
    ))
}
