//! `seriatim queues`: lists and shows queues, and acts on one.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use seriatim::store::{LaneAction, QueueView, delete_queue};
use seriatim::{SharedStore, store::Store};

use super::args::{Common, Reason, Yes};
use super::queue_limits::Change;
use super::queue_text::{self, state};
use super::troubles;
use crate::app::act;
use crate::app::figures::Figures;
use crate::app::find;
use crate::app::queues::{all, one, with_figures};
use crate::base::text::count;
use crate::base::time::length;
use crate::cli::output::{Cell, Result, Table, Tone, say, say_json, tell};
use crate::protocol::document::{Done, QueueDeleted, QueuePaused};

#[derive(Args)]
pub(crate) struct Queues {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Shows one queue: metrics, settings, nodes
    Show {
        /// The queue
        queue: String,
    },
    /// Stops claims of a queue; running turns finish
    Pause {
        /// The queue
        queue: String,
        #[command(flatten)]
        why: Reason,
    },
    /// Resumes a paused queue
    Resume {
        /// The queue
        queue: String,
    },
    /// Limits how many turns of a queue or group run at once, and how many start per second, minute or hour, on all nodes together
    Limits {
        /// The queue
        queue: String,
        #[command(flatten)]
        change: Change,
    },
    /// Changes the number of shards of a queue, without downtime
    Reshard {
        /// The queue
        queue: String,
        /// The number of shards: 1 to 4096
        shards: u16,
        /// Wait until the old shards are empty
        #[arg(long)]
        wait: bool,
    },
    /// Deletes a queue with its jobs; refused while a node works on it
    Delete {
        /// The queue
        queue: String,
        /// Release claims, and delete a queue even if a node declares it (the node recreates it, empty)
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        yes: Yes,
    },
    /// Deletes the waiting jobs of a queue; claimed lanes stay
    Drain {
        /// The queue
        queue: String,
        #[command(flatten)]
        yes: Yes,
    },
    /// Makes all waiting lanes due now: scheduled jobs, and those that wait for a retry
    PerformAllNow {
        /// The queue
        queue: String,
    },
    /// Moves jobs that failed and wait for a retry to the morgue
    BuryFailed {
        /// The queue
        queue: String,
    },
    /// Deletes failed jobs that wait for a retry
    DeleteFailed {
        /// The queue
        queue: String,
        #[command(flatten)]
        yes: Yes,
    },
}

impl Queues {
    pub(crate) async fn run(self) -> Result<()> {
        let (json, action) = (self.common.json, self.action);
        let body = async |store| match action {
            None => list(store, json).await,
            Some(action) => action.run(store, json).await,
        };
        self.common.store.using(body).await
    }
}

impl Action {
    async fn run(self, store: SharedStore, json: bool) -> Result<()> {
        match self {
            Self::Show { queue } => show(&*store, &queue, json).await,
            Self::Pause { queue, why } => {
                why.check()?;
                pause(&*store, &queue, true, json).await
            }
            Self::Resume { queue } => pause(&*store, &queue, false, json).await,
            Self::Limits { queue, change } => change.run(&*store, &queue, json).await,
            Self::Reshard { queue, shards, wait } => {
                reshard(&*store, &queue, shards, wait, json).await
            }
            Self::PerformAllNow { queue } => {
                find::queue(&*store, &queue).await?;
                let lanes = act::on_all(&*store, &queue, LaneAction::RunNow).await?;
                told(json, lanes, "is due now", "are due now");
                Ok(())
            }
            Self::Delete { queue, force, yes } => {
                let (_, figures) = find::queue_with_figures(&*store, &queue).await?;
                let (jobs, dead) = (figures.stats.jobs, figures.stats.dead);
                yes.confirm(&format!(
                    "deletes {queue} with {} waiting or running and {dead} dead",
                    count(jobs, "job")
                ))?;
                let deleted = delete_queue(&*store, &queue, force).await?;
                let (jobs, released) = (deleted.jobs, deleted.released);
                let told = format!("{queue} is deleted, with {}", count(jobs, "job"));
                tell(json, &QueueDeleted { queue, count: jobs, released }, told);
                Ok(())
            }
            Self::Drain { queue, yes } => {
                let (_, figures) = find::queue_with_figures(&*store, &queue).await?;
                let lanes = count(figures.stats.lanes, "lane");
                yes.confirm(&format!("deletes the waiting jobs in {lanes} of {queue}"))?;
                told(json, act::drain(&*store, &queue).await?, "is emptied", "are emptied");
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
                    nothing(json, &format!("no job of {queue} waits for a retry"));
                    return Ok(());
                }
                let lanes = count(retrying, "lane");
                yes.confirm(&format!("deletes the failed jobs in {lanes} of {queue}"))?;
                failed(&*store, &queue, LaneAction::DeleteFailed, json).await
            }
        }
    }
}

