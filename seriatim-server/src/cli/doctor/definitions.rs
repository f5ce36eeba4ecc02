//! Queue definitions: what the configuration says, and what the store holds.

use serde_json::{Map, Value};
use seriatim::store::{Declaration, QueueView};
use seriatim::{Mode, Queue};

use super::finding::{Finding, Severity};
use super::look::Seen;
use crate::cli::output::Failure;

pub(super) fn check(seen: &Seen) -> Result<Vec<Finding>, Failure> {
    let declared = seen.config.declared()?;
    let mut findings: Vec<Finding> =
        declared.iter().filter_map(|queue| compare(queue, seen)).collect();
    for view in seen.queues.iter().filter(|view| !view.declared) {
        let name = &view.queue.name;
        if declared.iter().any(|queue| queue.name == *name) {
            continue;
        }
        findings.push(Finding::new(
            Severity::Notice,
            format!("queue {name}"),
            format!(
                "nobody declared it: a push made it {}, with the default settings",
                view.queue.mode
            ),
            format!(
                "if the name is right, add [queues.{name}] with a mode to the configuration; if it is a slip, `seriatim jobs --queue {name}` lists what it took"
            ),
        ));
    }
    Ok(findings)
}

/// What `serve` makes of a definition, by the rule that the stores follow too.
fn compare(queue: &Queue, seen: &Seen) -> Option<Finding> {
    let (name, view) = (&queue.name, seen.queue(&queue.name));
    let stats = seen.stats.iter().find(|stats| *stats.queue == *queue.name);
    let about = format!("queue {name}");
    let found = match view {
        None => "is in the configuration and not in the store".to_owned(),
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
            format!("a push made it; the next `seriatim serve` makes it {} and keeps its jobs", queue.mode),
        ),
        Declaration::Waits => (
            Severity::Warning,
            format!("a push made it; `seriatim serve` makes it {} as soon as none of its jobs runs, and takes nothing from it until then", queue.mode),
        ),
        Declaration::Stuck => (Severity::Serious, stuck(queue, view)),
        Declaration::Refused => (
            Severity::Serious,
            "`seriatim serve` refuses to start with it: write what the store has, or empty the queue first".to_owned(),
        ),
    };
    Some(Finding::new(severity, about, found, advice))
}

/// What to do with a queue whose jobs do not fit the mode that it is to have.
fn stuck(queue: &Queue, view: Option<&QueueView>) -> String {
    let (name, mode) = (&queue.name, queue.mode);
    let old = view.map_or(Mode::Parallel, |view| view.queue.mode);
    let why = match mode.is_keyed() {
        true => "its jobs have no key",
        false => "its jobs have keys",
    };
    format!(
        "a push made it, and {why}: `seriatim serve` takes nothing from it; run the jobs with mode = \"{old}\" in [queues.{name}], or delete them (`seriatim jobs --queue {name}`, `seriatim jobs delete ID --yes`): it becomes {mode} when it is empty"
    )
}

/// `max_retries 3, in the store 25`, for each setting.
fn differences(configured: &Queue, stored: &Queue) -> Vec<String> {
    let fields = |queue: &Queue| match serde_json::to_value(queue) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let stored = fields(stored);
    let differing = fields(configured).into_iter().filter_map(|(name, value)| {
        let other = stored.get(&name).filter(|other| **other != value)?;
        Some(format!("{name} {value}, in the store {other}"))
    });
    differing.collect()
}
