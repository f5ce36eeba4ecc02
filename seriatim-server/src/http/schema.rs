//! The schemas of what is received and sent, derived from the types.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::{RecursiveTransform, ReplaceBoolSchemas, RestrictFormats, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

pub(super) type Make = fn(&mut SchemaGenerator) -> Schema;

pub(super) fn make<T: JsonSchema>() -> Make {
    |generator| generator.subschema_for::<T>()
}

/// The schemas of one API document. What is read and what is written may differ in which fields are required.
pub(super) struct Schemas {
    received: SchemaGenerator,
    sent: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let (received, sent) = (settings.clone().for_deserialize(), settings.for_serialize());
        Self { received: received.into_generator(), sent: sent.into_generator() }
    }

    pub(super) fn received(&mut self, make: Make) -> Value {
        finished(make(&mut self.received))
    }

    pub(super) fn sent(&mut self, make: Make) -> Value {
        sent(make(&mut self.sent))
    }

    /// The schemas that others refer to by name: received, and sent.
    pub(super) fn named(mut self) -> [Map<String, Value>; 2] {
        let all = |of: &mut SchemaGenerator, finish: fn(Schema) -> Value| {
            let finish = |schema| Schema::try_from(schema).map_or(Value::Null, finish);
            let named = of.take_definitions(false).into_iter();
            named.map(|(name, schema)| (name, finish(schema))).collect()
        };
        [all(&mut self.received, finished), all(&mut self.sent, sent)]
    }
}

fn sent(mut schema: Schema) -> Value {
    RecursiveTransform(without_null_fields).transform(&mut schema);
    finished(schema)
}

/// In the words that clients need, without those that only Rust knows.
fn finished(mut schema: Schema) -> Value {
    let mut formats = RestrictFormats::default();
    formats.infer_from_meta_schema = false;
    formats.allowed_formats = ["date-time", "uuid"].map(Into::into).into();
    formats.transform(&mut schema);
    let mut bools = ReplaceBoolSchemas::default();
    bools.skip_additional_properties = true;
    bools.transform(&mut schema);
    RecursiveTransform(as_one_enum).transform(&mut schema);
    RecursiveTransform(without_null_default).transform(&mut schema);
    schema.to_value()
}

/// A field that is left out is not null, unless null is its default.
fn without_null_fields(schema: &mut Schema) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required =
        |name: &str| required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if !is_required(name) && property.get("default").is_none() {
            without_null(property);
        }
    }
}

fn without_null_default(schema: &mut Schema) {
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
}

/// Words that are described one by one, as one list.
fn as_one_enum(schema: &mut Schema) {
    let words = |one: &Value| {
        one.get("const").map(|word| vec![word.clone()]).or_else(|| one["enum"].as_array().cloned())
    };
    let choices = schema.get("oneOf").and_then(Value::as_array);
    let words: Option<Vec<_>> = choices.and_then(|choices| choices.iter().map(words).collect());
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), words.concat().into());
    }
}

/// The schema of a parameter: one that is left out is not null.
pub(super) fn without_null(schema: &mut Value) {
    for name in ["type", "enum", "anyOf"] {
        let Some(choices) = schema.get_mut(name).and_then(Value::as_array_mut) else { continue };
        choices.retain(|one| !one.is_null() && *one != "null" && one["type"] != "null");
        if name != "enum" && choices.len() == 1 {
            let only = choices.remove(0);
            if name == "type" {
                schema["type"] = only;
            } else if let (Some(schema), Value::Object(only)) = (schema.as_object_mut(), only) {
                schema.remove("anyOf");
                schema.extend(only);
            }
        }
    }
}
