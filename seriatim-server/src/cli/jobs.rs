//! `seriatim jobs`: lists and shows jobs, and acts on one.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use seriatim::store::{Cancel, Cancelled, Change, JobState, JobView, LaneView, Page};
use seriatim::{JobId, Mode, Timestamp, store::Store};

use super::args::{Common, PageArgs, Yes, duration};
use super::deed;
use super::job_events::Events;
use super::job_filters::FilterArgs;
use super::tones::{lane_state, of_job};
use crate::app::failures;
use crate::app::find;
use crate::app::job_pages::{self, By, Status, Wanted};
use crate::app::jobs::{amended, deleted, retried, waiting};
use crate::app::reported::Reported;
use crate::app::words::state_name;
use crate::base::text::{one_line, retries_in_words};
use crate::base::time::{self, absolute, relative};
use crate::cli::output::{Cell, Failure, Fields, Result, Table, Tone, hint, say, say_json, tell};
use crate::protocol::document::{self, JobFailure};
use crate::protocol::value::Time;

#[derive(Args)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
pub(crate) struct Jobs {
    #[command(flatten)]
    common: Common,
    /// Only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs in this state
    #[arg(long, value_enum, default_value_t = Status::Live)]
    state: Status,
    #[command(flatten)]
    filters: FilterArgs,
    /// Sort order
    #[arg(long, value_enum, default_value_t = By::Time)]
    by: By,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Shows one job in full
    Show {
        /// The job
        id: JobId,
    },
    /// Shows what happened to the jobs of a queue or a key, or to one job, from the journal
    Events(Events),
    /// Cancels jobs: waiting ones immediately, running ones when their handler checks
    Cancel {
        /// The jobs
        #[arg(required = true, value_name = "ID")]
        ids: Vec<JobId>,
    },
    /// Makes a waiting job due at another time (its lane, in `accumulate`)
    Reschedule {
        /// The job
        id: JobId,
        #[command(flatten)]
        when: When,
    },
    /// Binds a waiting job to a node, or to none (its lane, in `accumulate` and `fifo`)
    Reassign {
        /// The job
        id: JobId,
        #[command(flatten)]
        to: To,
    },
    /// Makes a waiting job due now; requeues a dead one
    Retry {
        /// The job
        id: JobId,
    },
    /// Permanently deletes a waiting or dead job
    Delete {
        /// The job
        id: JobId,
        #[command(flatten)]
        yes: Yes,
    },
}

#[derive(Args, Clone, Copy)]
#[group(required = true, multiple = false)]
struct When {
    /// After this long: 250ms, 10s, 5m, 1h, 3d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    r#in: Option<Duration>,
    /// At this time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time::read)]
    at: Option<Timestamp>,
}

#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
struct To {
    /// The configured name of the node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Any node may claim it
    #[arg(long)]
    anyone: bool,
}

impl Jobs {
    pub(crate) async fn run(self) -> Result<()> {
        let json = self.common.json;
        self.common
            .store
            .using(async |store| {
                let store = &*store;
                match &self.action {
                    None => self.list(store).await,
                    Some(Action::Show { id }) => {
                        show_job(store, &find::job(store, *id).await?, json).await
                    }
                    Some(Action::Events(events)) => events.run(store, json).await,
                    Some(Action::Cancel { ids }) => cancel(store, ids, json).await,
                    Some(Action::Reschedule { id, when }) => {
                        let at = match (when.at, when.r#in) {
                            (Some(at), _) => at,
                            (None, wait) => store.now().await? + wait.unwrap_or_default(),
                        };
                        amend(store, *id, Change::RunAt(at), json).await
                    }
                    Some(Action::Reassign { id, to }) => {
                        amend(store, *id, Change::Node(to.node.clone()), json).await
                    }
                    Some(Action::Retry { id }) => retry(store, *id, json).await,
                    Some(Action::Delete { id, yes }) => delete(store, *id, *yes, json).await,
                }
            })
            .await
    }

    async fn list(&self, store: &dyn Store) -> Result<()> {
        let wanted = Wanted {
            queue: self.queue.as_deref(),
            status: self.state,
            by: self.by,
            filters: self.filters.given(),
            payload_bytes_max: self.filters.payload_bytes_max(self.common.json),
            scan_max: self.filters.scan_max(),
            after: self.page.after.as_deref(),
            rows_max: self.page.rows_max(),
        };
        let page = job_pages::page(store, wanted).await?.page;
        if self.common.json {
            say_json(&document::Jobs::from(page));
            return Ok(());
        }
        say(table(&page.rows, store.now().await?).or("no such jobs"));
        hint_more(&page);
        Ok(())
    }
}

