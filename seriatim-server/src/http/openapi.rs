//! The OpenAPI 3.1 document, made from the same list as the router.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use schemars::json_schema;
use serde_json::{Map, Value, json};
use seriatim::JobId;

use super::input::{JSON, NDJSON};
use super::problem::PROBLEM_JSON;
use super::schema::{Schemas, make, without_null};
use super::state::Described;
use super::{Access, App, Route, Shared};
use crate::protocol::document::Problem;
use crate::protocol::schema::{Described as _, queue_pattern};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/openapi.json", Access::Open, serve)
            .says("This document")
            .answers::<Value>()
            .outlives_drain(),
        Route::get("/docs", Access::Open, page)
            .says("This document as a page without scripts")
            .media("text/html")
            .outlives_drain(),
        Route::get("/docs.css", Access::Open, style)
            .says("The style sheet of that page")
            .media("text/css")
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

async fn page(app: Shared) -> Response {
    super::page::served(described(&app).page.clone())
}

async fn style() -> Response {
    let head = [(header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"))];
    (head, super::page::STYLE).into_response()
}

async fn serve(app: Shared) -> Response {
    let head = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
    (head, described(&app).document.clone()).into_response()
}

/// The document of these endpoints.
pub(super) fn document(routes: &[Route], base_path: &str) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Schemas::new());
    let problem = schemas.sent(make::<Problem>());
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route, &problem, &mut schemas);
    }
    let [received, sent] = schemas.named();
    let named: Map<String, Value> = received.into_iter().chain(sent).collect();
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
            "schemas": named,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, problem: &Value, schemas: &mut Schemas) -> Value {
    let content = |media: &str, schema: Value| json!({ media: { "schema": schema } });
    let answer = route.signature.answer.map_or_else(|| json!({}), |make| schemas.sent(make));
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.says,
        "parameters": parameters(route, schemas),
        "responses": {
            "200": { "description": "Done", "content": content(route.media, answer) },
            "default": {
                "description": "A problem document",
                "content": content(PROBLEM_JSON, problem.clone()),
            },
        },
    });
    if route.goes_on {
        let mut accepted = operation["responses"]["200"].clone();
        accepted["description"] = json!("Done in part; an operation does the rest, see Location");
        operation["responses"]["202"] = accepted;
    }
    if let Some(make) = route.signature.body {
        let mut body = content(JSON, schemas.received(make));
        if route.streams {
            body[NDJSON] = json!({ "schema": { "type": "string" } });
        }
        operation["requestBody"] = json!({ "required": true, "content": body });
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

pub(super) fn parameters(route: &Route, schemas: &mut Schemas) -> Value {
    let names = route.path.split(['{', '}']).skip(1).step_by(2);
    let of_path = |name: &str| {
        let schema = match name {
            "job_id" => JobId::schema(),
            "queue" => json_schema!({ "type": "string", "pattern": queue_pattern() }),
            _ => json_schema!({ "type": "string" }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    };
    let query = route.signature.query.map(|make| schemas.received(make)).unwrap_or_default();
    let is_required = |name: &str| {
        query["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
    };
    let fields = query["properties"].as_object().into_iter().flatten();
    let of_query = fields.map(|(name, schema)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|fields| fields.remove("description"));
        without_null(&mut schema);
        json!({
            "name": name, "in": "query", "required": is_required(name),
            "description": description, "schema": schema,
        })
    });
    names.map(of_path).chain(of_query).collect()
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
