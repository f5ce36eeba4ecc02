//! Remote workers: they claim, beat and settle by HTTP.
//!
//! Each worker is a node of the store, under a name that no engine and no other token can take. A claim has its own lease, so that the death of the
//! process that served it does not touch it; only the worker's heartbeats extend it.

mod claim;
mod heartbeat;
mod secret;
mod settle;
mod taken;
pub(super) mod workers;

use serde_json::json;

use super::auth::Access;
use super::limits::{
    CLAIM_LANES_MAX, CLAIM_QUEUES_MAX, LEASE_SECONDS, NAMED_LANES_MAX, WAIT_MS_MAX,
};
use super::route::Route;
use super::schema::Schema;

pub(super) fn routes() -> Vec<Route> {
    let text = Schema::text;
    let cancel = Schema::object(&[("lane", text()), ("job_ids", Schema::list(text()))]);
    let settled = Schema::object(&[
        ("lane", text()),
        ("token", Schema::integer()),
        ("status", Schema::one_of(&["ok", "stale"])),
    ]);
    vec![
        Route::post("/api/v1/work/claim", Access::Work, claim::claim)
            .says("Takes lanes for execution, and waits for some if there are none")
            .body(Schema::named("Claim"))
            .keeps_scope()
            .answers(Schema::object(&[
                ("lanes", Schema::list(Schema::named("Turn"))),
                ("unknown_queues", Schema::list(text())),
            ])),
        Route::post("/api/v1/work/heartbeat", Access::Work, heartbeat::heartbeat)
            .says("Extends claims, tells how far they are, and learns what is cancelled or lost")
            .body(Schema::named("Beat"))
            .keeps_scope()
            .answers(Schema::object(&[
                ("cancel", Schema::list(cancel)),
                ("lost", Schema::list(text())),
            ]))
            .outlives_drain(),
        Route::post("/api/v1/work/settle", Access::Work, settle::settle)
            .says("Ends turns, by the token that claimed them; a result whose fencing token is not the newest is stale and changes nothing")
            .body(Schema::named("Results"))
            .keeps_scope()
            .answers(Schema::object(&[("results", Schema::list(settled))]))
            .outlives_drain(),
    ]
}

pub(super) fn claim_schema() -> Schema {
    let queues = Schema(json!({
        "type": "array", "items": Schema::queue().0, "minItems": 1, "maxItems": CLAIM_QUEUES_MAX,
    }));
    let groups = Schema(json!({
        "type": "array", "items": { "type": "string" }, "maxItems": CLAIM_QUEUES_MAX,
    }));
    Schema::object(&[
        ("worker", worker()),
        ("queues", queues),
        ("limit", Schema::within(1, CLAIM_LANES_MAX as u64)),
        ("lease_ttl_sec", lease()),
        ("wait_ms", Schema::within(0, WAIT_MS_MAX)),
        ("consumer_groups", groups),
    ])
    .requiring(&["worker", "queues"])
    .closed()
}

/// As many as one request may name.
fn listed(of: Schema) -> Schema {
    Schema(json!({ "type": "array", "items": of.closed().0, "maxItems": NAMED_LANES_MAX }))
}

/// How long a claim stands, in seconds.
fn lease() -> Schema {
    let (least, most) = LEASE_SECONDS.into_inner();
    Schema(json!({ "type": "number", "minimum": least, "maximum": most }))
}

/// What the holder of a claim is known by.
fn secret() -> Schema {
    Schema(json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }))
}

/// The name of a worker: no control characters.
fn worker() -> Schema {
    Schema(json!({ "type": "string", "pattern": "^[ -~]{1,256}$" }))
}

pub(super) fn turn_schema() -> Schema {
    let (text, number) = (Schema::text, Schema::integer);
    let job = [
        ("job_id", text()),
        ("score", Schema::number()),
        ("payload", Schema::any()),
        ("traceparent", text()),
    ];
    Schema::object(&[
        ("lane", text()),
        ("queue", text()),
        ("key", text().or_null()),
        ("token", number()),
        ("secret", secret()),
        ("retry_count", number()),
        ("crashes", number()),
        ("attempt", number()),
        ("task", text().or_null()),
        ("jobs", Schema::list(Schema::object(&job))),
    ])
}

pub(super) fn beat_schema() -> Schema {
    let claim = Schema::object(&[
        ("lane", Schema::lane()),
        ("token", Schema::integer()),
        ("secret", secret()),
        ("progress", Schema::any()),
    ]);
    Schema::object(&[
        ("worker", worker()),
        ("lease_ttl_sec", lease()),
        ("claims", listed(claim.requiring(&["lane", "token", "secret"]))),
    ])
    .requiring(&["worker", "claims"])
    .closed()
}

pub(super) fn results_schema() -> Schema {
    let result = Schema::object(&[
        ("lane", Schema::lane()),
        ("token", Schema::integer()),
        ("secret", secret()),
        ("outcome", Schema::one_of(&settle::OUTCOMES)),
        ("error", Schema::text()),
        ("retry_in", Schema::length()),
        ("done", Schema(json!({ "type": "integer", "minimum": 0 }))),
    ]);
    Schema::object(&[
        ("worker", worker()),
        ("results", listed(result.requiring(&["lane", "token", "secret", "outcome"]))),
    ])
    .requiring(&["worker", "results"])
    .closed()
}