/// Says where a listing goes on, and whether it was cut.
pub(super) fn hint_more(page: &Page<JobView>) {
    let Some(next) = &page.next else { return };
    let what = if page.cut { "read as many jobs as --scan-max allows; further" } else { "more" };
    hint(format!("{what}: --after {next}"));
}

/// A payload in a table.
pub(super) fn payload_cell(job: &JobView) -> Cell {
    match job.lacks_payload() {
        true => Cell::toned(format!("({} bytes)", job.payload_bytes), Tone::Faint),
        false => String::from_utf8_lossy(job.payload.as_bytes()).into(),
    }
}

pub(super) fn table(jobs: &[JobView], now: Timestamp) -> Table<'_, JobView> {
    let when = |job: &JobView| match job.state {
        JobState::Queued => job.run_at,
        JobState::Running => job.started_at.unwrap_or(job.run_at),
        _ => job.finished_at.unwrap_or(job.run_at),
    };
    Table::of(jobs)
        .name("job", |job| job.id.to_string())
        .name("queue", |job| &*job.queue)
        .text("key", |job| job.key.as_deref().unwrap_or_default())
        .name("status", |job| Cell::toned(state_name(job.state), of_job(job.state)))
        .name("when", |job| relative(now, when(job)))
        .number("attempt", |job| job.attempt)
        .text("payload", payload_cell)
        .error("error", |job| job.error.as_deref())
}

/// Prints a job in full.
pub(super) async fn show_job(store: &dyn Store, job: &JobView, json: bool) -> Result<()> {
    let noted = failures::of(store, job.id).await?;
    let (failed_at, retried_at) = (noted.first, noted.retried());
    if json {
        let job = document::Job::from(job.clone());
        say_json(&job.with_failures(noted.latest, failed_at, retried_at));
        return Ok(());
    }
    let now = store.now().await?;
    let when = |time: Timestamp| format!("{} ({})", relative(now, time), absolute(time));
    let options = job.options.as_deref().map(serde_json::to_string);
    let lane = waits_in(store, job).await.map(|lane| lane_state(&lane, now).text);
    let reported = Reported::of(job.progress.as_deref());
    let has_count = !job.has_ended() || job.retry_count >= 0;
    let mut fields = Fields::default();
    fields
        .add("job", job.id.to_string())
        .add("queue", &*job.queue)
        .maybe("key", job.key.as_deref())
        .maybe("task", job.task.as_deref())
        .add("status", state_name(job.state))
        .maybe("lane", lane_of(job, lane))
        .maybe("runs on", job.node.as_ref().map(|node| &*node.0))
        .maybe("token", job.token.map(|token| token.to_string()))
        .maybe("cancel", job.cancel_requested.then_some("requested"))
        .add("payload", String::from_utf8_lossy(job.payload.as_bytes()))
        .add("score", job.score.to_string())
        .add("priority", job.priority.to_string())
        .add("run at", when(job.run_at))
        .add("attempt", job.attempt.to_string())
        // In `accumulate` the failures are the lane's, and a job that has ended has none of its own.
        .maybe("retry count", has_count.then(|| retries_in_words(job.retry_count)))
        .add("crashes", job.crashes.to_string())
        .maybe("error", job.error.as_deref())
        .maybe("result", job.result.as_deref())
        .maybe("progress", reported.progress)
        .maybe("steps", reported.steps)
        .add("created", when(job.created_at))
        .maybe("started", job.started_at.map(when))
        .maybe("heartbeat", job.heartbeat_at.map(when))
        .maybe("finished", job.finished_at.map(when))
        .maybe("failed first", failed_at.map(|Time(at)| when(at)))
        .maybe("failed again", retried_at.map(|Time(at)| when(at)))
        .maybe("options", options.and_then(Result::ok));
    say(fields.render());
    if !noted.latest.is_empty() {
        say(format!("\nlatest failures:\n{}", failures_table(&noted.latest, now)));
    }
    Ok(())
}

/// The lane of a job, and what it does.
fn lane_of(job: &JobView, state: Option<String>) -> Option<String> {
    let lane = job.lane?;
    Some(state.map_or_else(|| lane.to_string(), |state| format!("{lane}, {state}")))
}

