//! `seriatim queues`: the queues, one of them in full, and what is done to a whole queue.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use seriatim::store::{LaneAction, NodeView, QueueView, delete_queue};
use seriatim::{Mode, SharedStore, store::Store};

use super::args::{Common, Yes};
use super::tones::node_state;
use super::troubles;
use crate::app::act;
use crate::app::figures::Figures;
use crate::app::find;
use crate::app::queues::{all, one, with_figures, workers};
use crate::base::text::count;
use crate::base::time::length;
use crate::cli::output::fields::Fields;
use crate::cli::output::table::{Cell, Column, Table, Tone};
use crate::cli::output::{Failure, Terminal, say};
use crate::protocol::document;

#[derive(Args)]
pub(crate) struct Queues {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Shows one queue: numbers, settings, who works on it
    Show {
        /// The queue
        queue: String,
    },
    /// Stops claims of a queue; what runs goes on to its end
    Pause {
        /// The queue
        queue: String,
    },
    /// Lets a paused queue go on
    Resume {
        /// The queue
        queue: String,
    },
    /// Splits a queue into another number of shards, while everybody works on
    Reshard {
        /// The queue
        queue: String,
        /// How many: 1 to 4096
        shards: u16,
        /// Ends only when nothing is left where the earlier number put it
        #[arg(long)]
        wait: bool,
    },
    /// Deletes a queue with all that is in it; refused while a node works on it
    Delete {
        /// The queue
        queue: String,
        /// Releases what is claimed, and deletes a queue that a node declares: that makes it again, empty
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        yes: Yes,
    },
    /// Deletes what waits in a queue; what runs, and what waits behind it, stays
    Drain {
        /// The queue
        queue: String,
        #[command(flatten)]
        yes: Yes,
    },
    /// Makes all that waits due now: scheduled jobs, and those that wait for a retry
    PerformAllNow {
        /// The queue
        queue: String,
    },
    /// Sends what has failed and waits for a retry to the morgue
    BuryFailed {
        /// The queue
        queue: String,
    },
    /// Deletes what has failed and waits for a retry
    DeleteFailed {
        /// The queue
        queue: String,
        #[command(flatten)]
        yes: Yes,
    },
}

impl Queues {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let (json, action) = (self.common.json, self.action);
        let body = async |store| match action {
            None => list(store, json).await,
            Some(action) => action.run(store, json).await,
        };
        self.common.store.using(body).await
    }
}

impl Action {
    async fn run(self, store: SharedStore, json: bool) -> Result<(), Failure> {
        match self {
            Self::Show { queue } => show(&*store, &queue, json).await,
            Self::Pause { queue } => pause(&*store, &queue, true, json).await,
            Self::Resume { queue } => pause(&*store, &queue, false, json).await,
            Self::Reshard { queue, shards, wait } => {
                reshard(&*store, &queue, shards, wait, json).await
            }
            Self::PerformAllNow { queue } => {
                find::queue(&*store, &queue).await?;
                let lanes = act::on_all(&store, &queue, LaneAction::RunNow).await?;
                told(json, lanes, "is due now", "are due now");
                Ok(())
            }
            Self::Delete { queue, force, yes } => {
                let (_, figures) = find::queue_with_figures(&*store, &queue).await?;
                let (jobs, dead) = (figures.stats.jobs, figures.stats.dead);
                yes.confirm(&format!(
                    "deletes {queue}, with {} that wait or run and {dead} dead",
                    count(jobs, "job")
                ))?;
                let deleted = delete_queue(&*store, &queue, force).await?;
                say(match json {
                    true => {
                        let (count, released) = (deleted.jobs, deleted.released);
                        json!({ "queue": queue, "count": count, "released": released }).to_string()
                    }
                    false => format!("{queue} is deleted, with {}", count(deleted.jobs, "job")),
                });
                Ok(())
            }
            Self::Drain { queue, yes } => {
                let (_, figures) = find::queue_with_figures(&*store, &queue).await?;
                let lanes = count(figures.stats.lanes, "lane");
                yes.confirm(&format!("deletes what waits in {lanes} of {queue}"))?;
                told(json, act::drain(&store, &queue).await?, "is emptied", "are emptied");
                Ok(())
            }
            Self::BuryFailed { queue } => {
                find::queue(&*store, &queue).await?;
                failed(&*store, &queue, LaneAction::Bury, json).await
            }
            Self::DeleteFailed { queue, yes } => {
                let (_, figures) = find::queue_with_figures(&*store, &queue).await?;
                let retrying = figures.stats.retrying;
                if retrying == 0 {
                    nothing(json, &format!("nothing of {queue} waits for a retry"));
                    return Ok(());
                }
                let lanes = count(retrying, "lane");
                yes.confirm(&format!("deletes what has failed in {lanes} of {queue}"))?;
                failed(&*store, &queue, LaneAction::Delete, json).await
            }
        }
    }
}

/// How often a queue is looked at that is waited for.
const RESHARD_LOOK: Duration = Duration::from_secs(1);

async fn reshard(
    store: &dyn Store,
    queue: &str,
    shards: u16,
    wait: bool,
    json: bool,
) -> Result<(), Failure> {
    let mut now = store.reshard(queue, shards).await?;
    while wait && now.older > 0 {
        tokio::time::sleep(RESHARD_LOOK).await;
        now = store.reshard(queue, shards).await?;
    }
    if json {
        say(json!({
            "queue": queue,
            "shards": now.shards,
            "older": now.older,
            "lanes_left": now.lanes_left,
            "idempotency_keys_left": now.idempotency_keys_left,
        }));
        return Ok(());
    }
    say(format!("{queue} is split into {}", count(now.shards.into(), "shard")));
    if now.older > 0 {
        say(format!(
            "where earlier numbers put them: {} and {}; pushes look there until they have ended",
            count(now.lanes_left, "lane"),
            count(now.idempotency_keys_left, "idempotency key")
        ));
    }
    Ok(())
}

