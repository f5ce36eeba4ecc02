//! Why the jobs of a lane do not run, or that they do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use seriatim::Timestamp;
use seriatim::store::{
    JobView, LaneState, LaneView, NodeView, QueueView, Store, build_of, retries_max,
};

use super::limits::{self, Usage};
use super::nodes::{is_full, name_of, works_on};
use super::pauses::{self, Pause};
use super::troubles;
use super::undo::{attempt_and_options, has_used_up};
use crate::base::time::length;

/// What is known around a lane.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) queue: &'a QueueView,
    pub(crate) usage: &'a Usage,
    pub(crate) nodes: &'a [NodeView],
    pub(crate) now: Timestamp,
}

/// A lane that is ready for so long waits for something. A listing, which reads no jobs, leads to the page that says for
/// what.
const UNTOLD: Duration = Duration::from_secs(5);

const ALSO_HELD: &str = "; also held, because its retries are used up: resuming it ends both";

/// The first reason that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Runs {
        node: Arc<str>,
        since: Duration,
    },
    /// Who did it, if that is known and was requested.
    QueuePaused(Option<Pause>),
    Paused {
        by: Option<Pause>,
        /// A resume ends both.
        is_held: bool,
    },
    Held,
    Due {
        waits: Duration,
        retry: Option<i32>,
        /// If its next job is known.
        of: Option<u32>,
    },
    /// It waits in its queue's window.
    Collects {
        waits: Duration,
        quiet: Duration,
        most: Duration,
    },
    /// Bound to a node or group of which none works on the queue.
    Bound {
        why: String,
    },
    NobodyWorks,
    /// No node that works on the queue takes its jobs.
    Trouble {
        why: String,
    },
    /// No more turns of its queue or group may run.
    Limit {
        why: String,
    },
    Busy {
        slots: u64,
    },
    Ready {
        since: Duration,
        /// Rates and groups that may hold it back.
        others: Vec<String>,
    },
}

impl Why {
    /// `head` is the job that the next turn begins with, if it is known.
    pub(crate) fn of(lane: &LaneView, head: Option<&JobView>, around: Around<'_>) -> Self {
        let Around { queue, nodes, now, .. } = around;
        let settings = &queue.queue;
        match lane.state {
            LaneState::Claimed => {
                let since = lane.claimed_at.map(|at| now.since(at)).unwrap_or_default();
                let node = lane.node.as_ref().map(|id| name_of(nodes, id));
                return Self::Runs { node: node.unwrap_or("an unknown node").into(), since };
            }
            _ if queue.paused => return Self::QueuePaused(None),
            LaneState::Paused => {
                // A listing does not know the head, whose own limit may be another one.
                let is_held =
                    head.is_some() && has_used_up(lane, attempt_and_options(head), settings);
                return Self::Paused { by: None, is_held };
            }
            LaneState::Held => return Self::Held,
            LaneState::Waiting => {}
        }
        let waits = lane.due.map(|due| due.since(now)).unwrap_or_default();
        if waits > Duration::ZERO {
            if let (Some(window), Some(latest)) = (&settings.window, lane.collects_until) {
                return Self::Collects { waits, quiet: window.quiet, most: latest.since(now) };
            }
            let retry = (lane.retry_count >= 0).then_some(lane.retry_count + 1);
            let known = head.map(|job| &job.options).or(lane.only.as_ref().map(|job| &job.options));
            let of = known.map(|options| retries_max(options.as_deref(), settings));
            return Self::Due { waits, retry, of };
        }
        let works = |node: &&NodeView| works_on(node, &settings.name, now);
        let working: Vec<&NodeView> = nodes.iter().filter(works).collect();
        let options = head.and_then(|job| job.options.as_deref());
        if let Some(node) = options.and_then(|options| options.node.as_deref())
            && !working.iter().any(|one| *one.info.name == *node)
        {
            return Self::Bound {
                why: format!("bound to node {node}, which does not work on this queue now"),
            };
        }
        if working.is_empty() {
            return Self::NobodyWorks;
        }
        let keeping = |node: &&NodeView| troubles::keeping(node, &settings.name, now);
        let troubles: Option<Vec<String>> = working.iter().map(keeping).collect();
        if let Some(why) = troubles.and_then(|troubles| troubles.into_iter().next()) {
            return Self::Trouble { why };
        }
        let serves =
            |group: &str| working.iter().any(|node| node.info.groups.iter().any(|of| of == group));
        if let Some(group) = options.and_then(|options| options.consumer_group.as_deref())
            && !serves(group)
        {
            let why = match build_of(group) {
                Some(build) => format!("for build {build}, which no node of this queue runs now"),
                None => {
                    format!("for consumer group {group}, which no node of this queue serves now")
                }
            };
            return Self::Bound { why };
        }
        let group = head.map(|_| options.and_then(|options| options.group.clone()));
        if let Some(why) = around.usage.reached(settings, group.as_ref()) {
            return Self::Limit { why };
        }
        if working.iter().all(|node| is_full(&node.info)) {
            let slots = working.iter().map(|node| u64::from(node.info.concurrency)).sum();
            return Self::Busy { slots };
        }
        let since = lane.due.map(|due| now.since(due)).unwrap_or_default();
        let mut others = limits::others(settings, group.as_ref());
        if head.is_none() && lane.key.is_some() && since >= UNTOLD {
            // Its jobs, which are not read here, may be bound to a node or belong to a group.
            others.push("the page of its key says more".to_owned());
        }
        Self::Ready { since, others }
    }

