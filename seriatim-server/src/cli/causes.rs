//! `seriatim causes`: what the latest dead jobs died of, in all queues.

use clap::Args;
use seriatim::Timestamp;
use seriatim::store::Store;

use super::args::Common;
use super::job_filters::{WhichArgs, no_dead_jobs};
use crate::app::job_filters::Filters;
use crate::app::{causes, find};
use crate::base::text::count;
use crate::base::time::relative;
use crate::cli::output::{Result, Table, hint, tell};
use crate::protocol::document::Cause;

#[derive(Args)]
pub(crate) struct Causes {
    #[command(flatten)]
    common: Common,
    /// Only of this queue
    #[arg(long)]
    queue: Option<String>,
    #[command(flatten)]
    which: WhichArgs,
}

impl Causes {
    pub(crate) async fn run(self) -> Result<()> {
        let Self { common, queue, which } = self;
        let show = async |store: seriatim::SharedStore| {
            show(&*store, queue.as_deref(), which.given(), common.json).await
        };
        common.store.using(show).await
    }
}

/// Of a queue, or of all.
pub(super) async fn show(
    store: &dyn Store,
    queue: Option<&str>,
    filters: Filters<'_>,
    json: bool,
) -> Result<()> {
    if let Some(queue) = queue {
        find::queue(store, queue).await?;
    }
    let found = causes::document(&causes::latest(store, queue, filters, |_| true).await?);
    let table = table(&found.causes, store.now().await?);
    tell(json, &found, table.or(no_dead_jobs(queue, filters)));
    if found.more && !json {
        hint(format!("counted among the latest {} dead jobs", found.looked_at));
    }
    if found.left_out > 0 && !json {
        let queues = count(found.left_out as u64, "queue");
        hint(format!("not read: {queues} with the fewest dead jobs (--queue reads one)"));
    }
    Ok(())
}

fn table(causes: &[Cause], now: Timestamp) -> Table<'_, Cause> {
    Table::of(causes)
        .number("jobs", |cause| cause.count)
        .name("queue", |cause| &*cause.queue)
        .text("task", |cause| cause.task.as_deref().unwrap_or_default())
        .name("first", |cause| relative(now, cause.first_at.0))
        .name("last", |cause| relative(now, cause.last_at.0))
        .name("latest job", |cause| cause.job_id.to_string())
        .error("cause", |cause| Some(&cause.error))
}
