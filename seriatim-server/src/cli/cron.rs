//! `seriatim cron`: the cron entries of all nodes, with their last and next times; runs and pauses one.

use clap::{Args, Subcommand};
use seriatim::Timestamp;
use seriatim::store::Store;

use super::args::Common;
use super::deed::who;
use super::tones::cron_state;
use crate::app::cron;
use crate::base::time::{self, relative};
use crate::cli::output::table::{Cell, Column, Table};
use crate::cli::output::{Failure, Terminal, hint, say, say_json};
use crate::protocol::document::{CronEntries, CronEntry};

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
        /// Why; shown to others
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
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let json = self.common.json;
        let Some(action) = &self.action else { return self.list().await };
        let done = async |store: seriatim::SharedStore| action.carry_out(&*store, json).await;
        self.common.store.using(done).await
    }

    /// What the store knows, and what only the configuration has.
    async fn list(&self) -> Result<(), Failure> {
        let own = self.common.store.config()?.cron_entries()?;
        let known = self.common.store.using(async |store| Ok(cron::all(&*store).await?)).await;
        let mut all = match known {
            Ok(known) => known.cron,
            Err(failure) if !own.is_empty() => {
                hint(format!("only the configuration was read: {failure}"));
                Vec::new()
            }
            Err(failure) => return Err(failure),
        };
        let now = Timestamp::of_this_machine();
        let is_known = |name: &str| all.iter().any(|entry| entry.name == name);
        let own: Vec<_> = own.into_iter().filter(|entry| !is_known(entry.name())).collect();
        all.extend(cron::of_configuration(&own, now));
        if self.common.json {
            say_json(&CronEntries { cron: all });
        } else if all.is_empty() {
            say("no node has a cron entry, nor has the configuration: [[cron]]");
        } else {
            say(table(&all, now).render(Terminal::of_stdout()));
        }
        Ok(())
    }
}

fn table(all: &[CronEntry], now: Timestamp) -> Table {
    let mut table = Table::new(&[
        ("entry", Column::Name),
        ("state", Column::Text),
        ("schedule", Column::Text),
        ("queue", Column::Text),
        ("last", Column::Text),
        ("next", Column::Text),
        ("nodes", Column::Number),
    ]);
    for entry in all {
        let each = |of: fn(&crate::protocol::document::CronDefinition) -> String| {
            entry.definitions.iter().map(of).collect::<Vec<_>>().join("; ")
        };
        let (state, tone) = cron_state(entry);
        let last = entry.last.as_ref().map(|last| {
            let outcome = match last.outcome.as_deref() {
                Some(cron::ENDED) => "ended (result not kept)",
                outcome => outcome.unwrap_or("pushed"),
            };
            let by = last.by.as_ref().map(|by| format!(" by hand ({by})")).unwrap_or_default();
            let error = last.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            format!("{} {outcome}{by}{error}", relative(now, last.at.0))
        });
        let next = entry.next.iter().filter_map(|next| time::read(next).ok());
        table.row(vec![
            (&entry.name).into(),
            Cell::toned(state, tone),
            each(|one| format!("{} {} ({})", one.words, one.time_zone, one.schedule)).into(),
            each(|one| one.queue.clone()).into(),
            last.unwrap_or_default().into(),
            next.map(|next| relative(now, next)).collect::<Vec<_>>().join(", ").into(),
            each(|one| one.nodes.len().to_string()).into(),
        ]);
    }
    table
}

impl Action {
    async fn carry_out(&self, store: &dyn Store, json: bool) -> Result<(), Failure> {
        let said = |entry: CronEntry, what: &str| match json {
            true => say_json(&entry),
            false => say(format!("{} {what}", entry.name)),
        };
        match self {
            Self::Run { name } => {
                let run = cron::run(store, name, &who()).await?;
                match json {
                    true => say_json(&run),
                    false => say(format!("{name} is pushed: job {}", run.job_id)),
                }
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
