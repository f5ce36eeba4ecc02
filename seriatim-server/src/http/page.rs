//! The OpenAPI document as an HTML page without scripts.

use std::fmt::Write;

use askama::Template;
use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

pub(super) const STYLE: &str = include_str!("page.css");
const REFERENCE: &str = "#/components/schemas/";

/// A page needs only our style sheet.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// A page as the answer, which runs no script and is shown in no frame.
pub(super) fn served(page: impl Into<Bytes>) -> Response {
    let head = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (head, page.into()).into_response()
}

/// Parts of a text, and whether each stood between backticks.
type Prose = Vec<(String, bool)>;
/// Parts of a schema, and the name of the schema that each leads to.
type Shown = Vec<(String, String)>;

#[derive(Template)]
#[template(path = "api.html")]
struct ApiPage<'a> {
    title: &'a str,
    version: &'a str,
    description: &'a str,
    /// The first page of this server.
    home: &'a str,
    /// Names of groups, each with its first operation.
    groups: Vec<(&'a str, &'a str)>,
    operations: Vec<Operation<'a>>,
    schemas: Vec<(&'a str, Shown)>,
}

struct Operation<'a> {
    id: &'a str,
    method: String,
    path: &'a str,
    says: Prose,
    roles: String,
    command: String,
    parameters: Vec<Parameter<'a>>,
    bodies: Vec<Body<'a>>,
}

/// Of the query.
struct Parameter<'a> {
    name: &'a str,
    is_required: bool,
    says: Prose,
}

/// What is sent or answered.
struct Body<'a> {
    what: &'static str,
    media: &'a str,
    schema: Shown,
}

/// The page of a document.
pub(super) fn of(document: &Value) -> String {
    let mut operations = Vec::new();
    for (path, methods) in fields(&document["paths"]) {
        operations.extend(fields(methods).map(|(method, of)| Operation::new(path, method, of)));
    }
    let schemas = fields(&document["components"]["schemas"]);
    let page = ApiPage {
        title: text(&document["info"]["title"]),
        version: text(&document["info"]["version"]),
        description: text(&document["info"]["description"]),
        home: Some(text(&document["servers"][0]["url"]))
            .filter(|url| !url.is_empty())
            .unwrap_or("/"),
        groups: groups(&operations),
        operations,
        schemas: schemas.map(|(name, schema)| (name.as_str(), shown(schema))).collect(),
    };
    // It writes texts into a text: that cannot fail.
    page.render().unwrap_or_default()
}

/// By the first word of the path behind the version.
fn groups<'a>(operations: &[Operation<'a>]) -> Vec<(&'a str, &'a str)> {
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for of in operations {
        let path = of.path.trim_start_matches("/api/v1").trim_start_matches('/');
        let name = path.split('/').next().unwrap_or_default();
        if !name.is_empty() && !groups.iter().any(|(known, _)| *known == name) {
            groups.push((name, of.id));
        }
    }
    groups
}

fn fields(of: &Value) -> impl Iterator<Item = (&String, &Value)> {
    of.as_object().into_iter().flatten()
}

fn list(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

impl<'a> Operation<'a> {
    fn new(path: &'a str, method: &str, operation: &'a Value) -> Self {
        let roles: Vec<&str> = list(&operation["x-roles"]).map(text).collect();
        let of_query = |parameter: &&Value| parameter["in"] == "query";
        let parameter = |parameter: &'a Value| Parameter {
            name: text(&parameter["name"]),
            is_required: parameter["required"] == true,
            says: prose(&parameter["description"]),
        };
        let bodies = [
            ("Body", &operation["requestBody"]["content"]),
            ("Answer", &operation["responses"]["200"]["content"]),
        ];
        let of_place = |(what, place): (&'static str, &'a Value)| {
            fields(place).map(move |(media, content)| Body {
                what,
                media,
                schema: shown(&content["schema"]),
            })
        };
        Self {
            id: text(&operation["operationId"]),
            method: method.to_uppercase(),
            path,
            says: prose(&operation["summary"]),
            roles: if roles.is_empty() { "everyone".to_owned() } else { roles.join(", ") },
            command: command(path, method, operation),
            parameters: list(&operation["parameters"]).filter(of_query).map(parameter).collect(),
            bodies: bodies.into_iter().flat_map(of_place).collect(),
        }
    }
}

/// What calls it from a shell. `$S` is the address of the server, words in braces are to be replaced.
fn command(path: &str, method: &str, operation: &Value) -> String {
    let mut command = String::from("curl ");
    if method != "get" {
        let _ = write!(command, "-X {} ", method.to_uppercase());
    }
    let required = operation["parameters"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|parameter| parameter["in"] == "query" && parameter["required"] == true);
    let names = required.filter_map(|parameter| parameter["name"].as_str());
    let query: Vec<String> = names.map(|name| format!("{name}={{{name}}}")).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    let _ = write!(command, "\"$S{path}{mark}{}\"", query.join("&"));
    if operation["x-roles"].as_array().is_some_and(|roles| !roles.is_empty()) {
        command += " -H \"Authorization: Bearer $SERIATIM_TOKEN\"";
    }
    if operation["requestBody"]["content"]["application/json"].is_object() {
        command += " -H 'Content-Type: application/json' -d '{…}'";
    }
    command
}

/// A schema, with links to those that it names.
fn shown(schema: &Value) -> Shown {
    let written = serde_json::to_string_pretty(schema).unwrap_or_default();
    let mut pieces = written.split(REFERENCE);
    let mut before = pieces.next().unwrap_or_default();
    let mut parts = Vec::new();
    for piece in pieces {
        let (name, rest) = piece.split_at(piece.find('"').unwrap_or(piece.len()));
        parts.push((before.to_owned(), name.to_owned()));
        before = rest;
    }
    parts.push((before.to_owned(), String::new()));
    parts
}

/// What stands between backticks is code.
fn prose(value: &Value) -> Prose {
    let parts = text(value).split('`').enumerate();
    parts.map(|(at, part)| (part.to_owned(), at % 2 == 1)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_shows_every_operation_and_carries_no_script() {
        let document = super::super::api_document("/x");
        let page = of(&document);
        for methods in document["paths"].as_object().into_iter().flatten().map(|(_, of)| of) {
            for operation in methods.as_object().into_iter().flatten().map(|(_, of)| of) {
                let id = operation["operationId"].as_str().unwrap_or("none");
                assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
            }
        }
        for line in [
            "curl &#34;$S/api/v1/queues/{queue}/lane?key={key}&#34; -H",
            "curl -X POST &#34;$S/api/v1/queues/{queue}/jobs&#34; -H &#34;Authorization: Bearer \
             $SERIATIM_TOKEN&#34; -H &#39;Content-Type: application/json&#39; -d",
            "curl &#34;$S/health&#34;</pre>",
            "&#34;$ref&#34;: &#34;<a href=\"#Job\">Job</a>&#34;",
        ] {
            assert!(page.contains(line), "{line}");
        }
        assert!(page.contains("<code>next</code> of the previous page"), "code is marked as such");
        assert!(!page.contains("<script") && !page.contains("style=") && !page.contains("http://"));
        let hostile = json!({ "components": { "schemas": { "<b>": "<a href=\"x\">&'" } } });
        let page = of(&hostile);
        assert!(!page.contains("<b>") && !page.contains("<a href=\"x"), "{page}");
    }
}
