//! `seriatim morgue`: the dead jobs of a queue.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use seriatim::store::{JobState, JobView, Selected, Selection};
use seriatim::{JobId, Payload, Rate, SharedStore, Timestamp, store::Store};

use super::args::{Common, PageArgs, Yes};
use super::causes;
use super::deed;
use super::job_filters::{FilterArgs, no_dead_jobs};
use super::jobs::{hint_more, payload_cell, show_job};
use super::operations::{carry_out, time_of};
use crate::app::act::{self, Bulk};
use crate::app::job_filters::Filters;
use crate::app::morgue::{self, By, Wanted};
use crate::app::words::push_status;
use crate::app::{find, operations};
use crate::base::text::count;
use crate::base::time::{Moment, relative};
use crate::cli::output::{Failure, Result, Table, say, say_json, tell};
use crate::protocol::document::{self, Done, EditedJob};

#[derive(Args)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
#[command(
    override_usage = "seriatim morgue [list] QUEUE [OPTIONS]\n       seriatim morgue ACTION QUEUE ID…"
)]
pub(crate) struct Morgue {
    /// The queue
    queue: String,
    #[command(flatten)]
    common: Common,
    /// The order; `time` is newest first
    #[arg(long, value_enum, default_value_t = By::Time)]
    by: By,
    #[command(flatten)]
    filters: FilterArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Shows one dead job in full
    Show {
        /// The job
        id: JobId,
    },
    /// Shows why the latest dead jobs died, most frequent first
    Causes,
    /// Requeues dead jobs, due now
    Requeue {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        paced: Paced,
    },
    /// Deletes dead jobs
    Delete {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        yes: Yes,
    },
    /// Pushes a dead job again with another payload, and deletes the dead one
    Edit {
        /// The job
        id: JobId,
        /// The new payload: a JSON document
        #[arg(long, value_name = "JSON")]
        payload: String,
    },
}

/// Which of all, and how fast.
#[derive(Args)]
struct Paced {
    /// At most this many jobs per second, minute or hour: `500/s`. The others stay dead until their turn; Ctrl-C stops
    /// it
    #[arg(long)]
    rate: Option<Rate>,
    /// Only those whose last error contains this
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those that died at this time or later, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = Moment::read)]
    since: Option<Moment>,
}

/// Which dead jobs.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// These
    #[arg(value_name = "ID")]
    ids: Vec<JobId>,
    /// All of this key; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// All of the queue
    #[arg(long)]
    all: bool,
}

impl Which {
    fn selection(&self) -> Selection {
        match self {
            Self { all: true, .. } => Selection::All,
            Self { keys, .. } if !keys.is_empty() => Selection::Keys(keys.clone()),
            Self { ids, .. } => Selection::Jobs(ids.clone()),
        }
    }

    fn in_words(&self, queue: &str, dead: u64) -> String {
        match self.selection() {
            Selection::All if dead == 1 => format!("the 1 dead job of {queue}"),
            Selection::All => format!("all {dead} dead jobs of {queue}"),
            Selection::Keys(keys) => {
                format!("the dead jobs of {} of {queue}", count(keys.len() as u64, "key"))
            }
            Selection::Jobs(ids) => format!("{} of {queue}", count(ids.len() as u64, "dead job")),
        }
    }
}

impl Morgue {
    pub(crate) async fn run(self) -> Result<()> {
        self.common
            .store
            .using(async |store| match &self.action {
                None => self.list(&*store).await,
                Some(Action::Show { id }) => {
                    show_job(
                        &*store,
                        &morgue::dead_job(&*store, &self.queue, *id).await?,
                        self.common.json,
                    )
                    .await
                }
                Some(Action::Causes) => {
                    let none = Filters::default();
                    causes::show(&*store, Some(&self.queue), none, self.common.json).await
                }
                Some(Action::Requeue { which, paced }) => self.requeue(store, which, paced).await,
                Some(Action::Delete { which, yes }) => self.delete(&*store, which, *yes).await,
                Some(Action::Edit { id, payload }) => self.edit(&*store, *id, payload).await,
            })
            .await
    }

