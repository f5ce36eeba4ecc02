//! What programs read: one JSON document for each thing, with the names of the HTTP API.

use serde_json::{Value, json};
use seriatim::store::{JobView, LaneView, NodeView, Page, PushStatus, QueueView, Trouble};
use seriatim::{JobOptions, Timestamp};

use super::time::absolute;
use crate::figures::Figures;

/// A time, or null.
fn time(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| absolute(time).into())
}

/// A document that a worker told; what is not JSON is a text.
fn told(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| {
        serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
    })
}

/// A value that cannot fail to be written: enums and plain structs.
fn plain(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// The documents of a page under a name, and where the next page begins.
pub(crate) fn page<T>(name: &str, page: &Page<T>, document: impl Fn(&T) -> Value) -> Value {
    let rows: Vec<Value> = page.rows.iter().map(document).collect();
    json!({ name: rows, "next": page.next })
}

pub(crate) fn job(job: &JobView) -> Value {
    let mut document = json!({
        "job_id": job.id, "queue": &*job.queue, "key": job.key.as_deref(), "task": job.task.as_deref(),
        "status": job.state, "attempt": job.attempt,
        "started_at": time(job.started_at), "finished_at": time(job.finished_at),
        "heartbeat_at": time(job.heartbeat_at), "error": job.error.as_deref(),
        "progress": told(job.progress.as_deref()),
        "payload": job.payload.to_value(), "score": job.score, "priority": job.priority,
        "run_at": absolute(job.run_at), "retry_count": job.retry_count, "crashes": job.crashes,
        "cancel_requested": job.cancel_requested, "created_at": absolute(job.created_at),
    });
    if let (Some(options), Value::Object(fields)) = (&job.options, &mut document)
        && let Value::Object(more) = job_options(options)
    {
        fields.extend(more);
    }
    document
}

/// What the job overrides, under the names with which it is pushed.
fn job_options(options: &JobOptions) -> Value {
    let mut document = plain(options);
    if let Some(expires_at) = options.expires_at {
        document["expires_at"] = absolute(expires_at).into();
    }
    document
}

pub(crate) fn lane(lane: &LaneView) -> Value {
    json!({
        "lane": lane.lane, "key": lane.key.as_deref(), "state": lane.state, "due": time(lane.due),
        "priority": lane.priority, "jobs": lane.jobs, "retry_count": lane.retry_count,
        "crashes": lane.crashes, "error": lane.error.as_deref(), "token": lane.token,
        "node": lane.node, "claimed_at": time(lane.claimed_at),
        "progress": told(lane.progress.as_deref()),
    })
}

pub(crate) fn queue(view: &QueueView, figures: &Figures) -> Value {
    let mut document = figures.document();
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