/// How often `--wait` checks the queue.
const RESHARD_LOOK: Duration = Duration::from_secs(1);

/// The answer to `reshard`.
#[derive(Serialize)]
struct Resharded<'a> {
    queue: &'a str,
    shards: u16,
    older: u16,
    lanes_left: u64,
    idempotency_keys_left: u64,
}

async fn reshard(
    store: &dyn Store,
    queue: &str,
    shards: u16,
    wait: bool,
    json: bool,
) -> Result<()> {
    let mut now = store.reshard(queue.into(), shards).await?;
    while wait && now.older > 0 {
        tokio::time::sleep(RESHARD_LOOK).await;
        now = store.reshard(queue.into(), shards).await?;
    }
    if json {
        say_json(&Resharded {
            queue,
            shards: now.shards,
            older: now.older,
            lanes_left: now.lanes_left,
            idempotency_keys_left: now.idempotency_keys_left,
        });
        return Ok(());
    }
    say(format!("{queue} now has {}", count(now.shards.into(), "shard")));
    if now.older > 0 {
        say(format!(
            "{} and {} are still in old shards: pushes check those too until they are empty",
            count(now.lanes_left, "lane"),
            count(now.idempotency_keys_left, "idempotency key")
        ));
    }
    Ok(())
}

async fn list(store: SharedStore, json: bool) -> Result<()> {
    if json {
        say_json(&all(&*store).await?);
        return Ok(());
    }
    let (views, nodes) = with_figures(&*store).await?;
    let none = "no queues: a push or a [queues] entry of the configuration creates one";
    say(table(&views).or(none));
    let now = store.now().await?;
    for (view, _) in &views {
        troubles::say_all(&nodes, now, Some(&view.queue.name));
    }
    Ok(())
}

fn table(views: &[(QueueView, Figures)]) -> Table<'_, (QueueView, Figures)> {
    let state = |(view, _): &(QueueView, Figures)| {
        Cell::toned(state(view), if view.paused { Tone::Warn } else { Tone::Faint })
    };
    Table::of(views)
        .name("queue", |(view, _)| &view.queue.name)
        .name("mode", |(view, _)| view.queue.mode.as_str())
        .number("jobs", |(_, of)| of.stats.jobs)
        .number("waiting", |(_, of)| of.stats.waiting())
        .number("running", |(_, of)| of.running())
        .number("prefetched", |(_, of)| of.prefetched)
        .trouble("retrying", Tone::Warn, |(_, of)| of.stats.retrying)
        .trouble("dead", Tone::Bad, |(_, of)| of.stats.dead)
        .number("lag", |(_, of)| length(of.stats.lag))
        .text("state", state)
}

async fn show(store: &dyn Store, name: &str, json: bool) -> Result<()> {
    if json {
        say_json(&one(store, name).await?);
        return Ok(());
    }
    say(queue_text::in_full(store, name).await?);
    Ok(())
}

async fn pause(store: &dyn Store, name: &str, paused: bool, json: bool) -> Result<()> {
    let view = find::queue(store, name).await?;
    store.pause_queue(name.into(), paused).await?;
    let told = match (paused, view.paused) {
        (true, false) => format!("{name} is paused: running turns finish, nothing new is claimed"),
        (true, true) => format!("{name} was already paused"),
        (false, true) => format!("{name} is resumed"),
        (false, false) => format!("{name} was not paused"),
    };
    tell(json, &QueuePaused { queue: name.to_owned(), paused }, told);
    Ok(())
}

/// Buries or deletes failed jobs.
async fn failed(store: &dyn Store, name: &str, action: LaneAction, json: bool) -> Result<()> {
    let count = act::on_failed(store, name, action).await?;
    if count == 0 {
        nothing(json, &format!("no lane of {name} has failed jobs"));
        return Ok(());
    }
    match action {
        LaneAction::Bury => told(
            json,
            count,
            "has no failed job any more: see the morgue",
            "have no failed jobs any more: see the morgue",
        ),
        _ => told(json, count, "has no failed job any more", "have no failed jobs any more"),
    }
    Ok(())
}

/// Prints that there was nothing to do.
fn nothing(json: bool, why: &str) {
    tell(json, &Done { count: 0 }, why);
}

/// Prints the number of changed lanes.
fn told(json: bool, lanes: u64, one: &str, several: &str) {
    let words = if lanes == 1 { one } else { several };
    tell(json, &Done { count: lanes }, format!("{} {words}", count(lanes, "lane")));
}
