//! Deleting a queue.

#[cfg(all(
    test,
    any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")
))]
pub(crate) mod tests;

use super::Store;
use super::release::release_claims;
use super::request::{ClaimSelection, DeleteQueue};
use super::view::NodeState;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::limits::ACTION_ROWS_MAX;

/// How often claims are released that were made before the pause of the queue reached everybody.
const ATTEMPTS: usize = 5;

/// What the deletion of a queue took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// So many jobs, finished ones included.
    pub jobs: u64,
    /// So many lanes were released before.
    pub released: u64,
}

/// Deletes a queue with all that is in it ([`Store::delete_queue`]), in bounded steps.
///
/// Refused as `Conflict` while lanes of it are claimed, and while a living node works on it, which would declare it
/// again. With `force` it is paused, its claims are released, and it is deleted all the same; a node that declares
/// it makes it again, empty.
pub async fn delete_queue(store: &dyn Store, queue: &str, force: bool) -> Result<Deleted> {
    let mut deleted = Deleted::default();
    if !force {
        check_unused(store, queue).await?;
        deleted.jobs = delete(store, queue).await?;
        return Ok(deleted);
    }
    match store.pause_queue(queue, true).await {
        // A deletion that was broken off: it is closed, and nothing claims it.
        Err(error) if error.kind() == ErrorKind::Conflict => {}
        paused => paused?,
    }
    for attempt in 1.. {
        deleted.released += release_claims(store, ClaimSelection::Queue(queue.into())).await?;
        match delete(store, queue).await {
            Err(error) if error.kind() == ErrorKind::Conflict && attempt < ATTEMPTS => {}
            jobs => {
                deleted.jobs = jobs?;
                break;
            }
        }
    }
    Ok(deleted)
}

async fn delete(store: &dyn Store, queue: &str) -> Result<u64> {
    let mut jobs = 0;
    loop {
        let request = DeleteQueue { queue: queue.into(), rows_max: ACTION_ROWS_MAX };
        let step = store.delete_queue(request).await?;
        jobs += step.count;
        if !step.more {
            return Ok(jobs);
        }
    }
}

/// Refuses a queue on which a node works.
async fn check_unused(store: &dyn Store, queue: &str) -> Result<()> {
    let (nodes, now) = (store.nodes().await?, store.now().await?);
    let works = nodes.iter().find(|node| {
        let is_gone =
            matches!(node.state(now), NodeState::Stopped | NodeState::Dead | NodeState::Late);
        !is_gone && node.info.queues.iter().any(|name| name == queue)
    });
    let Some(node) = works else { return Ok(()) };
    let message = format!(
        "node {} works on queue {queue:?} and may declare it again: take the queue out of its configuration or stop \
         the node; by force it is deleted all the same",
        node.info.id
    );
    Err(Error::new(ErrorKind::Conflict, message).in_field("queue"))
}

/// What pushes to a queue and declarations of it are told while it is deleted.
pub(crate) fn is_closing(queue: &str) -> Error {
    let message = format!(
        "queue {queue:?} is being deleted: wait until it is gone; if the deletion was broken off, delete it again"
    );
    Error::new(ErrorKind::Conflict, message).in_field("queue")
}

/// Why a queue is not deleted.
pub(crate) fn is_claimed(queue: &str, lanes: u64) -> Error {
    let message = format!(
        "lanes of queue {queue:?} are claimed ({lanes}): release them or wait until they end; by force they are \
         released first"
    );
    Error::new(ErrorKind::Conflict, message).in_field("queue")
}
