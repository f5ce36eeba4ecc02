//! Finds named queues, lanes and jobs.

use std::time::Duration;

use futures_util::TryFutureExt;
use seriatim::store::{JobView, LaneQuery, LaneView, QueueView};
use seriatim::{JobId, store::Store};

use super::error::{Error, Result};
use crate::app::figures::Figures;

/// The queue of this name, if there is one.
pub(crate) async fn known(store: &dyn Store, name: &str) -> Result<Option<QueueView>> {
    Ok(store.queues().await?.into_iter().find(|view| view.queue.name == name))
}

/// The queue of this name.
pub(crate) async fn queue(store: &dyn Store, name: &str) -> Result<QueueView> {
    let mut queues = store.queues().await?;
    if let Some(at) = queues.iter().position(|view| view.queue.name == name) {
        return Ok(queues.swap_remove(at));
    }
    let near = seriatim::names::did_you_mean(name, queues.iter().map(|view| &*view.queue.name));
    Err(Error::NoQueue { name: name.to_owned(), near })
}

/// The queue of this name, with its figures.
pub(crate) async fn queue_with_figures(
    store: &dyn Store,
    name: &str,
) -> Result<(QueueView, Figures)> {
    tokio::try_join!(queue(store, name), Figures::one(store, name).err_into())
}

/// The job of this id, in whatever state.
pub(crate) async fn job(store: &dyn Store, id: JobId) -> Result<JobView> {
    if let Some(job) = store.job(id).await? {
        return Ok(job);
    }
    let queues = store.queues().await?;
    let why = match queues.iter().find(|view| view.number == id.queue()) {
        Some(view) if view.queue.retention() == Duration::ZERO => format!(
            "queue {:?} keeps no finished jobs (retain_completed), so it may have ended",
            view.queue.name
        ),
        Some(view) => format!(
            "if it was in queue {:?}, it ended more than {} ago or was deleted",
            view.queue.name,
            seriatim::duration::format(view.queue.retention())
        ),
        None => return Err(Error::ForeignJob(id)),
    };
    Err(Error::NoJob { id, why })
}

pub(crate) async fn lane(store: &dyn Store, queue: &str, key: &str) -> Result<LaneView> {
    let missing = || Error::NoLane { queue: queue.to_owned(), key: key.to_owned() };
    known_lane(store, queue, key).await?.ok_or_else(missing)
}

/// The lane of a key, if anything of it waits or is claimed.
pub(crate) async fn known_lane(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> Result<Option<LaneView>> {
    let query = LaneQuery { key: Some(key.to_owned()), rows_max: 1, ..LaneQuery::new(queue) };
    Ok(store.lanes(query).await?.rows.pop())
}