    async fn list(&self, store: &dyn Store) -> Result<()> {
        let wanted = Wanted {
            queue: &self.queue,
            by: self.by,
            filters: self.filters.given(),
            after: self.page.after.as_deref(),
            rows_max: self.page.rows_max(),
            payload_bytes_max: self.filters.payload_bytes_max(self.common.json),
            scan_max: self.filters.scan_max(),
        };
        let page = morgue::page(store, wanted).await?;
        if self.common.json {
            say_json(&document::Jobs::from(page));
            return Ok(());
        }
        let none = no_dead_jobs(Some(&self.queue), self.filters.given());
        say(table(&page.rows, store.now().await?).or(none));
        hint_more(&page);
        Ok(())
    }

    async fn requeue(&self, store: SharedStore, which: &Which, paced: &Paced) -> Result<()> {
        if let Paced { rate: None, error: None, since: None } = paced {
            find::queue(&*store, &self.queue).await?;
            let places = self.places_of_dead(&*store, which).await?;
            let acted = act::repeat(&*store, Bulk::Requeue(self.selected(which))).await?;
            return self.told(acted, which, &places, "requeued");
        }
        if !which.all {
            let wanted = "--rate, --error and --since choose among all dead jobs of the queue: write `--all` instead of ids or keys";
            return Err(Failure::usage(wanted));
        }
        let wish = operations::Wish {
            rate: paced.rate,
            error: paced.error.clone(),
            since: time_of(&*store, paced.since).await?,
            ..operations::Wish::new(operations::Action::Requeue, &*self.queue)
        };
        let counted = operations::preview(&*store, &wish).await?;
        carry_out(store, wish, &counted, self.common.json).await
    }

    async fn delete(&self, store: &dyn Store, which: &Which, yes: Yes) -> Result<()> {
        let (_, figures) = find::queue_with_figures(store, &self.queue).await?;
        let dead = figures.stats.dead;
        if dead == 0 && which.ids.is_empty() {
            let told = format!("no dead jobs of {}: nothing to delete", self.queue);
            tell(self.common.json, &Done { count: 0 }, told);
            return Ok(());
        }
        yes.confirm(&format!("deletes {}", which.in_words(&self.queue, dead)))?;
        let places = self.places_of_dead(store, which).await?;
        let acted = act::repeat(store, Bulk::DeleteDead(self.selected(which))).await?;
        self.told(acted, which, &places, "deleted")
    }

    /// The places of the ids that are in this morgue: of what it acts on, the store tells only the number.
    async fn places_of_dead(&self, store: &dyn Store, which: &Which) -> Result<Vec<usize>> {
        let mut places = Vec::new();
        for (place, id) in which.ids.iter().enumerate() {
            let job = store.job(*id).await?;
            if job.is_some_and(|job| job.state == JobState::Dead && *job.queue == *self.queue) {
                places.push(place);
            }
        }
        Ok(places)
    }

    fn selected(&self, which: &Which) -> Selected {
        Selected { now: None, queue: self.queue.as_str().into(), which: which.selection() }
    }

    fn told(&self, acted: u64, which: &Which, places: &[usize], done: &str) -> Result<()> {
        let told = format!("{} {done}", count(acted, "job"));
        tell(self.common.json, &Done { count: acted }, told);
        places.iter().for_each(|place| deed::done(*place));
        let ids: BTreeSet<&JobId> = which.ids.iter().collect();
        let missing = (ids.len() as u64).saturating_sub(acted);
        if missing > 0 {
            return Err(Failure::missing(format!(
                "{} not in the morgue of {}: `seriatim morgue {}` lists what is",
                if missing == 1 { "1 id is".to_owned() } else { format!("{missing} ids are") },
                self.queue,
                self.queue
            )));
        }
        Ok(())
    }

    async fn edit(&self, store: &dyn Store, id: JobId, payload: &str) -> Result<()> {
        let payload = Payload::from_json_text(payload)?;
        let pushed = morgue::edit(store, &self.queue, id, payload).await?;
        let told = format!("{id} is now {} ({})", pushed.job_id, push_status(pushed.status));
        tell(self.common.json, &EditedJob::new(id, &pushed), told);
        Ok(())
    }
}

fn table(jobs: &[JobView], now: Timestamp) -> Table<'_, JobView> {
    Table::of(jobs)
        .name("job", |job| job.id.to_string())
        .text("key", |job| job.key.as_deref().unwrap_or_default())
        .name("died", |job| job.finished_at.map(|at| relative(now, at)).unwrap_or_default())
        .number("attempt", |job| job.attempt)
        .text("payload", payload_cell)
        .error("error", |job| job.error.as_deref())
}
