//! The queues, as they are listed and shown.

use seriatim::store::Store;
use seriatim::store::{NodeView, QueueView};

use super::error::Error;
use super::figures::Figures;
use super::{find, troubles};
use crate::protocol::document::{Queue, Queues};

/// All queues with their figures; one that was made this moment may have none yet.
pub(crate) async fn with_figures(store: &dyn Store) -> Result<Vec<(QueueView, Figures)>, Error> {
    let (views, figures) = (store.queues().await?, Figures::all(store).await?);
    let of = |view: &QueueView| {
        figures.iter().find(|of| *of.stats.queue == *view.queue.name).cloned().unwrap_or_default()
    };
    Ok(views.into_iter().map(|view| (of(&view), view)).map(|(of, view)| (view, of)).collect())
}

/// All queues, as a JSON document.
pub(crate) async fn all(store: &dyn Store) -> Result<Queues, Error> {
    let queues = with_figures(store).await?;
    let (nodes, now) = (store.nodes().await?, store.now().await?);
    let document = |(view, figures): &(QueueView, Figures)| {
        let troubles = troubles::of_queue(&nodes, now, &view.queue.name);
        Queue::new(view, figures.numbers(), troubles)
    };
    Ok(Queues { queues: queues.iter().map(document).collect() })
}

/// One queue in full, as a JSON document.
pub(crate) async fn one(store: &dyn Store, name: &str) -> Result<Queue, Error> {
    let (view, figures) = find::queue_with_figures(store, name).await?;
    let nodes = workers(store, name).await?;
    let troubles = troubles::of_queue(&nodes, store.now().await?, name);
    Ok(Queue::new(&view, figures.numbers(), troubles).in_full(view.queue, &nodes))
}

/// The nodes that work on a queue.
pub(crate) async fn workers(store: &dyn Store, name: &str) -> Result<Vec<NodeView>, Error> {
    let works = |node: &NodeView| !node.dead && node.info.queues.iter().any(|queue| queue == name);
    Ok(store.nodes().await?.into_iter().filter(works).collect())
}
