//! Compares answers with the API document: every sent field is documented, every documented field is sent.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Value;

use super::Api;

pub(super) struct Documented {
    document: Value,
    sent: RefCell<BTreeSet<String>>,
}

impl Documented {
    pub(super) fn of(api: &Api) -> Self {
        Self { document: api.get("/openapi.json").done(), sent: RefCell::default() }
    }

    fn schema(&self, method: &str, path: &str) -> Option<&Value> {
        let operation = &self.document["paths"][path][method.to_lowercase()];
        operation["responses"]["200"]["content"]["application/json"].get("schema")
    }

    /// Panics if the answer is not as documented.
    #[track_caller]
    pub(super) fn check(&self, method: &str, path: &str, answer: &Value) {
        let Some(schema) = self.schema(method, path) else { return };
        let mut sent = BTreeSet::new();
        if let Err(why) = self.fits(schema, answer, &format!("{method} {path}"), &mut sent) {
            panic!("{why}: {answer}");
        }
        self.sent.borrow_mut().append(&mut sent);
    }

    fn fits(
        &self,
        schema: &Value,
        value: &Value,
        place: &str,
        sent: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        if let Some((name, schema)) = self.named(schema) {
            return self.fits(schema, value, name, sent);
        }
        for choice in ["anyOf", "oneOf"] {
            let Some(schemas) = schema[choice].as_array() else { continue };
            let fits = |schema| {
                let mut sent = sent.clone();
                self.fits(schema, value, place, &mut sent).map(|()| sent)
            };
            let found = schemas.iter().find_map(|schema| fits(schema).ok());
            *sent = found.ok_or_else(|| format!("{place} is none of {schemas:?}"))?;
        }
        if !schema["enum"].as_array().is_none_or(|words| words.contains(value)) {
            return Err(format!("{place} has none of the words {}", schema["enum"]));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let is_of = |name: &&str| match *name {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            _ => value.is_object(),
        };
        if !types.is_empty() && !types.iter().any(is_of) {
            return Err(format!("{place} is no {types:?}"));
        }
        for item in value.as_array().into_iter().flatten() {
            self.fits(&schema["items"], item, &format!("{place}[]"), sent)?;
        }
        if types.contains(&"object") && value.is_object() {
            return self.has_fields(schema, value, place, sent);
        }
        Ok(())
    }

    fn has_fields(
        &self,
        schema: &Value,
        value: &Value,
        place: &str,
        sent: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            value.get(name).ok_or_else(|| format!("{place}.{name} is missing"))?;
        }
        for (name, value) in value.as_object().unwrap() {
            let documented = [&schema["properties"][name], &schema["additionalProperties"]];
            let field = documented.into_iter().find(|schema| !schema.is_null());
            let field = field.ok_or_else(|| format!("{place}.{name} is not documented"))?;
            sent.insert(format!("{place}.{name}"));
            self.fits(field, value, &format!("{place}.{name}"), sent)?;
        }
        Ok(())
    }

    fn named(&self, schema: &Value) -> Option<(&str, &Value)> {
        let name = schema["$ref"].as_str()?.rsplit('/').next()?;
        let (name, schema) =
            self.document["components"]["schemas"].as_object()?.get_key_value(name)?;
        Some((name, schema))
    }

    /// Documented fields that no answer had.
    pub(super) fn never_sent(&self) -> Vec<String> {
        let mut documented = BTreeSet::new();
        for (path, methods) in self.document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                if let Some(schema) = self.schema(method, path) {
                    self.fields(
                        schema,
                        &format!("{} {path}", method.to_uppercase()),
                        &mut documented,
                    );
                }
            }
        }
        documented.difference(&self.sent.borrow()).cloned().collect()
    }

    fn fields(&self, schema: &Value, place: &str, found: &mut BTreeSet<String>) {
        if let Some((name, schema)) = self.named(schema) {
            let known = found.len();
            found.insert(format!("schema {name}"));
            if found.len() > known {
                self.fields(schema, name, found);
            }
            found.remove(&format!("schema {name}"));
            return;
        }
        for choice in ["anyOf", "oneOf"] {
            let schemas = schema[choice].as_array().into_iter().flatten();
            schemas.for_each(|schema| self.fields(schema, place, found));
        }
        if schema["items"].is_object() {
            self.fields(&schema["items"], &format!("{place}[]"), found);
        }
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}.{name}");
            found.insert(place.clone());
            self.fields(schema, &place, found);
        }
    }
}
