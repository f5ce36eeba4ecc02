//! `seriatim cron`: the cron entries of all nodes, with their last and next times; runs and pauses one.

use clap::{Args, Subcommand};
use seriatim::Timestamp;
use seriatim::store::Store;

use super::args::Common;
use super::deed::who;
use super::tones::cron_state;
use crate::app::cron;
use crate::base::time::{self, relative};
use crate::cli::output::{Result, Table, hint, tell};
use crate::protocol::document::{CronDefinition, CronEntries, CronEntry, CronLast};

#[derive(Args)]
pub(crate) struct CronArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Pushes the job of an entry now, also while it is paused
    Run {
        /// The entry
        name: String,
    },
    /// Pauses an entry: no node pushes its ticks
    Pause {
        /// The entry
        name: String,
        /// Reason, shown to others in the audit log and the dashboard
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Ends the pause of an entry; its ticks count as missed
    Resume {
        /// The entry
        name: String,
    },
}

impl CronArgs {
    pub(crate) async fn run(self) -> Result<()> {
        let json = self.common.json;
        let Some(action) = &self.action else { return self.list().await };
        let done = async |store: seriatim::SharedStore| action.carry_out(&*store, json).await;
        self.common.store.using(done).await
    }

    /// What the store knows, and what only the configuration has.
    async fn list(&self) -> Result<()> {
        let own = self.common.store.config()?.cron_entries()?;
        let known = self
            .common
            .store
            .using(async |store| Ok((cron::all(&*store).await?, store.now().await?)));
        let (mut all, now) = match known.await {
            Ok((known, now)) => (known.cron, now),
            Err(failure) if !own.is_empty() => {
                hint(format!("only the configuration was read: {failure}"));
                (Vec::new(), Timestamp::of_this_machine())
            }
            Err(failure) => return Err(failure),
        };
        let is_known = |name: &str| all.iter().any(|entry| entry.name == name);
        let own: Vec<_> = own.into_iter().filter(|entry| !is_known(entry.name())).collect();
        all.extend(cron::of_configuration(&own, now));
        let told = table(&all, now)
            .or("no cron entries on any node or in the configuration: add [[cron]]")
            .to_string();
        tell(self.common.json, &CronEntries { cron: all }, told);
        Ok(())
    }
}

fn table(all: &[CronEntry], now: Timestamp) -> Table<'_, CronEntry> {
    let each = |entry: &CronEntry, of: fn(&CronDefinition) -> String| {
        entry.definitions.iter().map(of).collect::<Vec<_>>().join("; ")
    };
    let schedule =
        |one: &CronDefinition| format!("{} {} ({})", one.words, one.time_zone, one.schedule);
    let next = |entry: &CronEntry| {
        let next = entry.next.iter().filter_map(|next| time::read(next).ok());
        next.map(|next| relative(now, next)).collect::<Vec<_>>().join(", ")
    };
    Table::of(all)
        .name("entry", |entry| &entry.name)
        .text("state", cron_state)
        .text("schedule", |entry| each(entry, schedule))
        .text("queue", |entry| each(entry, |one| one.queue.clone()))
        .text("last", |entry| {
            entry.last.as_ref().map(|last| in_words(last, now)).unwrap_or_default()
        })
        .text("next", next)
        .number("nodes", |entry| each(entry, |one| one.nodes.len().to_string()))
}

fn in_words(last: &CronLast, now: Timestamp) -> String {
    let outcome = match last.outcome.as_deref() {
        Some(cron::ENDED) => "ended (result not kept)",
        outcome => outcome.unwrap_or("pushed"),
    };
    let by = last.by.as_ref().map(|by| format!(" by hand ({by})")).unwrap_or_default();
    let error = last.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{} {outcome}{by}{error}", relative(now, last.at.0))
}

impl Action {
    async fn carry_out(&self, store: &dyn Store, json: bool) -> Result<()> {
        let said =
            |entry: CronEntry, what: &str| tell(json, &entry, format!("{} {what}", entry.name));
        match self {
            Self::Run { name } => {
                let run = cron::run(store, name, &who()).await?;
                tell(json, &run, format!("{name} is pushed: job {}", run.job_id));
            }
            Self::Pause { name, reason } => {
                let entry = cron::pause(store, name, &who(), reason.as_deref()).await?;
                said(entry, "is paused: no node pushes its ticks");
            }
            Self::Resume { name } => {
                said(
                    cron::resume(store, name).await?,
                    "is resumed; the ticks of the pause count as missed",
                );
            }
        }
        Ok(())
    }
}
