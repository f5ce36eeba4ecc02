//! The API document.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::super::router;
use super::*;

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
    let document = router::api_document("");
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    let routes = router::routes();
    let ids: BTreeSet<String> = routes.iter().map(operation_id).collect();
    assert_eq!(ids.len(), routes.len());
    assert!(routes.iter().all(|route| !route.says.is_empty()));
}

/// A type that is read and written has one schema under its name.
#[test]
fn no_name_means_two_schemas() {
    let mut schemas = Schemas::new();
    for route in router::routes() {
        route.signature.body.map(|make| schemas.received(make));
        route.signature.answer.map(|make| schemas.sent(make));
    }
    let [received, sent] = schemas.named();
    for (name, schema) in &received {
        assert_eq!(sent.get(name).unwrap_or(schema), schema, "{name}");
    }
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
    for route in router::routes() {
        let is_there = |line: &str| line.contains("curl") && shows(line, route.path);
        assert!(page.lines().any(is_there), "docs/http.md lacks {}", route.path);
    }
}

/// The contract in short: a change of it shows in `openapi.txt`, and is reviewed there.
#[test]
fn the_contract_is_as_it_was_reviewed() {
    let document = router::api_document("");
    let mut text = String::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let _ = write!(text, "{} {path}", method.to_uppercase());
            let roles = operation["x-roles"].as_array().into_iter().flatten();
            roles.for_each(|role| text.push_str(&format!(" {}", role.as_str().unwrap())));
            text.push('\n');
            for one in operation["parameters"].as_array().unwrap() {
                let mark = if one["required"] == true { "" } else { "?" };
                let (name, schema) = (one["name"].as_str().unwrap(), short(&one["schema"]));
                let _ = writeln!(text, "  {name}{mark}: {schema}");
            }
            let contents = [
                ("takes", &operation["requestBody"]["content"]),
                ("answers", &operation["responses"]["200"]["content"]),
            ];
            for (what, content) in contents {
                for (media, content) in content.as_object().into_iter().flatten() {
                    let _ = writeln!(text, "  {what} {media} {}", short(&content["schema"]));
                }
            }
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let _ = writeln!(text, "{name}\n{}", fields(schema, "\n", "  "));
    }
    if std::env::var_os("SERIATIM_WRITE_CONTRACT").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/http/openapi.txt"), &text)
            .unwrap();
    }
    assert_eq!(text, include_str!("openapi.txt"), "set SERIATIM_WRITE_CONTRACT=1 to write it anew");
}

/// A schema on one line.
fn short(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap().to_owned();
    }
    let list = |values: &Value| {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        values.as_array().unwrap().iter().map(word).collect::<Vec<_>>().join("|")
    };
    for choice in ["anyOf", "oneOf"] {
        let is_rule = schema["properties"].is_object();
        if let Some(schemas) = schema[choice].as_array().filter(|_| !is_rule) {
            return schemas.iter().map(short).collect::<Vec<_>>().join(" | ");
        }
    }
    if schema["enum"].is_array() {
        return list(&schema["enum"]);
    }
    let mut text = match &schema["type"] {
        Value::Null => "any".to_owned(),
        one if schema["items"].is_object() => {
            let null = if one.is_array() { "|null" } else { "" };
            format!("[{}]{null}", short(&schema["items"]))
        }
        _ if schema["properties"].is_object() => format!("{{ {} }}", fields(schema, ", ", "")),
        _ if schema["additionalProperties"].is_object() => {
            format!("{{ *: {} }}", short(&schema["additionalProperties"]))
        }
        Value::String(name) => name.clone(),
        several => list(several),
    };
    let limits = ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"];
    for limit in
        limits.iter().chain(&["format", "pattern"]).filter(|name| !schema[**name].is_null())
    {
        let _ = write!(text, " {limit}={}", schema[limit].to_string().trim_matches('"'));
    }
    text
}

fn fields(schema: &Value, between: &str, before: &str) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let field = |(name, schema): (&String, &Value)| {
        let mark = if required.contains(&name.as_str().into()) { "" } else { "?" };
        format!("{before}{name}{mark}: {}", short(schema))
    };
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields.map(field).collect::<Vec<_>>().join(between)
}
