//! The queues, as they are listed and shown.

use std::collections::HashMap;

use seriatim::Timestamp;
use seriatim::store::{NodeView, QueueView, Store};

use super::error::Result;
use super::figures::Figures;
use super::history::{self, Span};
use super::{find, troubles};
use crate::protocol::document::{Queue, Queues};

/// All queues with their figures, and the nodes, asked side by side. A queue that was made this moment may have no figures yet.
pub(crate) async fn with_figures(
    store: &dyn Store,
) -> Result<(Vec<(QueueView, Figures)>, Vec<NodeView>)> {
    let (views, stats, nodes) = tokio::try_join!(store.queues(), store.stats(None), store.nodes())?;
    let figures = Figures::of(stats, &nodes).into_iter();
    let mut figures: HashMap<_, _> = figures.map(|of| (of.stats.queue.clone(), of)).collect();
    let with = |view: QueueView| {
        let of = figures.remove(view.queue.name.as_str()).unwrap_or_default();
        (view, of)
    };
    Ok((views.into_iter().map(with).collect(), nodes))
}

/// All queues, as a JSON document.
pub(crate) async fn all(store: &dyn Store) -> Result<Queues> {
    let (queues, nodes) = with_figures(store).await?;
    Ok(Queues { queues: documents(&queues, &nodes, store.now().await?) })
}

/// These queues, as JSON documents.
pub(crate) fn documents(
    queues: &[(QueueView, Figures)],
    nodes: &[NodeView],
    now: Timestamp,
) -> Vec<Queue> {
    let mut troubles = troubles::by_queue(nodes, now);
    let document = |(view, figures): &(QueueView, Figures)| {
        let troubles = troubles.remove(view.queue.name.as_str()).unwrap_or_default();
        Queue::new(view, figures.numbers(), troubles)
    };
    queues.iter().map(document).collect()
}

/// One queue in full, as a JSON document.
pub(crate) async fn one(store: &dyn Store, name: &str) -> Result<Queue> {
    let (view, figures) = find::queue_with_figures(store, name).await?;
    let nodes = workers(store, name).await?;
    let now = store.now().await?;
    let troubles = troubles::by_queue(&nodes, now).remove(name).unwrap_or_default();
    let turns = history::turns(store, name, Span::Hour, now).await?;
    Ok(Queue::new(&view, figures.numbers(), troubles).in_full(view.queue, &nodes, turns))
}

/// The nodes that work on a queue.
pub(crate) async fn workers(store: &dyn Store, name: &str) -> Result<Vec<NodeView>> {
    let works = |node: &NodeView| !node.dead && node.info.queues.iter().any(|queue| queue == name);
    Ok(store.nodes().await?.into_iter().filter(works).collect())
}
