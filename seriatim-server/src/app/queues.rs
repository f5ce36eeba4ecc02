//! The queues, as they are listed and shown.

use serde_json::{Value, json};
use seriatim::store::Store;
use seriatim::store::{NodeView, QueueView};

use super::error::Error;
use super::figures::Figures;
use super::{find, troubles};
use crate::protocol::document;

/// All queues with their figures; one that was made this moment may have none yet.
pub(crate) async fn with_figures(store: &dyn Store) -> Result<Vec<(QueueView, Figures)>, Error> {
    let (views, figures) = (store.queues().await?, Figures::all(store).await?);
    let of = |view: &QueueView| {
        figures.iter().find(|of| *of.stats.queue == *view.queue.name).cloned().unwrap_or_default()
    };
    Ok(views.into_iter().map(|view| (of(&view), view)).map(|(of, view)| (view, of)).collect())
}

/// All queues, as programs read them.
pub(crate) async fn all(store: &dyn Store) -> Result<Value, Error> {
    let queues = with_figures(store).await?;
    let (nodes, now) = (store.nodes().await?, store.now().await?);
    let document = |(view, figures): &(QueueView, Figures)| {
        let mut document = document::queue(view, figures.document());
        document["troubles"] = troubles::of_queue(&nodes, now, &view.queue.name);
        document
    };
    Ok(json!({ "queues": queues.iter().map(document).collect::<Vec<Value>>() }))
}

/// One queue in full, as programs read it.
pub(crate) async fn one(store: &dyn Store, name: &str) -> Result<Value, Error> {
    let (view, figures) = find::queue_with_figures(store, name).await?;
    let mut document = document::queue(&view, figures.document());
    document["settings"] = document::plain(&view.queue);
    let nodes = workers(store, name).await?;
    document["nodes"] = nodes.iter().map(|node| node.info.id.to_string()).collect();
    document["troubles"] = troubles::of_queue(&nodes, store.now().await?, name);
    Ok(document)
}

/// The nodes that work on a queue.
pub(crate) async fn workers(store: &dyn Store, name: &str) -> Result<Vec<NodeView>, Error> {
    let works = |node: &NodeView| !node.dead && node.info.queues.iter().any(|queue| queue == name);
    Ok(store.nodes().await?.into_iter().filter(works).collect())
}
