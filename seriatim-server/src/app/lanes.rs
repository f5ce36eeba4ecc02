//! Actions on one lane.

use seriatim::store::Store;
use seriatim::store::{Act, ClaimSelection, LaneAction, LaneSelection, release_claims};

use super::error::Error;
use super::find;

/// Acts on a lane; refuses one that is not there, or that the action leaves alone as it is claimed.
pub(crate) async fn act(
    store: &dyn Store,
    queue: &str,
    lanes: LaneSelection,
    action: LaneAction,
) -> Result<u64, Error> {
    let request = Act { now: None, queue: queue.into(), lanes: lanes.clone(), action };
    match (store.act(request).await?.count, lanes) {
        (0, LaneSelection::Key(key)) => {
            find::lane(store, queue, &key).await?;
            Err(Error::Claimed { key })
        }
        (0, _) => Err(Error::NoLaneFree { queue: queue.to_owned() }),
        (count, _) => Ok(count),
    }
}

/// Takes a claim from its holder.
pub(crate) async fn release(
    store: &dyn Store,
    queue: &str,
    lane: LaneSelection,
) -> Result<u64, Error> {
    let claims = match lane {
        // Who may act on this queue may not act on a lane of another one.
        LaneSelection::Lane(lane) if lane.queue == find::queue(store, queue).await?.number => {
            ClaimSelection::Lane(lane)
        }
        LaneSelection::Key(key) => ClaimSelection::Key { queue: queue.into(), key },
        _ => return Err(Error::NoLaneFree { queue: queue.to_owned() }),
    };
    match (release_claims(store, claims.clone()).await?, claims) {
        (0, ClaimSelection::Key { queue, key }) => {
            find::lane(store, &queue, &key).await?;
            Err(Error::NotClaimed)
        }
        (0, _) => Err(Error::NotClaimed),
        (count, _) => Ok(count),
    }
}
