//! `seriatim operations`: actions on many jobs or lanes, done in steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use seriatim::store::{LaneId, Store};
use seriatim::{JobId, Rate, SharedStore};
use tokio::signal::unix::{SignalKind, signal};

use super::args::{Common, Yes};
use super::deed::{found, who};
use super::lanes::LaneFilterArgs;
use crate::app::operations::{
    self, ALL_QUEUES, Action, Begin, Leaving, List, Operation, Preview, State, Wish, preview,
};
use crate::base::time::Moment;
use crate::cli::output::{Failure, Fields, Progress, Result, Table, hint, say, say_json, tell};
use crate::protocol::value::Time;

#[derive(Args)]
pub(crate) struct Operations {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Shows the progress of an operation
    Show {
        /// The operation
        id: String,
    },
    /// Counts the jobs or lanes that an operation would change, and shows five
    Preview(Which),
    /// Starts an operation, and waits until it is done; Ctrl-C stops it
    Start {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        yes: Yes,
        /// To delete more than 1,000: their number, as `preview` prints it
        #[arg(long, value_name = "NUMBER")]
        confirm: Option<u64>,
    },
    /// Stops an operation before its next step; what is done stays done
    Stop {
        /// The operation
        #[arg(value_name = "ID")]
        operation: String,
    },
}

/// What to do, and to which jobs or lanes.
#[derive(Args)]
struct Which {
    /// What to do
    #[arg(value_enum)]
    action: Action,
    /// The queues, one after another
    #[arg(value_name = "QUEUE", required_unless_present = "all_queues")]
    queues: Vec<String>,
    /// All queues that have matching jobs
    #[arg(long, conflicts_with = "queues")]
    all_queues: bool,
    /// Only of this key
    #[arg(long)]
    key: Option<String>,
    /// Only of keys with this prefix
    #[arg(long)]
    prefix: Option<String>,
    /// Only jobs of this task
    #[arg(long)]
    task: Option<String>,
    /// Only jobs without a task
    #[arg(long)]
    untasked: bool,
    /// Only those whose last error contains this
    #[arg(long)]
    error: Option<String>,
    /// Only jobs with this cause: the error with `N` for numbers, `ID` for ids, `"…"` for quotes
    #[arg(long)]
    cause: Option<String>,
    #[command(flatten)]
    of_lanes: LaneFilterArgs,
    /// Only jobs that died (or were pushed) before this time, or 2h for two hours ago. Default: now
    #[arg(long, value_name = "TIME", value_parser = Moment::read)]
    before: Option<Moment>,
    /// Only what died at this time or later, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = Moment::read)]
    since: Option<Moment>,
    /// At most this many jobs per second, minute or hour: `500/s`. The others stay dead until their turn
    #[arg(long)]
    rate: Option<Rate>,
    /// These jobs, with commas between them, instead of a filter
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    jobs: Vec<JobId>,
    /// These lanes, with commas between them, instead of a filter
    #[arg(long, value_delimiter = ',', value_name = "LANE")]
    lanes: Vec<LaneId>,
}

impl Which {
    async fn wish(self, store: &dyn Store) -> Result<Wish> {
        let some = |named: bool| named.then_some(());
        let mut queues = self.queues;
        let (queue, queues) = match queues.len() {
            1 => (queues.remove(0), None),
            0 => (String::new(), Some(List(vec![ALL_QUEUES.to_owned()]))),
            _ => (String::new(), Some(List(queues))),
        };
        let LaneFilterArgs { state, node, due_from, due_to, retries_min, lag_min } = self.of_lanes;
        let wish = Wish {
            queues,
            key: self.key,
            prefix: self.prefix,
            task: self.task,
            untasked: self.untasked,
            error: self.error,
            cause: self.cause,
            state,
            node,
            due_from,
            due_to,
            retries_min,
            lag_min,
            before: time_of(store, self.before).await?,
            since: time_of(store, self.since).await?,
            rate: self.rate,
            jobs: some(!self.jobs.is_empty()).map(|()| List(self.jobs)),
            lanes: some(!self.lanes.is_empty()).map(|()| List(self.lanes)),
            ..Wish::new(self.action, queue)
        };
        Ok(wish.resolved(store, |_| true).await?)
    }
}

impl Operations {
    pub(crate) async fn run(self) -> Result<()> {
        let (json, verb) = (self.common.json, self.verb);
        let body = async |store: SharedStore| match verb {
            None => list(&*store, json).await,
            Some(Verb::Show { id }) => {
                told(&operations::show(&*store, &id).await?, json);
                Ok(())
            }
            Some(Verb::Stop { operation }) => {
                told(&operations::stop(&*store, &operation, &who()).await?, json);
                Ok(())
            }
            Some(Verb::Preview(which)) => count(&*store, &which.wish(&*store).await?, json).await,
            Some(Verb::Start { which, yes, confirm }) => {
                let is_of_all = which.all_queues;
                let wish = which.wish(&*store).await?;
                if is_of_all {
                    found(wish.place());
                }
                start(store, wish, yes, confirm, json).await
            }
        };
        self.common.store.using(body).await
    }
}

