//! Deleting a queue.

#[cfg(all(
    test,
    any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite")
))]
pub(crate) mod tests;

use super::release::release_claims;
use super::{ClaimSelection, DeleteQueue, NodeState, Store};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{Error, ErrorKind, Result};

/// How often to release claims that were made before all nodes saw the pause of the queue.
const ATTEMPTS: usize = 5;

/// What the deletion of a queue removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// The number of jobs, finished ones included.
    pub jobs: u64,
    /// The number of lanes whose claims were released first.
    pub released: u64,
}

/// Deletes a queue with all its contents ([`Queues::delete_queue`](super::Queues::delete_queue)), in bounded steps.
///
/// Fails as `Conflict` while lanes of it are claimed, and while a live node works on it, because that node would
/// declare it again. With `force` it pauses the queue, releases its claims and deletes it anyway; a node that
/// declares the queue then creates it again, empty.
pub async fn delete_queue(store: &dyn Store, queue: &str, force: bool) -> Result<Deleted> {
    let mut deleted = Deleted::default();
    if !force {
        check_unused(store, queue).await?;
        deleted.jobs = delete(store, queue).await?;
        return Ok(deleted);
    }
    match store.pause_queue(queue.into(), true).await {
        // An earlier deletion was interrupted: the queue is closed, and nothing claims it.
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
         the node; with force it is deleted anyway",
        node.info.id
    );
    Err(Error::new(ErrorKind::Conflict, message).in_field("queue"))
}
