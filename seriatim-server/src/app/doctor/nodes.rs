//! Nodes that are gone, and queues that no node works on.

use seriatim::store::{Command, NodeState, NodeView, QueueStats};

use super::finding::{Finding, Severity};
use super::look::{LAG_MAX, Seen};
use crate::app::nodes::{is_full, is_gone, is_late, takes_work, works_on};
use crate::base::text::{count, operand, toml_key};
use crate::base::time::{length, relative};

/// Groups named that are at their limit.
const GROUPS_NAMED: usize = 3;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let gone = seen.nodes.iter().filter_map(|node| gone(node, seen));
    let queues = seen.stats.iter().filter_map(|queue| unattended(queue, seen));
    gone.chain(queues).chain(idle(seen)).chain(versions(seen)).collect()
}

fn gone(node: &NodeView, seen: &Seen) -> Option<Finding> {
    let holds = seen.running.iter().filter(|one| one.lane.node.as_ref() == Some(&node.info.id));
    let holds = holds.count() as u64;
    if !(node.dead || is_late(node, seen.now)) || holds == 0 {
        return None;
    }
    let what = match node.state(seen.now) {
        NodeState::Stopped => "has stopped",
        NodeState::Dead => "is dead",
        _ if is_gone(node) => "is gone: its process has ended",
        _ => "is past its lease",
    };
    let found = format!(
        "{what} (last heartbeat {}) and still has {} claimed",
        relative(seen.now, node.heartbeat_at),
        count(holds, "lane")
    );
    let advice = if seen.nodes.iter().any(|other| !other.dead && !is_late(other, seen.now)) {
        "another node takes them over within seconds; if this finding stays, check the logs of the nodes"
    } else {
        "no live node can take them over: start `seriatim serve`"
    };
    Some(Finding::new(Severity::Serious, format!("node {}", node.info.id), found, advice))
}

/// Nodes live, and all of them are told to take no work.
fn idle(seen: &Seen) -> Option<Finding> {
    let is_living =
        |node: &&NodeView| !node.dead && !is_late(node, seen.now) && !node.info.queues.is_empty();
    let living: Vec<&NodeView> = seen.nodes.iter().filter(is_living).collect();
    if living.iter().any(|node| takes_work(node, seen.now)) {
        return None;
    }
    let (about, found) = match &*living {
        [] => return None,
        [one] => (format!("node {}", one.info.id), "is the only one, and takes no work".to_owned()),
        several => ("nodes".to_owned(), format!("none of the {} takes work", several.len())),
    };
    let is_quiet = living.iter().find(|node| node.command == Some(Command::Quiet));
    let advice = match is_quiet {
        Some(quiet) => format!(
            "`seriatim nodes resume {}` lets it claim work again; or start `seriatim serve`",
            operand(&quiet.info.id.0)
        ),
        None => "start `seriatim serve`: the nodes that are alive are stopping".to_owned(),
    };
    Some(Finding::new(Severity::Warning, about, found, advice))
}

fn unattended(queue: &QueueStats, seen: &Seen) -> Option<Finding> {
    let name = &*queue.queue;
    let of_queue = |node: &&NodeView| works_on(node, name, seen.now);
    let nodes: Vec<&NodeView> = seen.nodes.iter().filter(of_queue).collect();
    let attended = !nodes.is_empty();
    if queue.paused || queue.jobs == 0 {
        return None;
    }
    let lag = length(queue.lag);
    match (attended, queue.lag >= LAG_MAX) {
        (false, true) => Some(Finding::of_queue(
            Severity::Serious,
            name,
            format!(
                "no node works on its {}; the oldest has been due for {lag}",
                count(queue.jobs, "job")
            ),
            format!(
                "add [[workers]] for {name} and start `seriatim serve`; if a node has such workers, `seriatim nodes` shows whether it is dead or quiet"
            ),
        )),
        (false, false) => Some(Finding::of_queue(
            Severity::Notice,
            name,
            format!("has {}, and no node works on it", count(queue.jobs, "job")),
            format!("add [[workers]] for {name} and start `seriatim serve`"),
        )),
        (true, true) => Some(Finding::of_queue(
            Severity::Warning,
            name,
            format!("its oldest due lane has been waiting for {lag}"),
            limited(queue, &nodes, seen).unwrap_or_else(|| lagging(queue, &nodes)),
        )),
        (true, false) => None,
    }
}

/// What to do about a queue whose limits hold its lanes back; none if they do not.
fn limited(queue: &QueueStats, nodes: &[&NodeView], seen: &Seen) -> Option<String> {
    let (name, settings) = (&queue.queue, &seen.queue(&queue.queue)?.queue);
    let (_, usage) = seen.usage.iter().find(|(of, _)| of == name)?;
    let by = |command: String| {
        format!(
            "{command} changes that until a node with a [queues.{}] entry starts, so change this too",
            toml_key(name)
        )
    };
    if let Some(why) = usage.reached(settings, None) {
        let change = by(format!("`seriatim queues limits {name} --running N`"));
        return Some(format!("it is at its limit: {why}. {change}"));
    }
    let full = usage.full_groups(settings);
    if !full.is_empty() {
        let shown = full.iter().take(GROUPS_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = match full.len().saturating_sub(GROUPS_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let change = by(format!("`seriatim queues limits {name} --group NAME --running N`"));
        return Some(format!("groups are at their limit: {shown}{more}. {change}"));
    }
    let is_free = |node: &&NodeView| !is_full(&node.info);
    let rate = settings.limit.rate.filter(|_| nodes.iter().any(is_free))?;
    let change = by(format!("`seriatim queues limits {name} --rate 100/s`"));
    Some(format!("it starts at most {rate}: push less, or {change}"))
}

/// What to do about a queue that its nodes work on too slowly: whether they lack slots or keys.
fn lagging(queue: &QueueStats, nodes: &[&NodeView]) -> String {
    let nodes: Vec<&&NodeView> = nodes.iter().filter(|node| node.info.concurrency > 0).collect();
    let slots: u64 = nodes.iter().map(|node| u64::from(node.info.concurrency)).sum();
    let busy: u64 = nodes.iter().map(|node| u64::from(node.info.busy)).sum();
    let slots_of_nodes =
        format!("{} of {}", count(slots, "slot"), count(nodes.len() as u64, "node"));
    match slots.saturating_sub(busy) {
        _ if slots == 0 => "remote workers work on it: start more of them, or raise their concurrency, if they are busy; check the findings on slow turns".to_owned(),
        _ if queue.claimed == 0 => "no turn of it runs: check the other findings and the logs of its nodes for workers that cannot start; otherwise raise `concurrency` or start more nodes".to_owned(),
        0 => format!(
            "all {slots_of_nodes} are busy: raise `concurrency` if their CPUs are not, or start more nodes; check the findings on slow turns"
        ),
        free => format!(
            "{free} of {slots_of_nodes} are free: its lanes wait for their keys, which run one turn at a time, or for the `concurrency` of a worker. Split the work over more keys, raise `batch_size`, or check the findings on slow turns"
        ),
    }
}

fn versions(seen: &Seen) -> Option<Finding> {
    let living = seen.nodes.iter().filter(|node| !node.dead && !is_late(node, seen.now));
    let mut versions: Vec<&str> = living.map(|node| node.info.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    (versions.len() > 1).then(|| {
        Finding::new(
            Severity::Notice,
            "nodes",
            format!("run different versions: {}", versions.join(", ")),
            "finish the upgrade",
        )
    })
}
