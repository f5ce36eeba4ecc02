//! What programs read: one JSON document for each thing, with the names of the HTTP API.

use std::borrow::Cow;
use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use seriatim::store::{JobView, LaneView, NodeView, Page, PushStatus, QueueView, Trouble};
use seriatim::{Timestamp, store::JobOptions};

use crate::base::time::absolute;

/// A time, or null.
fn time(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| absolute(time).into())
}

/// A value that cannot fail to be written: enums and plain structs.
pub(crate) fn plain(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// A document some parts of which are texts that others wrote. They are passed on as they are: as a tree
/// of values a text takes up to a hundred times its length.
pub(crate) struct Shown<'a> {
    plain: Value,
    raw: Vec<(&'static str, Raw<'a>)>,
}

/// Such a part.
enum Raw<'a> {
    Json(&'a RawValue),
    Text(Cow<'a, str>),
    Null,
    List(Vec<Shown<'a>>),
}

impl<'a> Raw<'a> {
    /// What is not JSON is a text.
    fn of(text: &'a [u8]) -> Self {
        match serde_json::from_slice(text) {
            Ok(raw) => Self::Json(raw),
            Err(_) => Self::Text(String::from_utf8_lossy(text)),
        }
    }

    /// What a worker told.
    fn told(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, |text| Self::of(text.as_bytes()))
    }
}

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(raw) => raw.serialize(to),
            Self::Text(text) => text.serialize(to),
            Self::Null => to.serialize_unit(),
            Self::List(list) => list.serialize(to),
        }
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (name, value) in self.plain.as_object().into_iter().flatten() {
            map.serialize_entry(name, value)?;
        }
        for (name, raw) in &self.raw {
            map.serialize_entry(name, raw)?;
        }
        map.end()
    }
}

impl Shown<'_> {
    /// An object of which all is known.
    pub(crate) fn plain(object: Value) -> Self {
        Self { plain: object, raw: Vec::new() }
    }

    /// With a list of others in it.
    pub(crate) fn with_list(mut self, name: &'static str, list: Vec<Self>) -> Self {
        self.raw.push((name, Raw::List(list)));
        self
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.plain[name] = value.into();
        self
    }

    /// As a tree of values.
    pub(crate) fn to_value(&self) -> Value {
        plain(self)
    }

    /// With these fields only.
    pub(crate) fn only(mut self, names: &[&str]) -> Self {
        if let Value::Object(fields) = &mut self.plain {
            fields.retain(|name, _| names.contains(&name.as_str()));
        }
        self.raw.retain(|(name, _)| names.contains(name));
        self
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The documents of a page under a name, and where the next page begins.
pub(crate) fn page<'a, T>(
    name: &'static str,
    page: &'a Page<T>,
    document: impl Fn(&'a T) -> Shown<'a>,
) -> Shown<'a> {
    let rows = page.rows.iter().map(document).collect();
    Shown::plain(json!({ "next": page.next })).with_list(name, rows)
}

pub(crate) fn job(job: &JobView) -> Shown<'_> {
    let mut document = json!({
        "job_id": job.id, "queue": &*job.queue, "key": job.key.as_deref(), "task": job.task.as_deref(),
        "status": job.state, "attempt": job.attempt,
        "started_at": time(job.started_at), "finished_at": time(job.finished_at),
        "heartbeat_at": time(job.heartbeat_at), "error": job.error.as_deref(),
        "score": job.score, "priority": job.priority,
        "run_at": absolute(job.run_at), "retry_count": job.retry_count, "crashes": job.crashes,
        "cancel_requested": job.cancel_requested, "created_at": absolute(job.created_at),
    });
    if let (Some(options), Value::Object(fields)) = (&job.options, &mut document)
        && let Value::Object(more) = job_options(options)
    {
        fields.extend(more);
    }
    let progress = Raw::told(job.progress.as_deref());
    let payload = Raw::of(job.payload.as_bytes());
    Shown { plain: document, raw: vec![("progress", progress), ("payload", payload)] }
}

/// What the job overrides, under the names with which it is pushed.
fn job_options(options: &JobOptions) -> Value {
    let mut document = plain(options);
    if let Some(expires_at) = options.expires_at {
        document["expires_at"] = absolute(expires_at).into();
    }
    document
}

pub(crate) fn lane(lane: &LaneView) -> Shown<'_> {
    let plain = json!({
        "lane": lane.lane, "key": lane.key.as_deref(), "state": lane.state, "due": time(lane.due),
        "priority": lane.priority, "jobs": lane.jobs, "retry_count": lane.retry_count,
        "crashes": lane.crashes, "error": lane.error.as_deref(), "token": lane.token,
        "node": lane.node, "claimed_at": time(lane.claimed_at),
    });
    Shown { plain, raw: vec![("progress", Raw::told(lane.progress.as_deref()))] }
}

/// A queue, added to its figures.
pub(crate) fn queue(view: &QueueView, mut document: Value) -> Value {
    document["queue"] = view.queue.name.as_str().into();
    document["mode"] = plain(view.queue.mode);
    document["declared"] = view.declared.into();
    document["paused"] = view.paused.into();
    document
}

/// What a node has claimed, as far as it runs and as far as it waits for a slot.
pub(crate) fn load(node: &NodeView, claimed: usize) -> (u64, u64) {
    let told = node.info.prefetched.values().copied().map(u64::from).sum::<u64>();
    let prefetched = told.min(claimed as u64);
    (claimed as u64 - prefetched, prefetched)
}

pub(crate) fn node(node: &NodeView, state: &str, claimed: usize) -> Value {
    let info = &node.info;
    let (running, prefetched) = load(node, claimed);
    json!({
        "node": info.id, "name": &*info.name, "host": info.host, "pid": info.pid,
        "version": info.version, "state": state, "queues": info.queues,
        "concurrency": info.concurrency, "busy": info.busy,
        "claimed": claimed, "running": running, "prefetched": prefetched,
        "started_at": absolute(info.started_at), "heartbeat_at": absolute(node.heartbeat_at),
        "lease": seriatim::duration::format(info.lease), "command": node.command,
        "troubles": info.troubles.iter().map(trouble).collect::<Vec<Value>>(),
    })
}

pub(crate) fn trouble(trouble: &Trouble) -> Value {
    json!({
        "kind": trouble.kind, "queue": trouble.queue, "about": trouble.about,
        "text": trouble.text, "times": trouble.times, "since": absolute(trouble.since),
        "last_at": absolute(trouble.last_at),
    })
}

/// `queued`, `merged`, `duplicate`.
pub(crate) fn push_status(status: PushStatus) -> &'static str {
    match status {
        PushStatus::Queued => "queued",
        PushStatus::Merged => "merged",
        PushStatus::Duplicate => "duplicate",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_others_wrote_is_passed_on_as_it_is() {
        let written = |text: &[u8]| serde_json::to_string(&Raw::of(text)).unwrap();
        assert_eq!(
            written(b"{\"b\": 1.0e2, \"a\":12345678901234567890123}"),
            "{\"b\": 1.0e2, \"a\":12345678901234567890123}"
        );
        assert_eq!(written(b"not \xff json"), "\"not \u{fffd} json\"");
        let plain = json!({ "a": 1, "b": 2 });
        let shown = Shown { plain, raw: vec![("c", Raw::Null), ("d", Raw::of(b"[1]"))] };
        assert_eq!(shown.only(&["a", "d"]).with("e", 3).to_string(), r#"{"a":1,"e":3,"d":[1]}"#);
    }
}
