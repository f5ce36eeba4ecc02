//! Nodes, and commands to them.

use seriatim::store::Command;

use super::limits::NODES_MAX;
use super::{Access, Answer, Part, Result, Route, Shared};
use crate::app::nodes;
use crate::protocol::document::{Node, NodeCommanded, NodeReleased, Nodes};

pub(super) fn routes() -> Vec<Route> {
    type Name = Part<String>;
    let quiet = |app: Shared, node: Name| send(app, node, Command::Quiet);
    let resume = |app: Shared, node: Name| send(app, node, Command::Resume);
    let stop = |app: Shared, node: Name| send(app, node, Command::Stop);
    vec![
        Route::get("/api/v1/nodes", Access::Read, list_all)
            .says("All nodes that are alive, or died or stopped in the last day"),
        Route::get("/api/v1/nodes/{node}", Access::Read, show)
            .says("One node and its claimed lanes; named by id, start of the id, or name"),
        Route::post("/api/v1/nodes/{node}/quiet", Access::Operate, quiet)
            .says("Stops a node from claiming"),
        Route::post("/api/v1/nodes/{node}/resume", Access::Operate, resume)
            .says("Lets a quiet or stopping node claim again"),
        Route::post("/api/v1/nodes/{node}/stop", Access::Admin, stop)
            .says("Makes a node finish its running jobs and exit"),
        Route::post("/api/v1/nodes/{node}/release", Access::Admin, release)
            .says("Takes all claims from a node or remote worker; each counts as a crash"),
    ]
}

async fn list_all(app: Shared) -> Result<Answer<Nodes>> {
    let mut document = nodes::all(&*app.store).await?;
    // Remote workers name themselves: there may be any number of names.
    let left_out = document.nodes.len().saturating_sub(NODES_MAX);
    document.nodes.truncate(NODES_MAX);
    document.left_out = Some(left_out).filter(|left_out| *left_out > 0);
    Ok(Answer::of(&document))
}

async fn show(app: Shared, Part(node): Part<String>) -> Result<Answer<Node>> {
    Ok(Answer::of(&nodes::one(&*app.store, &node).await?))
}

async fn send(
    app: Shared,
    Part(node): Part<String>,
    command: Command,
) -> Result<Answer<NodeCommanded>> {
    let node = nodes::command(&*app.store, &node, command).await?;
    Ok(Answer::of(&NodeCommanded { node, command }))
}

async fn release(app: Shared, Part(node): Part<String>) -> Result<Answer<NodeReleased>> {
    let (node, count) = nodes::release(&*app.store, &node).await?;
    Ok(Answer::of(&NodeReleased { node, count }).counting(count))
}
