//! `seriatim lanes`: lists and shows lanes, and acts on one.

use clap::{Args, Subcommand};
use seriatim::store::{LaneAction, LaneView, Page, QueueView};
use seriatim::{
    Queue, Timestamp,
    store::{LaneId, Store},
};

use super::args::{Common, PageArgs, Reason, Yes};
use super::deed;
use super::jobs;
use super::lane_text;
use super::tones::lane_state;
use crate::app::entity::Entity;
use crate::app::error::Error;
use crate::app::find;
use crate::app::job_filters::TABLE_PAYLOAD_BYTES_MAX;
use crate::app::lane_filters::Filters;
use crate::app::lane_jobs::{self, ENDED};
use crate::app::lane_pages::{self, SCAN_DEFAULT, SCAN_MAX};
use crate::app::lanes as actions;
use crate::app::lanes::OneLane;
use crate::app::range::By;
use crate::base::text::{KEY_COLUMNS, count, cut, failures, one_line, shell_word};
use crate::base::time::length;
use crate::cli::output::{Cell, Failure, Result, Table, Terminal, Tone, hint, say, say_json, tell};
use crate::protocol::document::{self, Done};

#[derive(Args)]
#[command(subcommand_value_name = "ACTION", subcommand_help_heading = "Actions")]
#[command(
    override_usage = "seriatim lanes [list] QUEUE [OPTIONS]\n       seriatim lanes ACTION QUEUE KEY…"
)]
pub(crate) struct Lanes {
    /// The queue
    queue: String,
    #[command(flatten)]
    common: Common,
    /// The order; `retries` lists only lanes that have failed, most retries first
    #[arg(long, value_enum, default_value_t = By::Age)]
    by: By,
    #[command(flatten)]
    filters: FilterArgs,
    /// First value of the range: a key, a time or a retry count, depending on --by
    #[arg(long)]
    from: Option<String>,
    /// Last value of the range (inclusive)
    #[arg(long)]
    to: Option<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(subcommand)]
    action: Option<Action>,
}

/// Which lanes are listed.
#[derive(Args)]
struct FilterArgs {
    /// Only lanes whose key has this prefix
    #[arg(long, value_name = "START", default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    of: LaneFilterArgs,
    /// Maximum number of lanes to read to find matches
    #[arg(long, value_name = "N", default_value_t = SCAN_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(1..=SCAN_MAX as i64))]
    scan_max: u32,
}

/// The filters that only lanes have.
#[derive(Args)]
pub(super) struct LaneFilterArgs {
    /// Only lanes that are ready, scheduled, retrying, running, held, paused or crashed; several with commas
    #[arg(long, value_name = "STATES", default_value = "", hide_default_value = true)]
    pub(super) state: String,
    /// Only lanes that this node holds: its id or name
    #[arg(long, value_name = "NODE", default_value = "", hide_default_value = true)]
    pub(super) node: String,
    /// Only lanes due at or after this time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    pub(super) due_from: String,
    /// Only lanes due at or before this time
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    pub(super) due_to: String,
    /// Only lanes with this retry count or a higher one
    #[arg(long, value_name = "N", default_value = "", hide_default_value = true)]
    pub(super) retries_min: String,
    /// Only waiting lanes that have been due for at least this long: 250ms, 10s, 5m
    #[arg(long, value_name = "DURATION", default_value = "", hide_default_value = true)]
    pub(super) lag_min: String,
}

impl FilterArgs {
    fn given(&self) -> Filters<'_> {
        let LaneFilterArgs { state, node, due_from, due_to, retries_min, lag_min } = &self.of;
        let (lane, prefix) = ("", self.prefix.as_str());
        Filters { state, lane, prefix, node, due_from, due_to, retries_min, lag_min }
    }
}

