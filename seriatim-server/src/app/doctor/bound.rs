//! Jobs bound to a node that does not exist, or to a group that no node serves.

use std::collections::BTreeMap;

use seriatim::store::{JobView, NodeView};

use super::finding::{Finding, Severity};
use super::look::Seen;
use crate::app::nodes::is_late;
use crate::base::text::{count, one_line};

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    seen.bound.iter().flat_map(|(queue, jobs)| of_queue(queue, jobs, seen)).collect()
}

fn of_queue(queue: &str, jobs: &[JobView], seen: &Seen) -> Vec<Finding> {
    let mut by_node: BTreeMap<&str, Vec<&JobView>> = BTreeMap::new();
    for job in jobs {
        if let Some(node) = job.options.as_ref().and_then(|options| options.node.as_deref()) {
            by_node.entry(node).or_default().push(job);
        }
    }
    let finding = |(node, jobs): (&str, Vec<&JobView>)| {
        let why = absence(node, queue, seen)?;
        let first = jobs.first()?;
        let found = format!(
            "{} bound to node {:?}, {why}: {}",
            match jobs.len() as u64 {
                1 => "1 waiting job is".to_owned(),
                several => format!("{} are", count(several, "waiting job")),
            },
            one_line(node),
            first.id
        );
        let advice = format!(
            "start a node with [node] id = {node:?} and a worker for {queue}, or let any node claim it: `seriatim jobs reassign {} --anyone`",
            first.id
        );
        Some(Finding::new(Severity::Serious, format!("queue {queue}"), found, advice))
    };
    let mut findings: Vec<Finding> = by_node.into_iter().filter_map(finding).collect();
    findings.extend(of_groups(queue, jobs, seen));
    findings
}

fn of_groups(queue: &str, jobs: &[JobView], seen: &Seen) -> Vec<Finding> {
    let mut by_group: BTreeMap<&str, Vec<&JobView>> = BTreeMap::new();
    for job in jobs {
        let options = job.options.as_deref();
        if let Some(group) = options.and_then(|options| options.consumer_group.as_deref()) {
            by_group.entry(group).or_default().push(job);
        }
    }
    let serves = |group: &str| {
        living(seen).any(|node| {
            let has = |all: &[String], one: &str| all.iter().any(|of| of == one);
            has(&node.info.queues, queue) && has(&node.info.groups, group)
        })
    };
    let finding = |(group, jobs): (&str, Vec<&JobView>)| {
        let first = jobs.first()?;
        let found = format!(
            "{} for the consumer group {:?}, which no node of this queue serves: {}",
            match jobs.len() as u64 {
                1 => "1 waiting job is".to_owned(),
                several => format!("{} are", count(several, "waiting job")),
            },
            one_line(group),
            first.id
        );
        let advice =
            format!("start a node with [node] groups = [{group:?}] and a worker for {queue}");
        Some(Finding::new(Severity::Serious, format!("queue {queue}"), found, advice))
    };
    by_group.into_iter().filter(|(group, _)| !serves(group)).filter_map(finding).collect()
}

fn living(seen: &Seen) -> impl Iterator<Item = &NodeView> {
    seen.nodes.iter().filter(|node| !node.dead && !is_late(node, seen.now))
}

/// Why no node of this name claims jobs of the queue; none if one does.
fn absence(name: &str, queue: &str, seen: &Seen) -> Option<&'static str> {
    let named: Vec<_> = seen.nodes.iter().filter(|node| *node.info.name == *name).collect();
    let living: Vec<_> =
        named.iter().filter(|node| !node.dead && !is_late(node, seen.now)).collect();
    let works = living.iter().any(|node| node.info.queues.iter().any(|of| of == queue));
    match (named.is_empty(), living.is_empty(), works) {
        (true, ..) => Some("which is not known"),
        (false, true, _) if named.iter().all(|node| node.info.has_stopped()) => {
            Some("which has stopped")
        }
        (false, true, _) => Some("which is dead"),
        (false, false, false) => Some("which does not work on this queue"),
        (false, false, true) => None,
    }
}
