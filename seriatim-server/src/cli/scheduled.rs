//! `seriatim scheduled`: what waits for a time, in all queues.

use std::sync::Arc;

use clap::Args;
use seriatim::Timestamp;
use seriatim::store::{LaneView, Store};
use seriatim::text::one_line;

use super::args::{Common, PageArgs};
use super::tones::lane_state;
use crate::app::find;
use crate::app::scheduled::{self, Listed, Wanted};
use crate::base::text::{KEY_COLUMNS, cut, failures};
use crate::cli::output::{Result, Table, hint, say, say_json};
use crate::protocol::document::Lanes;

#[derive(Args)]
pub(crate) struct Scheduled {
    #[command(flatten)]
    common: Common,
    /// Only of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only lanes whose key has this prefix; those of several queues are then listed queue by queue
    #[arg(long, value_name = "START", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Only lanes due at or after this time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    due_from: String,
    /// Only lanes due at or before this time
    #[arg(long, value_name = "TIME", default_value = "", hide_default_value = true)]
    due_to: String,
    #[command(flatten)]
    page: PageArgs,
}

impl Scheduled {
    pub(crate) async fn run(self) -> Result<()> {
        self.common.store.using(async |store| self.list(&*store).await).await
    }

    async fn list(&self, store: &dyn Store) -> Result<()> {
        if let Some(queue) = &self.queue {
            find::queue(store, queue).await?;
        }
        let wanted = Wanted {
            queue: self.queue.as_deref(),
            prefix: &self.prefix,
            due_from: &self.due_from,
            due_to: &self.due_to,
            after: self.page.after.as_deref(),
            rows_max: self.page.rows_max(),
        };
        let queues = scheduled::queues(store, |_| true).await?;
        let now = store.now().await?;
        let Listed { page, is_by_queue } = scheduled::page(store, wanted, &queues, now).await?;
        if self.common.json {
            say_json(&Lanes::from(page));
            return Ok(());
        }
        let filters = [&self.prefix, &self.due_from, &self.due_to];
        let none = match page.next {
            Some(_) => "none of the lanes that were read matches",
            None if filters.iter().any(|text| !text.is_empty()) => {
                "nothing that matches is due later"
            }
            None => "nothing is due later",
        };
        say(table(&page.rows, now).or(none));
        if is_by_queue && !page.rows.is_empty() {
            hint("these are queue by queue, in the order of their names");
        }
        if let Some(next) = page.next {
            hint(format!("more: --after {next}"));
        }
        Ok(())
    }
}

fn table(lanes: &[(Arc<str>, LaneView)], now: Timestamp) -> Table<'_, (Arc<str>, LaneView)> {
    let key = |lane: &LaneView| match lane.key.as_deref() {
        Some(key) => cut(&one_line(key), KEY_COLUMNS),
        None => lane.lane.to_string(),
    };
    let task = |lane: &LaneView| lane.only.as_ref().and_then(|job| job.task.clone());
    Table::of(lanes)
        .name("state", |(_, lane)| lane_state(lane, now))
        .name("queue", |(queue, _)| queue)
        .text("key", move |(_, lane)| key(lane))
        .text("task", move |(_, lane)| task(lane).map(|task| one_line(&task)).unwrap_or_default())
        .number("jobs", |(_, lane)| lane.jobs)
        .number("failed", |(_, lane)| failures(lane.retry_count))
        .error("error", |(_, lane)| lane.error.as_deref())
}
