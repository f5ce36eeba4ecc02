//! The OpenAPI document as an HTML page without scripts.

use std::fmt::Write;

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

/// The page of a document.
pub(super) fn of(document: &Value) -> String {
    let (title, version) = (text(&document["info"]["title"]), text(&document["info"]["version"]));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title} {version}</title>\
         <link rel=\"stylesheet\" href=\"docs.css\"></head><body>\
         <h1>{title} {version}</h1><p>{}</p><p>For programs, and for viewers in which calls can be tried (Bruno, Insomnia, Swagger UI): \
         <a href=\"openapi.json\">openapi.json</a>. In the commands, <code>$S</code> is the address of this server.</p>",
        text(&document["info"]["description"]),
    );
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            write_operation(&mut page, path, method, operation);
        }
    }
    page += "<h2>Schemas</h2>";
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let name = escaped(name);
        let _ = write!(page, "<section id=\"{name}\"><h3>{name}</h3>{}</section>", shown(schema));
    }
    page + "</body></html>\n"
}

fn write_operation(page: &mut String, path: &str, method: &str, operation: &Value) {
    let roles: Vec<String> =
        operation["x-roles"].as_array().into_iter().flatten().map(text).collect();
    let roles = if roles.is_empty() { "everyone".to_owned() } else { roles.join(", ") };
    let _ = write!(
        page,
        "<section id=\"{}\"><h3><b>{}</b> {}</h3><p>{} <small>For {roles}.</small></p>",
        text(&operation["operationId"]),
        escaped(&method.to_uppercase()),
        escaped(path),
        prose(&operation["summary"]),
    );
    let _ = write!(page, "<pre>{}</pre>", escaped(&command(path, method, operation)));
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let of_query = |parameter: &&Value| parameter["in"] == "query";
    let rows: String = parameters.filter(of_query).map(row).collect();
    if !rows.is_empty() {
        let _ = write!(page, "<ul>{rows}</ul>");
    }
    for (what, place) in [
        ("Body", &operation["requestBody"]["content"]),
        ("Answer", &operation["responses"]["200"]["content"]),
    ] {
        for (media, content) in place.as_object().into_iter().flatten() {
            let _ = write!(
                page,
                "<details><summary>{what}, <code>{}</code></summary>{}</details>",
                escaped(media),
                shown(&content["schema"])
            );
        }
    }
    *page += "</section>";
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

fn row(parameter: &Value) -> String {
    let must = if parameter["required"] == true { ", required" } else { "" };
    let (name, says) = (text(&parameter["name"]), prose(&parameter["description"]));
    format!("<li><code>{name}</code>{must}: {says}</li>")
}

/// A schema, with links to those that it names.
fn shown(schema: &Value) -> String {
    let written = serde_json::to_string_pretty(schema).unwrap_or_default();
    let written = escaped(&written);
    let mut pieces = written.split(REFERENCE);
    let mut html = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("&quot;").unwrap_or((piece, ""));
        let _ = write!(html, "<a href=\"#{name}\">{name}</a>&quot;{rest}");
    }
    format!("<pre>{html}</pre>")
}

/// What stands between backticks is code.
fn prose(value: &Value) -> String {
    let text = text(value);
    let parts = text.split('`').enumerate();
    parts
        .map(
            |(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() },
        )
        .collect()
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

pub(super) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
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
            "curl &quot;$S/api/v1/queues/{queue}/lane?key={key}&quot; -H",
            "curl -X POST &quot;$S/api/v1/queues/{queue}/jobs&quot; -H &quot;Authorization: Bearer \
             $SERIATIM_TOKEN&quot; -H &#39;Content-Type: application/json&#39; -d",
            "curl &quot;$S/health&quot;</pre>",
        ] {
            assert!(page.contains(line), "{line}");
        }
        assert!(page.contains("<code>next</code> of the previous page"), "code is marked as such");
        assert!(!page.contains("<script") && !page.contains("style=") && !page.contains("http://"));
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert!(
            shown(&serde_json::json!({ "$ref": "#/components/schemas/Job" }))
                .contains("<a href=\"#Job\">Job</a>")
        );
    }
}