fn failures_table(failures: &[JobFailure], now: Timestamp) -> Table<'_, JobFailure> {
    Table::of(failures)
        .name("when", |failure| relative(now, failure.at.0))
        .number("attempt", |failure| failure.attempt)
        .name("node", |failure| failure.node.as_deref().unwrap_or_default())
        .error("error", |failure| Some(&failure.error))
}

/// The lane of a waiting job: its state, not only `run_at`, decides when the job runs.
async fn waits_in(store: &dyn Store, job: &JobView) -> Option<LaneView> {
    let key = job.key.as_deref().filter(|_| job.state == JobState::Queued)?;
    // It may have gone meanwhile, which is no failure of showing the job.
    find::lane(store, &job.queue, key).await.ok()
}

async fn cancel(store: &dyn Store, ids: &[JobId], json: bool) -> Result<()> {
    let cancelled = store.cancel(Cancel { now: None, jobs: ids.to_vec() }).await?;
    let outcomes = ids.iter().zip(&cancelled);
    if json {
        let jobs = outcomes.map(|(job_id, result)| CancelledJob { job_id, result });
        say_json(&CancelledJobs { jobs: jobs.collect() });
    } else {
        for (id, outcome) in outcomes {
            say(match outcome {
                Cancelled::Now => format!("{id} is cancelled"),
                Cancelled::Flagged => {
                    format!(
                        "{id} is running: its handler is notified at the next heartbeat of its node"
                    )
                }
                Cancelled::Ended => format!("{id} has already ended: nothing changed"),
                Cancelled::Unknown => format!("{id} is unknown"),
            });
        }
    }
    let mut unknown = 0;
    for (place, outcome) in cancelled.iter().enumerate() {
        match outcome {
            Cancelled::Unknown => unknown += 1,
            Cancelled::Now | Cancelled::Flagged | Cancelled::Ended => deed::done(place),
        }
    }
    match unknown {
        0 => Ok(()),
        unknown => Err(Failure::missing(format!(
            "{unknown} of {} ids are unknown: `seriatim jobs` lists waiting and running jobs",
            ids.len()
        ))),
    }
}

/// The answer to `cancel`.
#[derive(Serialize)]
struct CancelledJobs<'a> {
    jobs: Vec<CancelledJob<'a>>,
}

#[derive(Serialize)]
struct CancelledJob<'a> {
    job_id: &'a JobId,
    result: &'a Cancelled,
}

/// The answer to `reschedule` and `reassign`.
#[derive(Serialize)]
struct AmendedJob {
    #[serde(flatten)]
    job: document::Job,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane_due: Option<Time>,
}

/// Changes a waiting job, and shows it.
async fn amend(store: &dyn Store, id: JobId, change: Change, json: bool) -> Result<()> {
    let is_time = matches!(change, Change::RunAt(_));
    let job = amended(store, id, change).await?;
    // There the jobs of a key run together, when their lane is due.
    let is_gathered =
        is_time && find::queue(store, &job.queue).await?.queue.mode == Mode::Accumulate;
    let lane = match is_gathered {
        true => waits_in(store, &job).await,
        false => None,
    };
    if json {
        // Of a running lane, that is when its turn was due.
        let lane_due = lane.filter(|lane| lane.token.is_none()).and_then(|lane| lane.due).map(Time);
        say_json(&AmendedJob { job: job.into(), lane_due });
        return Ok(());
    }
    show_job(store, &job, false).await?;
    if let Some(lane) = lane {
        let now = store.now().await?;
        let (state, key) = (lane_state(&lane, now).text, job.key.as_deref().unwrap_or_default());
        let key = one_line(key);
        let jobs = match lane.token {
            Some(_) => format!("what waits for {key:?} is due at that time, or when its turn ends"),
            None => format!("all {} of {key:?} are {state}, whatever their run_at", lane.jobs),
        };
        hint(format!("in accumulate the jobs of a key run together: {jobs}"));
    }
    Ok(())
}

async fn retry(store: &dyn Store, id: JobId, json: bool) -> Result<()> {
    show_job(store, &retried(store, id).await?, json).await
}

async fn delete(store: &dyn Store, id: JobId, yes: Yes, json: bool) -> Result<()> {
    let job = find::job(store, id).await?;
    if job.state != JobState::Dead {
        waiting(&job)?;
    }
    yes.confirm(&format!("deletes the {} job {id}", state_name(job.state)))?;
    deleted(store, &job).await?;
    tell(json, &document::JobDeleted::new(id), format!("{id} is deleted"));
    Ok(())
}