#[derive(Subcommand)]
enum Action {
    /// Shows the lane of a key: node, progress, error and jobs; or its ended jobs
    Show {
        /// The key
        key: String,
    },
    /// Stops claims of lanes; running turns finish
    Pause {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        why: Reason,
    },
    /// Resumes paused and held lanes
    Resume(Which),
    /// Makes lanes due now; ends a hold
    Retry(Which),
    /// Takes claims from their holders: each counts as a crash, and the holder can no longer settle
    Release(Which),
    /// Moves failed jobs to the morgue; in accumulate, all waiting jobs of a key that failed
    Bury(Which),
    /// Deletes the waiting jobs of lanes
    Delete {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        yes: Yes,
    },
}

/// Which lanes.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The lanes of these keys
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// The lane of this name, as listed: for jobs without a key
    #[arg(long, value_name = "LANE")]
    lane: Option<LaneId>,
}

impl Lanes {
    pub(crate) async fn run(self) -> Result<()> {
        self.common
            .store
            .using(async |store| {
                let queue = find::queue(&*store, &self.queue).await?;
                match &self.action {
                    None => self.list(&*store).await,
                    Some(Action::Show { key }) => self.show(&*store, &queue, key).await,
                    Some(Action::Pause { which, why }) => {
                        why.check()?;
                        self.act(&*store, which, LaneAction::Pause).await
                    }
                    Some(Action::Resume(which)) => {
                        self.act(&*store, which, LaneAction::Resume).await
                    }
                    Some(Action::Retry(which)) => {
                        self.act(&*store, which, LaneAction::RunNow).await
                    }
                    Some(Action::Bury(which)) => self.act(&*store, which, LaneAction::Bury).await,
                    Some(Action::Release(which)) => self.release(&*store, which).await,
                    Some(Action::Delete { which, yes }) => {
                        yes.confirm(&format!(
                            "deletes the waiting jobs of {} of {}",
                            count(which.keys.len().max(1) as u64, "lane"),
                            self.queue
                        ))?;
                        self.act(&*store, which, LaneAction::Delete).await
                    }
                }
            })
            .await
    }

    async fn list(&self, store: &dyn Store) -> Result<()> {
        let page = self.page(store).await?;
        if self.common.json {
            say_json(&document::Lanes::from(page));
            return Ok(());
        }
        let none = match page.cut {
            true => format!("none among the {} lanes that were read", self.filters.scan_max),
            false => format!("no lane of {} matches", self.queue),
        };
        say(table(&page.rows, store.now().await?).or(none));
        if let Some(next) = page.next {
            let what = if page.cut { "further" } else { "more" };
            hint(format!("{what}: --after {}", shell_word(&one_line(&next))));
        }
        Ok(())
    }

    async fn page(&self, store: &dyn Store) -> Result<Page<LaneView>> {
        let wanted = lane_pages::Wanted {
            queue: &self.queue,
            by: self.by,
            filters: self.filters.given(),
            from: self.from.as_deref(),
            to: self.to.as_deref(),
            after: self.page.after.as_deref(),
            rows_max: self.page.rows_max(),
            scan_max: self.filters.scan_max as usize,
            now: None,
        };
        Ok(lane_pages::page(store, wanted).await?)
    }

    async fn show(&self, store: &dyn Store, queue: &QueueView, key: &str) -> Result<()> {
        let Some(lane) = find::known_lane(store, &self.queue, key).await? else {
            return self.show_ended(store, &queue.queue, key).await;
        };
        let most = (!self.common.json).then_some(TABLE_PAYLOAD_BYTES_MAX);
        let entity = Entity::read(store, queue, lane, most).await?;
        if self.common.json {
            let Entity { lane, jobs, why, .. } = entity;
            let lane = document::Lane::of_queue(lane, self.queue.as_str().into());
            say_json(&lane.in_full(&why, jobs.claimed, jobs.waiting));
            return Ok(());
        }
        say(lane_text::in_full(&self.queue, &entity, Terminal::of_stdout()));
        if let Some(next) = entity.jobs.next {
            hint(format!(
                "more: `seriatim jobs --queue {0} --key {1} --state queued --by turn --after {0}/{next}`",
                self.queue,
                one_line(key)
            ));
        }
        Ok(())
    }