async fn list(store: SharedStore, json: bool) -> Result<(), Failure> {
    if json {
        say(all(&*store).await?);
        return Ok(());
    }
    let views = with_figures(&*store).await?;
    if views.is_empty() {
        say("no queues: a push creates one, as do the [queues] of a configuration");
        return Ok(());
    }
    let mut table = Table::new(&[
        ("queue", Column::Name),
        ("mode", Column::Name),
        ("jobs", Column::Number),
        ("waiting", Column::Number),
        ("running", Column::Number),
        ("prefetched", Column::Number),
        ("retrying", Column::Number),
        ("dead", Column::Number),
        ("lag", Column::Number),
        ("state", Column::Text),
    ]);
    for (view, figures) in &views {
        table.row(row(view, figures));
    }
    say(table.render(Terminal::of_stdout()));
    let (nodes, now) = (store.nodes().await?, store.now().await?);
    for (view, _) in &views {
        troubles::say_all(&nodes, now, Some(&view.queue.name));
    }
    Ok(())
}

fn row(view: &QueueView, figures: &Figures) -> Vec<Cell> {
    let stats = &figures.stats;
    vec![
        (&view.queue.name).into(),
        view.queue.mode.as_str().into(),
        stats.jobs.to_string().into(),
        stats.waiting().to_string().into(),
        figures.running().to_string().into(),
        figures.prefetched.to_string().into(),
        Cell::trouble(stats.retrying, Tone::Warn),
        Cell::trouble(stats.dead, Tone::Bad),
        length(stats.lag).into(),
        Cell::toned(state(view), if view.paused { Tone::Warn } else { Tone::Faint }),
    ]
}

fn state(view: &QueueView) -> &'static str {
    match (view.paused, view.declared) {
        (true, _) => "paused",
        (false, true) => "open",
        (false, false) => "open, undeclared",
    }
}

async fn show(store: &dyn Store, name: &str, json: bool) -> Result<(), Failure> {
    if json {
        say(one(store, name).await?);
        return Ok(());
    }
    let (view, figures) = find::queue_with_figures(store, name).await?;
    let stats = &figures.stats;
    let nodes = workers(store, name).await?;
    let settings = document::plain(&view.queue);
    let mut fields = Fields::default();
    fields
        .add("queue", name)
        .add("state", state(&view))
        .add("jobs", format!("{} in {}", stats.jobs, count(stats.lanes, "lane")))
        .add("waiting", count(stats.waiting(), "lane"))
        .add("running", count(figures.running(), "turn"))
        .add("prefetched", count(figures.prefetched, "turn"))
        .add("retrying", count(stats.retrying, "lane"))
        .add("dead", count(stats.dead, "job"))
        .add("processed", count(stats.processed, "job"))
        .add("failed", count(stats.failed, "turn"))
        .add("lag", length(stats.lag));
    let now = store.now().await?;
    let name = |node: &NodeView| format!("{} ({})", node.info.id, node_state(node, now).0);
    let names: Vec<String> = nodes.iter().map(name).collect();
    fields.add("nodes", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    fields.add("settings", lines_of(&settings, view.queue.mode));
    say(fields.render());
    troubles::say_all(&nodes, now, Some(&view.queue.name));
    Ok(())
}

/// The settings that are set and mean something in this mode, one on a line as a configuration has
/// them.
fn lines_of(settings: &Value, mode: Mode) -> String {
    let fields = settings.as_object().into_iter().flatten();
    let says_something = |name: &str| match name {
        "name" => false,
        "merge" | "due" => mode == Mode::Accumulate,
        "take" => mode == Mode::Fifo,
        _ => true,
    };
    let set = fields.filter(|(name, value)| says_something(name) && !value.is_null());
    set.map(|(name, value)| format!("{name} = {}", as_toml(value))).collect::<Vec<_>>().join("\n")
}

/// The value on one line: texts and numbers look the same in both, tables do not.
fn as_toml(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return value.to_string() };
    let field = |(name, value): (&String, &Value)| format!("{name} = {}", as_toml(value));
    format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
}

async fn pause(store: &dyn Store, name: &str, paused: bool, json: bool) -> Result<(), Failure> {
    let view = find::queue(store, name).await?;
    store.pause_queue(name, paused).await?;
    if json {
        say(json!({ "queue": name, "paused": paused }));
        return Ok(());
    }
    say(match (paused, view.paused) {
        (true, false) => format!("{name} is paused: what runs goes on, nothing new is claimed"),
        (true, true) => format!("{name} was paused already"),
        (false, true) => format!("{name} goes on"),
        (false, false) => format!("{name} was not paused"),
    });
    Ok(())
}

/// Buries or deletes what has failed.
async fn failed(
    store: &dyn Store,
    name: &str,
    action: LaneAction,
    json: bool,
) -> Result<(), Failure> {
    let count = act::on_failed(store, name, action).await?;
    match action {
        LaneAction::Bury => told(json, count, "is buried", "are buried"),
        _ => told(json, count, "is deleted", "are deleted"),
    }
    Ok(())
}

/// Says that there was nothing to be done.
fn nothing(json: bool, why: &str) {
    say(if json { json!({ "count": 0 }).to_string() } else { why.to_owned() });
}

/// Says to how many lanes it was done.
fn told(json: bool, lanes: u64, one: &str, several: &str) {
    if json {
        say(json!({ "count": lanes }));
    } else {
        say(format!("{} {}", count(lanes, "lane"), if lanes == 1 { one } else { several }));
    }
}
