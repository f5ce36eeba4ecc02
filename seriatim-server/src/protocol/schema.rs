//! Parts of schemas that cannot be derived: types of the library, and rules between fields.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Value, json};
use seriatim::store::{
    Cancelled, Command, IdempotencyScope, JobState, LaneState, PeriodicState, PushStatus,
    Throttled, TroubleKind,
};
use seriatim::{
    Backoff, DueRule, Exhaustion, Groups, JobId, Limit, Merge, Missed, Mode, Rate, Window,
    store::{LaneId, NodeId, Token},
};

/// How a duration is written.
pub(crate) const LENGTH_PATTERN: &str = "^[0-9]{1,6}(ms|s|m|h|d)$";

/// The name of a queue.
pub(crate) fn queue_pattern() -> String {
    format!("^[A-Za-z0-9_.:-]{{1,{}}}$", seriatim::limits::QUEUE_NAME_BYTES_MAX)
}

/// Stands for a type of the library in `#[schemars(with = …)]`.
pub(crate) struct Foreign<T>(PhantomData<T>);

/// A type of the library that documents contain.
pub(crate) trait Described {
    /// Named schemas are components of the API document; others are written where they are used.
    const NAME: Option<&'static str> = None;
    fn schema() -> Schema;
}

impl<T: Described> JsonSchema for Foreign<T> {
    fn inline_schema() -> bool {
        T::NAME.is_none()
    }
    fn schema_name() -> Cow<'static, str> {
        T::NAME.unwrap_or_else(std::any::type_name::<T>).into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

macro_rules! described {
    ($($type:ty => $schema:expr),* $(,)?) => {
        $(impl Described for $type {
            fn schema() -> Schema {
                $schema
            }
        })*
    };
}

described! {
    JobId => json_schema!({ "type": "string", "format": "uuid" }),
    LaneId => json_schema!({ "type": "string", "pattern": "^[0-9]{1,5}-[0-9]{1,5}-[0-9]{1,15}$" }),
    NodeId => json_schema!({ "type": "string" }),
    Duration => json_schema!({ "type": "string", "pattern": LENGTH_PATTERN }),
    Token => json_schema!({ "type": "integer" }),
    Rate => json_schema!({ "type": "string", "pattern": "^[1-9][0-9]{0,6}/[smh]$" }),
    Mode => one_of(Mode::ALL),
    Merge => one_of([Merge::Min, Merge::Max, Merge::None]),
    Missed => one_of([Missed::Skip, Missed::Latest, Missed::All]),
    DueRule => one_of([DueRule::First, DueRule::Earliest]),
    Exhaustion => one_of([Exhaustion::Bury, Exhaustion::Hold, Exhaustion::Drop]),
    IdempotencyScope => one_of([IdempotencyScope::Key, IdempotencyScope::Store]),
    PushStatus => one_of([
        PushStatus::Queued, PushStatus::Merged, PushStatus::Duplicate, PushStatus::Throttled,
    ]),
    Throttled => one_of([Throttled::Merge, Throttled::Refuse]),
    JobState => one_of([
        JobState::Queued, JobState::Running, JobState::Succeeded, JobState::Dead, JobState::Canceled,
    ]),
    LaneState => one_of([
        LaneState::Waiting, LaneState::Claimed, LaneState::Held, LaneState::Paused,
    ]),
    Command => one_of([Command::Quiet, Command::Stop, Command::Resume]),
    PeriodicState => one_of([PeriodicState::Idle, PeriodicState::Work, PeriodicState::Stop]),
    Cancelled => one_of([
        Cancelled::Now, Cancelled::Flagged, Cancelled::Ended, Cancelled::Unknown,
    ]),
    // Newer nodes may report other kinds.
    TroubleKind => json_schema!({ "type": "string" }),
}

impl Described for Backoff {
    const NAME: Option<&'static str> = Some("Backoff");
    fn schema() -> Schema {
        let length = Duration::schema();
        json_schema!({
            "type": "object",
            "properties": {
                "kind": { "type": "string", "enum": ["polynomial", "constant", "linear", "exponential"] },
                "base": length,
                "cap": length,
                "jitter": { "type": "integer", "minimum": 0, "maximum": 100 },
            },
            "required": ["kind"],
            "additionalProperties": false,
        })
    }
}

impl Described for Window {
    const NAME: Option<&'static str> = Some("Window");
    fn schema() -> Schema {
        let length = Duration::schema();
        json_schema!({
            "type": "object",
            "properties": {
                "quiet": length,
                "max_wait": length,
                "max_jobs": { "type": "integer", "minimum": 2 },
                "max_bytes": { "type": "integer", "minimum": 1 },
            },
            "required": ["quiet", "max_wait"],
        })
    }
}

impl Described for Limit {
    const NAME: Option<&'static str> = Some("Limit");
    fn schema() -> Schema {
        json_schema!({ "type": "object", "properties": limits() })
    }
}

impl Described for Groups {
    const NAME: Option<&'static str> = Some("Groups");
    fn schema() -> Schema {
        let mut share = limits();
        share["weight"] = json!({ "type": "integer", "minimum": 1 });
        let group = json!({ "type": "object", "properties": share });
        let mut groups = share;
        groups["named"] = json!({ "type": "object", "additionalProperties": group });
        json_schema!({ "type": "object", "properties": groups })
    }
}

fn limits() -> Value {
    let turns = json!({ "type": "integer", "minimum": 1 });
    json!({ "running": turns, "rate": Rate::schema(), "burst": turns })
}

/// One of these words, as they are sent.
pub(crate) fn one_of(words: impl IntoIterator<Item = impl Serialize>) -> Schema {
    let words = words.into_iter().map(|word| serde_json::to_value(word).unwrap_or_default());
    json_schema!({ "type": "string", "enum": words.collect::<Vec<_>>() })
}

/// The field is present and not null.
fn present(name: &str) -> Value {
    json!({ "required": [name], "properties": { name: { "not": { "type": "null" } } } })
}

/// An object has at most one of these fields; null is none.
pub(crate) fn at_most_one(schema: &mut Schema, names: &[&str]) {
    never_two(schema, names, present);
}

/// An object has exactly one of these fields; null is none.
pub(crate) fn exactly_one(schema: &mut Schema, names: &[&str]) {
    schema.insert("oneOf".to_owned(), names.iter().map(|name| present(name)).collect());
}

/// A field may have other names; an object uses one of them.
pub(crate) fn other_names(schema: &mut Schema, name: &str, others: &[&str]) {
    for other in others {
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            let same = json!({ "description": format!("the same as {name}") });
            properties.insert((*other).to_owned(), same);
        }
    }
    let names: Vec<&str> = others.iter().copied().chain([name]).collect();
    never_two(schema, &names, |name| json!({ "required": [name] }));
}

fn never_two(schema: &mut Schema, names: &[&str], have: fn(&str) -> Value) {
    let mut rules = schema.get("allOf").and_then(Value::as_array).cloned().unwrap_or_default();
    for (i, first) in names.iter().enumerate() {
        for second in &names[..i] {
            rules.push(json!({ "not": { "allOf": [have(first), have(second)] } }));
        }
    }
    schema.insert("allOf".to_owned(), rules.into());
}
