//! The OpenAPI 3.1 document, made of the same list as the router.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::auth::Access;
use super::input::{JSON, NDJSON};
use super::problem::PROBLEM_JSON;
use super::route::{Parameter, Route};
use super::schema::Schema;
use super::state::{App, Described, Shared};
use super::{dataloader, jobs, lanes, morgue, nodes, push, queues, work};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/openapi.json", Access::Open, serve)
            .says("This document")
            .answers(Schema::any())
            .outlives_drain(),
        Route::get("/docs", Access::Open, page)
            .says("The same for people: a page without scripts")
            .media("text/html")
            .answers(Schema::text())
            .outlives_drain(),
        Route::get("/docs.css", Access::Open, style)
            .says("How that page looks")
            .media("text/css")
            .answers(Schema::text())
            .outlives_drain(),
    ]
}

fn described(app: &App) -> &Described {
    app.described.get_or_init(|| {
        let document = super::router::api_document(&app.base_path);
        let page = super::page::of(&document).into();
        Described { document: document.to_string().into(), page }
    })
}

async fn page(State(app): State<Shared>) -> Response {
    super::page::served(described(&app).page.clone())
}

async fn style() -> Response {
    let head = [(header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"))];
    (head, super::page::STYLE).into_response()
}

async fn serve(State(app): State<Shared>) -> Response {
    let head = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
    (head, described(&app).document.clone()).into_response()
}

/// The document of these endpoints.
pub(super) fn document(routes: &[Route], base_path: &str) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    let base_path = if base_path.is_empty() { "/" } else { base_path };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Seriatim",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Background jobs that run in order where order matters and in parallel everywhere else",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": base_path }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn schemas() -> Value {
    let named = [
        ("Problem", problem_schema()),
        ("Job", push::job_schema()),
        ("JobView", jobs::view_schema()),
        ("Trigger", dataloader::trigger_schema()),
        ("Status", dataloader::status_schema()),
        ("Queue", queues::queue_schema()),
        ("QueueSettings", queues::settings_schema()),
        ("Backoff", backoff_schema()),
        ("Lane", lanes::lane_schema()),
        ("DeadJobs", morgue::dead_schema()),
        ("Node", nodes::node_schema()),
        ("Trouble", nodes::trouble_schema()),
        ("Claim", work::claim_schema()),
        ("Turn", work::turn_schema()),
        ("Beat", work::beat_schema()),
        ("Results", work::results_schema()),
    ];
    named.into_iter().map(|(name, schema)| (name.to_owned(), schema.0)).collect()
}

fn operation(route: &Route) -> Value {
    let answer =
        json!({ "description": "Done", "content": { route.media: { "schema": route.answer.0 } } });
    let content = json!({ PROBLEM_JSON: { "schema": Schema::named("Problem").0 } });
    let problem = json!({ "description": "A problem document", "content": content });
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.says,
        "parameters": parameters(route),
        "responses": { "200": answer, "default": problem },
    });
    if let Some(body) = &route.body {
        let mut content = json!({ JSON: { "schema": body.0 } });
        if route.streams {
            content[NDJSON] = json!({ "schema": { "type": "string" } });
        }
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    if route.access != Access::Open {
        operation["security"] = json!([{ "token": [] }]);
        operation["x-roles"] = json!(route.access.roles());
    }
    operation
}

/// `post_queues_queue_pause`.
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1");
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = if route.path == "/" { vec!["root"] } else { words.collect() };
    format!("{}_{}", route.method.as_str().to_lowercase(), words.join("_"))
}

fn parameters(route: &Route) -> Value {
    let names = route.path.split(['{', '}']).skip(1).step_by(2);
    let schema = |name: &str| match name {
        "job_id" => Schema::job_id(),
        "queue" => Schema::queue(),
        _ => Schema::text(),
    };
    let of_path = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": schema(name).0 });
    let of_query = |parameter: &Parameter| {
        json!({
            "name": parameter.name, "in": "query", "required": parameter.required,
            "description": parameter.says, "schema": parameter.schema.0,
        })
    };
    names.map(of_path).chain(route.query.iter().map(of_query)).collect()
}

fn problem_schema() -> Schema {
    Schema::object(&[
        ("type", Schema::text()),
        ("title", Schema::text()),
        ("status", Schema::integer()),
        ("detail", Schema::text()),
        ("field", Schema::text()),
    ])
}

fn backoff_schema() -> Schema {
    let length = Schema::length_text;
    Schema::object(&[
        ("kind", Schema::one_of(&["polynomial", "constant", "linear", "exponential"])),
        ("base", length()),
        ("cap", length()),
        ("jitter", Schema::within(0, 100)),
    ])
    .requiring(&["kind"])
    .with_nulls()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
        let document = super::super::router::api_document("");
        let text = document.to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
        let routes = super::super::router::routes();
        let ids: BTreeSet<String> = routes.iter().map(operation_id).collect();
        assert_eq!(ids.len(), routes.len());
        assert!(routes.iter().all(|route| !route.says.is_empty()));
    }

    /// Whether the parts of a path stand in the line, one behind the other.
    fn shows(line: &str, path: &str) -> bool {
        let parts = path.trim_start_matches("/api/v1").split(['{', '}']).step_by(2);
        let mut rest = Some(line);
        for part in parts {
            rest = rest.and_then(|rest| rest.split_once(part).map(|(_, behind)| behind));
        }
        rest.is_some()
    }

    #[test]
    fn the_page_shows_every_endpoint() {
        let page = include_str!("../../../docs/http.md");
        for route in super::super::router::routes() {
            let is_there = |line: &str| line.contains("curl") && shows(line, route.path);
            assert!(page.lines().any(is_there), "docs/http.md lacks {}", route.path);
        }
    }
}
