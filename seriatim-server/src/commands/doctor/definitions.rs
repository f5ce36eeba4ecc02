//! Queue definitions: what the configuration says, and what the store holds.

use serde_json::{Map, Value};
use seriatim::Queue;

use super::look::Seen;
use super::{Finding, Severity};
use crate::output::Failure;

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

fn compare(queue: &Queue, seen: &Seen) -> Option<Finding> {
    let about = format!("queue {}", queue.name);
    let Some(view) = seen.queue(&queue.name) else {
        let found = "is in the configuration and not in the store";
        return Some(Finding::new(
            Severity::Notice,
            about,
            found,
            "the next `seriatim serve` creates it",
        ));
    };
    let differences = differences(queue, &view.queue);
    if differences.is_empty() {
        return None;
    }
    let found = format!("the configuration differs from the store: {}", differences.join(", "));
    let clash = queue.mode != view.queue.mode || queue.merge != view.queue.merge;
    let (severity, advice) = if clash && view.declared {
        (
            Severity::Serious,
            "`seriatim serve` refuses to start with it: write what the store has, or empty the queue first",
        )
    } else {
        (Severity::Notice, "the next `seriatim serve` with this configuration updates the store")
    };
    Some(Finding::new(severity, about, found, advice))
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
