//! Jobs bound to a node that does not exist, or to a group that no node serves.

use std::collections::BTreeMap;

use seriatim::store::{JobOptions, NodeView, build_of};

use super::finding::{Finding, Severity};
use super::look::{Bound, Seen};
use crate::app::nodes::is_late;
use crate::base::text::{count, one_line};

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    seen.bound.iter().flat_map(|(queue, jobs)| of_queue(queue, jobs, seen)).collect()
}

fn of_queue(queue: &str, jobs: &[Bound], seen: &Seen) -> Vec<Finding> {
    let to_nodes = by(jobs, |options| options.node.as_deref());
    let mut findings: Vec<Finding> = Vec::new();
    for (node, jobs) in to_nodes {
        let Some(why) = absence(node, queue, seen) else { continue };
        let (waiting, first) = (waiting(&jobs), jobs[0].id);
        let found = format!("{waiting} bound to node {:?}, {why}: {first}", one_line(node));
        let advice = format!(
            "start a node with [node] id = {node:?} and a worker for {queue}, or let any node claim it: `seriatim jobs reassign {first} --anyone`"
        );
        findings.push(tell(queue, &jobs, found, advice));
    }
    for (group, jobs) in by(jobs, |options| options.consumer_group.as_deref()) {
        let serves = |node: &NodeView| node.info.groups.iter().any(|of| of == group);
        if living(seen).any(|node| works_on(node, queue) && serves(node)) {
            continue;
        }
        let (waiting, first) = (waiting(&jobs), jobs[0].id);
        let (found, setting) = match build_of(group) {
            Some(build) => (
                format!("build {:?}, which no node", one_line(build)),
                format!("build = {build:?}"),
            ),
            None => (
                format!("consumer group {:?}, which no node", one_line(group)),
                format!("consumer_groups = [{group:?}]"),
            ),
        };
        let found = format!("{waiting} for the {found} of this queue serves: {first}");
        let advice = format!("start a node with [node] {setting} and a worker for {queue}");
        findings.push(tell(queue, &jobs, found, advice));
    }
    findings
}

fn tell(queue: &str, jobs: &[&Bound], found: String, advice: String) -> Finding {
    let one = if let [job] = jobs { job.key.as_deref() } else { None };
    Finding::of_queue(Severity::Serious, queue, found, advice).key(one)
}

/// The jobs that are bound, by what they are bound to.
fn by<'a>(
    jobs: &'a [Bound],
    to: impl Fn(&'a JobOptions) -> Option<&'a str>,
) -> BTreeMap<&'a str, Vec<&'a Bound>> {
    let mut bound: BTreeMap<&str, Vec<&Bound>> = BTreeMap::new();
    for job in jobs {
        if let Some(name) = to(&job.options) {
            bound.entry(name).or_default().push(job);
        }
    }
    bound
}

fn waiting(jobs: &[&Bound]) -> String {
    match jobs.len() as u64 {
        1 => "1 waiting job is".to_owned(),
        several => format!("{} are", count(several, "waiting job")),
    }
}

fn living(seen: &Seen) -> impl Iterator<Item = &NodeView> {
    seen.nodes.iter().filter(|node| !node.dead && !is_late(node, seen.now))
}

fn works_on(node: &NodeView, queue: &str) -> bool {
    node.info.queues.iter().any(|of| of == queue)
}

/// Why no node of this name claims jobs of the queue; none if one does.
fn absence(name: &str, queue: &str, seen: &Seen) -> Option<&'static str> {
    let is_named = |node: &&NodeView| *node.info.name == *name;
    let named: Vec<_> = seen.nodes.iter().filter(is_named).collect();
    let living: Vec<_> = living(seen).filter(is_named).collect();
    let works = living.iter().any(|node| works_on(node, queue));
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