    /// Asks who paused it.
    pub(super) async fn told(
        self,
        store: &dyn Store,
        queue: &str,
        key: Option<&str>,
        now: Timestamp,
    ) -> seriatim::Result<Self> {
        Ok(match (self, key) {
            (Self::QueuePaused(_), _) => {
                Self::QueuePaused(pauses::of_queue(store, queue, now).await?)
            }
            (Self::Paused { is_held, .. }, Some(key)) => {
                Self::Paused { by: pauses::of_key(store, queue, key, now).await?, is_held }
            }
            (why, _) => why,
        })
    }

    /// With who paused it, if that is why and is known.
    pub(crate) fn by(self, pause: Option<&Pause>) -> Self {
        match self {
            Self::Paused { by: None, is_held } => Self::Paused { by: pause.cloned(), is_held },
            why => why,
        }
    }

    /// What it says beside the state, whose word it does not repeat.
    pub(crate) fn beside(&self, state: &str) -> String {
        let text = self.to_string();
        let rest = match self {
            Self::Runs { .. } => text.strip_prefix("runs"),
            _ => text.strip_prefix(state),
        };
        rest.map_or(text.as_str(), |rest| rest.trim_start_matches([':', ' '])).to_owned()
    }

    /// The state in one word: that of the lane, by which listings are filtered, unless its queue is paused.
    pub(crate) fn state(&self, lane: &LaneView, now: Timestamp) -> &'static str {
        if matches!(self, Self::QueuePaused(_)) { "paused" } else { lane.stage(now).as_str() }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs { node, since } => write!(f, "runs on {node} for {}", length(*since)),
            Self::QueuePaused(None) => f.write_str("the queue is paused"),
            Self::QueuePaused(Some(pause)) => write!(f, "the queue is paused {pause}"),
            Self::Paused { by, is_held } => {
                f.write_str("paused")?;
                by.as_ref().map_or(Ok(()), |pause| write!(f, " {pause}"))?;
                f.write_str(if *is_held { ALSO_HELD } else { "" })
            }
            Self::Held => f.write_str("held: its retries are used up"),
            Self::Due { waits, retry: None, .. } => write!(f, "due in {}", length(*waits)),
            Self::Due { waits, retry: Some(retry), of: None } => {
                write!(f, "due in {} (retry {retry})", length(*waits))
            }
            Self::Due { waits, retry: Some(retry), of: Some(most) } => {
                write!(f, "due in {} (retry {retry} of {most})", length(*waits))
            }
            Self::Collects { waits, quiet, most } => write!(
                f,
                "collects jobs: due in {} if no push comes (quiet for {}), in {} at the latest",
                length(*waits),
                length(*quiet),
                length(*most)
            ),
            Self::Bound { why } | Self::Limit { why } | Self::Trouble { why } => f.write_str(why),
            Self::NobodyWorks => f.write_str("no node works on this queue"),
            Self::Busy { slots: 1 } => f.write_str("waits for a free slot: the only one is busy"),
            Self::Busy { slots } => write!(f, "waits for a free slot: all {slots} are busy"),
            Self::Ready { since, .. } if *since < Duration::from_secs(1) => f.write_str("ready"),
            Self::Ready { since, others } if others.is_empty() => {
                write!(f, "ready for {}", length(*since))
            }
            Self::Ready { since, others } => {
                write!(f, "ready for {}: {}", length(*since), others.join("; "))
            }
        }
    }
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
