//! The processes that work, and what they are told.

use axum::extract::State;
use serde_json::json;
use seriatim::store::Command;
use seriatim::store::Store;

use super::auth::Access;
use super::input::Part;
use super::limits::NODES_MAX;
use super::problem::Problem;
use super::route::{Answer, Route};
use super::schema::Schema;
use super::state::Shared;
use crate::app::nodes;

pub(super) fn routes() -> Vec<Route> {
    let told = || Schema::object(&[("node", Schema::text()), ("command", Schema::text())]);
    let list = Schema::object(&[
        ("nodes", Schema::list(Schema::named("Node"))),
        ("left_out", Schema::integer()),
    ]);
    vec![
        Route::get("/api/v1/nodes", Access::Read, list_all)
            .says("All nodes that live, or died or stopped within a day")
            .answers(list),
        Route::get("/api/v1/nodes/{node}", Access::Read, show)
            .says("One node and what it runs; named by its id, the beginning of it, or its name")
            .answers(Schema::named("Node")),
        Route::post("/api/v1/nodes/{node}/quiet", Access::Admin, quiet)
            .says("Tells a node to take no more work")
            .answers(told()),
        Route::post("/api/v1/nodes/{node}/resume", Access::Admin, resume)
            .says("Takes back what made a node quiet: it takes work again")
            .answers(told()),
        Route::post("/api/v1/nodes/{node}/stop", Access::Admin, stop)
            .says("Tells a node to finish what runs and exit")
            .answers(told()),
        Route::post("/api/v1/nodes/{node}/release", Access::Admin, release)
            .says("Takes all claims from a node or remote worker: each counts as a crash; of how many lanes")
            .answers(Schema::object(&[("node", Schema::text()), ("count", Schema::integer())])),
    ]
}

pub(super) fn node_schema() -> Schema {
    let (text, number) = (Schema::text, Schema::integer);
    Schema::object(&[
        ("node", text()),
        ("name", text()),
        ("host", text()),
        ("pid", number()),
        ("version", text()),
        (
            "state",
            Schema::one_of(&["alive", "late", "quiet", "stopping", "stopped", "dead", "gone"]),
        ),
        ("queues", Schema::list(text())),
        ("concurrency", number()),
        ("busy", number()),
        ("claimed", number()),
        ("running", number()),
        ("prefetched", number()),
        ("started_at", text()),
        ("heartbeat_at", text()),
        ("lease", text()),
        ("command", text().or_null()),
        ("troubles", Schema::list(Schema::named("Trouble"))),
        ("lanes", Schema::list(Schema::named("Lane"))),
    ])
}

/// What is wrong with a node right now.
pub(super) fn trouble_schema() -> Schema {
    let text = Schema::text;
    Schema::object(&[
        ("kind", text()),
        ("queue", text().or_null()),
        ("about", text()),
        ("text", text()),
        ("times", Schema::integer()),
        ("since", text()),
        ("last_at", text()),
        ("node", text()),
    ])
}

async fn list_all(State(app): State<Shared>) -> Result<Answer, Problem> {
    let mut document = nodes::all(&*app.store).await?;
    let nodes = document["nodes"].as_array_mut();
    // Remote workers name themselves: there may be any number of names.
    let left_out = nodes.map_or(0, |nodes| {
        let left_out = nodes.len().saturating_sub(NODES_MAX);
        nodes.truncate(NODES_MAX);
        left_out
    });
    if left_out > 0 {
        document["left_out"] = left_out.into();
    }
    Ok(Answer(document))
}

async fn show(State(app): State<Shared>, Part(node): Part<String>) -> Result<Answer, Problem> {
    Ok(Answer(nodes::one(&*app.store, &node).await?))
}

async fn quiet(State(app): State<Shared>, Part(node): Part<String>) -> Result<Answer, Problem> {
    tell(&*app.store, &node, Command::Quiet).await
}

async fn resume(State(app): State<Shared>, Part(node): Part<String>) -> Result<Answer, Problem> {
    tell(&*app.store, &node, Command::Resume).await
}

async fn stop(State(app): State<Shared>, Part(node): Part<String>) -> Result<Answer, Problem> {
    tell(&*app.store, &node, Command::Stop).await
}

async fn release(State(app): State<Shared>, Part(node): Part<String>) -> Result<Answer, Problem> {
    let (node, count) = nodes::release(&*app.store, &node).await?;
    Ok(Answer(json!({ "node": node, "count": count })))
}

async fn tell(store: &dyn Store, node: &str, command: Command) -> Result<Answer, Problem> {
    let node = nodes::command(store, node, command).await?;
    Ok(Answer(json!({ "node": node, "command": command })))
}
