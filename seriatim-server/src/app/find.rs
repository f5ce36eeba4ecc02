//! Finds what a person named, or says what to do when it is not there.

use std::time::Duration;

use seriatim::store::{JobView, LaneOrder, LaneQuery, LaneView, QueueView};
use seriatim::{JobId, Store};

use crate::app::figures::Figures;
use crate::base::text::one_line;
use crate::cli::output::Failure;

/// The queue of this name, if there is one.
pub(crate) async fn known(store: &dyn Store, name: &str) -> Result<Option<QueueView>, Failure> {
    Ok(store.queues().await?.into_iter().find(|view| view.queue.name == name))
}

/// The queue of this name.
pub(crate) async fn queue(store: &dyn Store, name: &str) -> Result<QueueView, Failure> {
    let mut queues = store.queues().await?;
    if let Some(at) = queues.iter().position(|view| view.queue.name == name) {
        return Ok(queues.swap_remove(at));
    }
    let near = seriatim::names::did_you_mean(name, queues.iter().map(|view| &*view.queue.name));
    Err(Failure::missing(format!(
        "there is no queue {name:?}{near}: `seriatim queues` lists them; a push creates one"
    )))
}

/// The queue of this name, with its figures.
pub(crate) async fn queue_with_figures(
    store: &dyn Store,
    name: &str,
) -> Result<(QueueView, Figures), Failure> {
    let view = queue(store, name).await?;
    Ok((view, Figures::one(store, name).await?))
}

/// The job of this id, in whatever state.
pub(crate) async fn job(store: &dyn Store, id: JobId) -> Result<JobView, Failure> {
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
            "if it was one of queue {:?}, it ended more than {} ago or was deleted",
            view.queue.name,
            seriatim::duration::format(view.queue.retention())
        ),
        None => "no queue of this store gives such ids: is it the right --store?".to_owned(),
    };
    Err(Failure::missing(format!("no job {id} is known: {why}")))
}

/// The lane of a key.
pub(crate) async fn lane(store: &dyn Store, queue: &str, key: &str) -> Result<LaneView, Failure> {
    known_lane(store, queue, key).await?.ok_or_else(|| no_lane(queue, key))
}

/// The lane of a key, if anything of it waits or is claimed.
pub(crate) async fn known_lane(
    store: &dyn Store,
    queue: &str,
    key: &str,
) -> Result<Option<LaneView>, Failure> {
    let query = LaneQuery {
        queue: queue.into(),
        key: Some(key.to_owned()),
        claimed: false,
        order: LaneOrder::Age,
        after: None,
        rows_max: 1,
    };
    Ok(store.lanes(query).await?.rows.pop())
}

/// Nothing of this key waits or is claimed.
pub(crate) fn no_lane(queue: &str, key: &str) -> Failure {
    let shown = one_line(key);
    Failure::missing(format!(
        "queue {queue:?} has nothing of key {shown:?} that waits or is claimed; its dead jobs: `seriatim morgue {queue} --key {shown}`"
    ))
}