    /// The key has nothing left to do, usually because its jobs are done. This is no error.
    async fn show_ended(&self, store: &dyn Store, queue: &Queue, key: &str) -> Result<()> {
        let most = (!self.common.json).then_some(TABLE_PAYLOAD_BYTES_MAX);
        let ended = lane_jobs::ended(store, &self.queue, key, &ENDED, most).await?;
        if self.common.json {
            say_json(&document::EndedLane::new(&self.queue, key, ended));
            return Ok(());
        }
        let (name, shown) = (&self.queue, one_line(key));
        say(format!("queue {name} has no waiting or claimed jobs with key {shown:?}"));
        if !ended.is_empty() {
            say(format!("\nlast ended:\n{}", jobs::table(&ended, store.now().await?)));
            return Ok(());
        }
        let keeps = queue.retention();
        say(match keeps.is_zero() {
            true => format!(
                "none of its jobs is dead, and {name} keeps no finished jobs (retain_completed): the key had no jobs, or all are done or cancelled"
            ),
            false => format!(
                "none of its jobs is dead, and none has ended in the last {}",
                seriatim::duration::format(keeps)
            ),
        });
        Ok(())
    }

    async fn act(&self, store: &dyn Store, which: &Which, action: LaneAction) -> Result<()> {
        let act = async |lane: OneLane| actions::act(store, &self.queue, lane, action).await;
        self.each(which, act, |lanes| actions::done(action, lanes)).await
    }

    async fn release(&self, store: &dyn Store, which: &Which) -> Result<()> {
        let release = async |lane: OneLane| actions::release(store, &self.queue, lane).await;
        self.each(which, release, |_| "released").await
    }

    /// Does something to one lane after the other, and says to how many it is done.
    async fn each(
        &self,
        which: &Which,
        act: impl AsyncFn(OneLane) -> Result<u64, Error>,
        told: impl Fn(u64) -> &'static str,
    ) -> Result<()> {
        let keys = which.keys.iter().map(|key| OneLane::Key(key.clone()));
        let mut done = 0;
        for (place, lane) in keys.chain(which.lane.map(OneLane::Lane)).enumerate() {
            let acted = act(lane).await;
            done += acted.map_err(|error| broken_off(error, done))?;
            deed::done(place);
        }
        let told = format!("{} {}", count(done, "lane"), told(done));
        tell(self.common.json, &Done { count: done }, told);
        Ok(())
    }
}

/// The failure, with the number of lanes done before it.
fn broken_off(error: Error, done: u64) -> Failure {
    let failure = Failure::from(error);
    if done == 0 {
        return failure;
    }
    let told = format!("{failure} ({} done before it)", count(done, "lane"));
    failure.reworded(told)
}

fn table(lanes: &[LaneView], now: Timestamp) -> Table<'_, LaneView> {
    let failed = |lane: &LaneView| if lane.retry_count < 0 { Tone::Faint } else { Tone::Warn };
    Table::of(lanes)
        .name("lane", |lane| lane.lane.to_string())
        .text("key", |lane| cut(&one_line(lane.key.as_deref().unwrap_or_default()), KEY_COLUMNS))
        .name("state", |lane| lane_state(lane, now))
        .number("jobs", |lane| lane.jobs)
        .figure("lag", |lane| lane.lag(now).map_or_else(String::new, length).into())
        .figure("failed", |lane| Cell::toned(failures(lane.retry_count), failed(lane)))
        .trouble("crashes", Tone::Warn, |lane| u64::from(lane.crashes))
        .text("node", |lane| lane.node.as_ref().map_or("", |node| &*node.0))
        .error("error", |lane| lane.error.as_deref())
}
