//! Actions on one lane.

use seriatim::store::Store;
use seriatim::store::{
    Act, ClaimSelection, LaneAction, LaneId, LaneQuery, LaneSelection, LaneState, LaneView,
    release_claims,
};

use super::error::{Error, Result};
use super::find;

/// A lane of a queue, as people and programs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OneLane {
    Key(String),
    Lane(LaneId),
}

impl From<OneLane> for LaneSelection {
    fn from(lane: OneLane) -> Self {
        match lane {
            OneLane::Key(key) => Self::Key(key),
            OneLane::Lane(lane) => Self::Lanes(vec![lane]),
        }
    }
}

/// The lane as it is, if anything of it waits or is claimed.
pub(crate) async fn known(
    store: &dyn Store,
    queue: &str,
    lane: &OneLane,
) -> Result<Option<LaneView>> {
    let id = match lane {
        OneLane::Key(key) => return find::known_lane(store, queue, key).await,
        OneLane::Lane(id) => *id,
    };
    let query = LaneQuery { lane: Some(id), rows_max: 1, ..LaneQuery::new(queue) };
    Ok(store.lanes(query).await?.rows.pop())
}

/// Acts on a lane; refuses one that is not there, or that the action leaves alone as it is claimed.
pub(crate) async fn act(
    store: &dyn Store,
    queue: &str,
    lane: OneLane,
    action: LaneAction,
) -> Result<u64> {
    let request = Act { now: None, queue: queue.into(), lanes: lane.clone().into(), action };
    match (store.act(request).await?.count, lane) {
        (0, OneLane::Key(key)) => match find::lane(store, queue, &key).await?.state {
            // Nothing of it had failed.
            state if state != LaneState::Claimed && action == LaneAction::Bury => Ok(0),
            _ => Err(Error::Claimed { key }),
        },
        (0, OneLane::Lane(_)) => Err(Error::NoLaneFree { queue: queue.to_owned() }),
        (count, _) => Ok(count),
    }
}

/// What is then said of so many lanes: `is paused`, `are paused`.
pub(crate) fn done(action: LaneAction, lanes: u64) -> &'static str {
    let (one, several) = match action {
        LaneAction::Pause => ("is paused", "are paused"),
        LaneAction::Resume => ("is resumed", "are resumed"),
        LaneAction::RunNow => ("is due now", "are due now"),
        LaneAction::Bury => ("is buried", "are buried"),
        LaneAction::DeleteFailed => ("is deleted", "are deleted"),
        LaneAction::Delete => ("is emptied", "are emptied"),
    };
    if lanes == 1 { one } else { several }
}

/// Takes a claim from its holder.
pub(crate) async fn release(store: &dyn Store, queue: &str, lane: OneLane) -> Result<u64> {
    let claims = match lane {
        // A caller that may act on this queue may not act on a lane of another one.
        OneLane::Lane(lane) if lane.queue == find::queue(store, queue).await?.number => {
            ClaimSelection::Lane(lane)
        }
        OneLane::Key(key) => ClaimSelection::Key { queue: queue.into(), key },
        OneLane::Lane(_) => return Err(Error::NoLaneFree { queue: queue.to_owned() }),
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
