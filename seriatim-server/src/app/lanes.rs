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
pub(crate) async fn release(store: &dyn Store, claims: ClaimSelection) -> Result<u64, Error> {
    match (release_claims(store, claims.clone()).await?, claims) {
        (0, ClaimSelection::Key { queue, key }) => {
            find::lane(store, &queue, &key).await?;
            Err(Error::NotClaimed)
        }
        (0, _) => Err(Error::NotClaimed),
        (count, _) => Ok(count),
    }
}