/// A moment that a flag names, by the clock of the store.
pub(super) async fn time_of(store: &dyn Store, moment: Option<Moment>) -> Result<Option<Time>> {
    match moment {
        Some(moment) => Ok(Some(Time(moment.of(store).await?))),
        None => Ok(None),
    }
}

async fn list(store: &dyn Store, json: bool) -> Result<()> {
    let all = operations::list(store).await?;
    let table = Table::of(&all)
        .name("operation", |one| &one.id)
        .name("state", |one| one.state.name())
        .text("progress", Operation::progress)
        .text("who", |one| &one.who)
        .text("of", |one| one.what.in_words())
        .or("no operations: `seriatim operations start` starts one");
    tell(json, &serde_json::json!({ "operations": all }), table);
    Ok(())
}

fn told(operation: &Operation, json: bool) {
    let mut fields = Fields::default();
    fields
        .add("operation", &operation.id)
        .add("state", operation.state.name())
        .add("of", operation.what.in_words())
        .add("progress", operation.progress())
        .add("who", &operation.who)
        .add("started", &operation.created_at)
        .maybe("ended", operation.ended_at.as_ref())
        .maybe("stopped by", operation.stopped_by.as_ref())
        .maybe("error", operation.error.as_ref());
    tell(json, operation, fields.render());
}

async fn count(store: &dyn Store, wish: &Wish, json: bool) -> Result<()> {
    let counted = preview(store, wish).await?;
    if json {
        say_json(&counted);
        return Ok(());
    }
    say(format!("{}: {}", wish.in_words(), counted.count));
    for one in &counted.samples {
        let text = |of: &Option<String>| of.clone().unwrap_or_default();
        let queue = wish.queues.as_ref().map(|_| format!("{}  ", one.queue)).unwrap_or_default();
        say(format!("  {queue}{}  {}  {}", one.id, text(&one.key), text(&one.error)));
    }
    hint(wish.action.consequence());
    Ok(())
}

async fn start(
    store: SharedStore,
    wish: Wish,
    yes: Yes,
    confirm: Option<u64>,
    json: bool,
) -> Result<()> {
    let counted = preview(&*store, &wish).await?;
    if wish.action.deletes() && confirm.is_none() && counted.confirm.is_none() {
        let does = if wish.action == Action::CancelJobs { "cancels" } else { "deletes" };
        yes.confirm(&format!("{does} {} {}", counted.count, wish.in_words()))?;
    }
    counted.check(confirm)?;
    carry_out(store, wish, &counted, json).await
}

/// Begins it, and waits until it is done; Ctrl-C stops it. Fails if it was not done to all.
pub(super) async fn carry_out(
    store: SharedStore,
    wish: Wish,
    counted: &Preview,
    json: bool,
) -> Result<()> {
    let runner = format!("command-{:016x}", fastrand::u64(..));
    let (who, waits) = (who(), Duration::ZERO);
    let begin = Begin { who: &who, runner: &runner, waits };
    let operation = operations::begin(&*store, wish, counted, begin).await?;
    let (id, mut last) = (operation.id.clone(), operation);
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let stopping = stop_at_interrupt(store.clone(), id.clone(), is_interrupted.clone());
    let mut progress = Progress::start();
    operations::run(&store, &id, &runner, &Stays, |now| {
        progress.say(&now.progress());
        last = now.clone();
    })
    .await?;
    stopping.inspect(tokio::task::JoinHandle::abort);
    drop(progress);
    told(&last, json);
    let stopped = "stopped: what is done stays done";
    match (last.state, last.error) {
        (State::Done, _) => Ok(()),
        (_, Some(error)) => Err(Failure::failed(error)),
        (State::Stopped, _) if is_interrupted.load(Ordering::Relaxed) => {
            Err(Failure::interrupted(stopped))
        }
        (State::Stopped, _) => Err(Failure::failed(stopped)),
        _ => Err(Failure::conflict(format!(
            "another process continues it: `seriatim operations show {id}`"
        ))),
    }
}

/// Asks for the end of the operation when the user does. If they ask again, the command ends: without the store, the first
/// time does nothing.
fn stop_at_interrupt(
    store: SharedStore,
    id: String,
    is_interrupted: Arc<AtomicBool>,
) -> Option<tokio::task::JoinHandle<()>> {
    // From here on the signal does not end the process.
    let mut interrupts = signal(SignalKind::interrupt()).ok()?;
    Some(tokio::spawn(async move {
        if interrupts.recv().await.is_none() {
            return;
        }
        is_interrupted.store(true, Ordering::Relaxed);
        let who = who();
        let ask = async {
            if let Err(error) = operations::stop(&*store, &id, &who).await {
                hint(format!("cannot stop it: {error}. Ctrl-C again ends this command"));
            }
        };
        let leave = async {
            if interrupts.recv().await.is_some() {
                hint(format!("{id} has not ended: a server of this store continues it"));
                std::process::exit(Failure::INTERRUPTED.into());
            }
        };
        tokio::join!(ask, leave);
    }))
}

/// A command stays until its operation ends.
struct Stays;

impl Leaving for Stays {
    fn is_leaving(&self) -> bool {
        false
    }
    async fn leaving(&self) {
        std::future::pending::<()>().await;
    }
}
