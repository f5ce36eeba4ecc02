//! `seriatim nodes`: lists and shows nodes, and controls one.

use clap::{Args, Subcommand};
use seriatim::store::{Command, NodeView, QueueStats};
use seriatim::{Timestamp, store::Store};

use super::args::Common;
use super::tones::node_state;
use super::troubles;
use crate::app::nodes::{self, RUNNING_MAX, all, busy, find, held_by, one, release, sorted};
use crate::app::reported::Reported;
use crate::app::running::{Running, age, running};
use crate::base::text::count;
use crate::base::time::{absolute, length, relative};
use crate::cli::output::{Fields, Result, Table, say, say_json, tell};
use crate::protocol::document::{NodeCommanded, NodeReleased, load};

#[derive(Args)]
pub(crate) struct Nodes {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Shows one node and its claimed lanes
    Show {
        /// The node's id, the start of the id, or its name
        node: String,
    },
    /// Stops a node from claiming; running turns go on
    Quiet {
        /// The node's id, the start of the id, or its name
        node: String,
    },
    /// Lets a quiet or stopping node claim again
    Resume {
        /// The node's id, the start of the id, or its name
        node: String,
    },
    /// Takes all claims from a node or remote worker: each counts as a crash
    Release {
        /// The node's id, the start of the id, or its name
        node: String,
    },
    /// Makes a node finish its running turns and exit
    Stop {
        /// The node's id, the start of the id, or its name
        node: String,
    },
}

impl Nodes {
    pub(crate) async fn run(self) -> Result<()> {
        let json = self.common.json;
        self.common
            .store
            .using(async |store| match &self.action {
                None => list(&*store, json).await,
                Some(Action::Show { node }) => show(&*store, node, json).await,
                Some(Action::Quiet { node }) => send(&*store, node, Command::Quiet, json).await,
                Some(Action::Resume { node }) => send(&*store, node, Command::Resume, json).await,
                Some(Action::Release { node }) => {
                    let (node, lanes) = release(&*store, node).await?;
                    let told = format!("{} of {node} released", count(lanes, "lane"));
                    tell(json, &NodeReleased { node, count: lanes }, told);
                    Ok(())
                }
                Some(Action::Stop { node }) => send(&*store, node, Command::Stop, json).await,
            })
            .await
    }
}

/// The queues of the node, the paused ones marked.
pub(super) fn queues_of<'a>(
    node: &NodeView,
    stats: impl Iterator<Item = &'a QueueStats> + Clone,
) -> String {
    let is_paused = |name: &str| stats.clone().any(|of| *of.queue == *name && of.paused);
    let shown = |name: &String| match is_paused(name) {
        true => format!("{name} (paused)"),
        false => name.clone(),
    };
    node.info.queues.iter().map(shown).collect::<Vec<_>>().join(", ")
}

async fn list(store: &dyn Store, json: bool) -> Result<()> {
    if json {
        say_json(&all(store).await?);
        return Ok(());
    }
    let (nodes, now) = (sorted(store).await?, store.now().await?);
    let stats = store.stats(None).await?;
    let running = running(store, &stats, None, RUNNING_MAX).await?;
    let load = |node: &NodeView| load(node, held_by(&running, node).len());
    say(Table::of(&nodes)
        .name("node", |node| &*node.info.id.0)
        .name("state", |node| node_state(node, now))
        .number("busy", |node| busy(&node.info))
        .number("running", |node| load(node).0)
        .number("prefetched", |node| load(node).1)
        .name("heartbeat", |node| relative(now, node.heartbeat_at))
        .text("host", |node| &node.info.host)
        .number("pid", |node| node.info.pid)
        .text("queues", |node| queues_of(node, stats.iter()))
        .or("no nodes: `seriatim serve` starts one"));
    troubles::say_all(&nodes, now, None);
    Ok(())
}

async fn show(store: &dyn Store, wanted: &str, json: bool) -> Result<()> {
    if json {
        say_json(&one(store, wanted).await?);
        return Ok(());
    }
    let (node, now) = (find(store, wanted).await?, store.now().await?);
    let stats = store.stats(None).await?;
    let held = running(store, &stats, Some(&node.info.id), RUNNING_MAX).await?;
    let (turns, prefetched) = load(&node, held.len());
    let when = |time: Timestamp| format!("{} ({})", relative(now, time), absolute(time));
    let info = &node.info;
    let mut fields = Fields::default();
    fields
        .add("node", &*info.id.0)
        .add("name", &*info.name)
        .add("state", node_state(&node, now).text)
        .add("process", format!("{} on {}, version {}", info.pid, info.host, info.version))
        .add("busy", busy(info))
        .add("running", count(turns, "turn"))
        .add("prefetched", count(prefetched, "turn"))
        .add("queues", queues_of(&node, stats.iter()))
        .add("started", when(info.started_at))
        .add("heartbeat", when(node.heartbeat_at))
        .add("lease", seriatim::duration::format(info.lease));
    for program in &info.periodic {
        fields.add("periodic", nodes::periodic(program));
    }
    say(fields.render());
    troubles::say_all(std::slice::from_ref(&node), now, None);
    if !held.is_empty() {
        say(format!("\nclaimed:\n{}", lanes(&held, now)));
    }
    Ok(())
}

fn lanes(held: &[Running], now: Timestamp) -> Table<'_, Running> {
    Table::of(held)
        .name("queue", |one| &*one.queue)
        .text("key", |one| one.lane.key.as_deref().unwrap_or_default())
        .number("jobs", |one| one.lane.jobs)
        .number("for", |one| length(age(one, now)))
        .text("progress", |one| Reported::of(one.lane.progress.as_deref()).line())
}

async fn send(store: &dyn Store, wanted: &str, command: Command, json: bool) -> Result<()> {
    let node = nodes::command(store, wanted, command).await?;
    let what = match command {
        Command::Quiet => "will claim no more work",
        Command::Stop => "will finish its running turns and exit",
        Command::Resume => "will claim work again",
    };
    let told = format!("{node} {what}, from its next heartbeat on");
    tell(json, &NodeCommanded { node, command }, told);
    Ok(())
}
