//! Queue definitions: configuration and store compared.

use serde_json::{Map, Value};
use seriatim::store::{Declaration, QueueView};
use seriatim::{Mode, Queue};

use super::finding::{Finding, Severity};
use super::look::Seen;
use crate::base::text::toml_key;

/// `declared`: the queues of the configuration.
pub(super) fn check(seen: &Seen, declared: &[Queue]) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        declared.iter().filter_map(|queue| compare(queue, seen)).collect();
    for view in seen.queues.iter().filter(|view| !view.declared) {
        let name = &view.queue.name;
        if declared.iter().any(|queue| queue.name == *name) {
            continue;
        }
        findings.push(Finding::of_queue(
            Severity::Notice,
            name,
            format!(
                "it is not declared: a push created it as {}, with the default settings",
                view.queue.mode
            ),
            format!(
                "if the name is right, add [queues.{}] with a mode to the configuration; if it is a typo, `seriatim jobs --queue {name}` lists its jobs",
                toml_key(name)
            ),
        ));
    }
    findings
}

/// What `serve` does with a definition, by the rule of the stores.
fn compare(queue: &Queue, seen: &Seen) -> Option<Finding> {
    let (name, view) = (&queue.name, seen.queue(&queue.name));
    let stats = seen.stats.iter().find(|stats| *stats.queue == *queue.name);
    let found = match view {
        None => "is in the configuration but not in the store".to_owned(),
        Some(view) => {
            let differences = differences(queue, &view.queue);
            format!("the configuration differs from the store: {}", differences.join(", "))
        }
    };
    let (severity, advice) = match Declaration::of(queue, view, stats) {
        Declaration::Kept => return None,
        // Only its number of shards may differ, which a command changes, or that a push made it.
        Declaration::Updated if view.is_some_and(|view| differences(queue, &view.queue).is_empty()) => {
            return None;
        }
        Declaration::Created => (Severity::Notice, "the next `seriatim serve` creates it".to_owned()),
        Declaration::Updated => (
            Severity::Notice,
            "the next `seriatim serve` with this configuration updates the store".to_owned(),
        ),
        Declaration::Converted => (
            Severity::Notice,
            format!("a push created it; the next `seriatim serve` converts it to {} and keeps its jobs", queue.mode),
        ),
        Declaration::Waits => (
            Severity::Warning,
            format!("a push created it; `seriatim serve` converts it to {} as soon as none of its jobs runs, and claims nothing from it until then", queue.mode),
        ),
        Declaration::Stuck => (Severity::Serious, stuck(queue, view)),
        Declaration::Refused => (
            Severity::Serious,
            "`seriatim serve` refuses to start with it: use the store's definition, or empty the queue first".to_owned(),
        ),
    };
    Some(Finding::of_queue(severity, name, found, advice))
}

/// Advice for a queue whose jobs do not fit its configured mode.
fn stuck(queue: &Queue, view: Option<&QueueView>) -> String {
    let (name, mode) = (&queue.name, queue.mode);
    let old = view.map_or(Mode::Parallel, |view| view.queue.mode);
    let why = match mode.is_keyed() {
        true => "its jobs have no key",
        false => "its jobs have keys",
    };
    format!(
        "a push created it, and {why}: `seriatim serve` claims nothing from it; run the jobs with mode = \"{old}\" in [queues.{}], or delete them (`seriatim jobs --queue {name}`, `seriatim jobs delete ID --yes`): it becomes {mode} when it is empty",
        toml_key(name)
    )
}

/// `max_retries 3, in the store 25`, for each setting.
fn differences(configured: &Queue, stored: &Queue) -> Vec<String> {
    let fields = |queue: &Queue| match serde_json::to_value(queue) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let stored = fields(stored);
    let asked = fields(configured).into_iter();
    // A queue that exists keeps its number of shards.
    let differing = asked.filter(|(name, _)| name != "shards").filter_map(|(name, value)| {
        let other = stored.get(&name).filter(|other| **other != value)?;
        Some(format!("{name} {value}, in the store {other}"))
    });
    differing.collect()
}
