//! JSON Schema, as far as the API needs it.

use serde_json::{Value, json};

/// A field that is there and not null.
fn there(name: &str) -> Value {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

/// A JSON Schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Schema(pub(super) Value);

impl Schema {
    pub(super) fn any() -> Self {
        Self(json!({}))
    }

    pub(super) fn text() -> Self {
        Self(json!({ "type": "string" }))
    }

    pub(super) fn time() -> Self {
        Self(json!({ "description": "RFC 3339, or Unix seconds", "anyOf": [
            { "type": "string", "format": "date-time" },
            { "type": "number", "minimum": 1e9, "maximum": 9e9 },
        ] }))
    }

    pub(super) fn length() -> Self {
        let text = Self::length_text().0;
        Self(json!({ "description": "250ms, 10s, 5m, 1h, 3d, or seconds", "anyOf": [
            text, { "type": "number", "minimum": 0, "maximum": 3e8 },
        ] }))
    }

    /// A length with its unit.
    pub(super) fn length_text() -> Self {
        Self(json!({ "type": "string", "pattern": "^[0-9]{1,6}(ms|s|m|h|d)$" }))
    }

    pub(super) fn integer() -> Self {
        Self(json!({ "type": "integer" }))
    }

    /// A whole number from `least` to `most`.
    pub(super) fn within(least: u64, most: u64) -> Self {
        Self(json!({ "type": "integer", "minimum": least, "maximum": most }))
    }

    /// The id of a job.
    pub(super) fn job_id() -> Self {
        Self(json!({ "type": "string", "format": "uuid" }))
    }

    /// The name of a lane, as a claim or a list tells it.
    pub(super) fn lane() -> Self {
        Self(json!({ "type": "string", "pattern": "^[0-9]{1,5}-[0-9]{1,5}-[0-9]{1,15}$" }))
    }

    /// The name of a queue.
    pub(super) fn queue() -> Self {
        let pattern = format!("^[A-Za-z0-9_.:-]{{1,{}}}$", seriatim::limits::QUEUE_NAME_BYTES_MAX);
        Self(json!({ "type": "string", "pattern": pattern }))
    }

    /// A text that is not empty, of at most so many characters.
    pub(super) fn name(length_max: usize) -> Self {
        Self(json!({ "type": "string", "minLength": 1, "maxLength": length_max }))
    }

    pub(super) fn number() -> Self {
        Self(json!({ "type": "number" }))
    }

    pub(super) fn truth() -> Self {
        Self(json!({ "type": "boolean" }))
    }

    /// One of these words.
    pub(super) fn one_of(words: &[&str]) -> Self {
        Self(json!({ "type": "string", "enum": words }))
    }

    /// Any of these schemas.
    pub(super) fn either(schemas: &[Self]) -> Self {
        Self(json!({ "anyOf": schemas.iter().map(|schema| &schema.0).collect::<Vec<_>>() }))
    }

    pub(super) fn list(of: Self) -> Self {
        Self(json!({ "type": "array", "items": of.0 }))
    }

    /// An object whose names are the user's.
    pub(super) fn map(of: Self) -> Self {
        Self(json!({ "type": "object", "additionalProperties": of.0 }))
    }

    pub(super) fn object(fields: &[(&str, Self)]) -> Self {
        let fields = fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.0.clone()));
        Self(json!({ "type": "object", "properties": fields.collect::<serde_json::Map<_, _>>() }))
    }

    /// Says which fields an object must have.
    pub(super) fn requiring(mut self, names: &[&str]) -> Self {
        self.0["required"] = names.into();
        self
    }

    /// Says which fields an object has at most one of; null is none.
    pub(super) fn one_at_most(self, names: &[&str]) -> Self {
        self.never_two(names, there)
    }

    /// Says which fields are spellings of one.
    pub(super) fn spelled_once(self, names: &[&str]) -> Self {
        self.never_two(names, |name| json!({ "required": [name] }))
    }

    fn never_two(mut self, names: &[&str], have: fn(&str) -> Value) -> Self {
        let mut rules = self.0["allOf"].as_array().cloned().unwrap_or_default();
        for (i, first) in names.iter().enumerate() {
            for second in &names[..i] {
                rules.push(json!({ "not": { "allOf": [have(first), have(second)] } }));
            }
        }
        self.0["allOf"] = rules.into();
        self
    }

    /// Says which fields an object has exactly one of.
    pub(super) fn exactly_one(self, names: &[&str]) -> Self {
        let mut schema = self.one_at_most(names);
        schema.0["anyOf"] = names.iter().map(|name| there(name)).collect();
        schema
    }

    /// Says that an object has no other fields, and that those it need not have may be null.
    pub(super) fn closed(mut self) -> Self {
        self.0["additionalProperties"] = false.into();
        self.with_nulls()
    }

    /// Fields that an object need not have may be null.
    pub(super) fn with_nulls(mut self) -> Self {
        let required = self.0["required"].clone();
        let is_required = |name: &str| {
            required.as_array().is_some_and(|names| names.iter().any(|needed| needed == name))
        };
        for (name, schema) in self.0["properties"].as_object_mut().into_iter().flatten() {
            if !is_required(name) {
                *schema = Self(schema.take()).or_null().0;
            }
        }
        self
    }

    /// May also be null.
    pub(super) fn or_null(mut self) -> Self {
        match self.0.get("type").cloned() {
            Some(Value::String(name)) if self.0.get("enum").is_none() => {
                self.0["type"] = json!([name, "null"]);
                self
            }
            None if self.0.get("anyOf").is_none() && self.0.get("$ref").is_none() => self,
            Some(Value::Array(_)) => self,
            _ => Self(json!({ "anyOf": [self.0, { "type": "null" }] })),
        }
    }

    /// One that is described once, under a name.
    pub(super) fn named(name: &str) -> Self {
        Self(json!({ "$ref": format!("#/components/schemas/{name}") }))
    }

    /// The names of an object's fields.
    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<String> {
        let fields = self.0["properties"].as_object();
        fields.into_iter().flatten().map(|(name, _)| name.clone()).collect()
    }
}
