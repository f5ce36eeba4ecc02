//! `seriatim jobs events`: the events of jobs in the journal.

use clap::Args;
use serde_json::Value;
use seriatim::JobId;
use seriatim::store::Store;

use super::args::{PageArgs, TimesArgs};
use crate::app::find;
use crate::cli::output::{Failure, Result, Table, hint, tell};
use crate::journal::{self, Wanted};

#[derive(Args)]
pub(crate) struct Events {
    /// Only of this job
    id: Option<JobId>,
    /// The queue; unless a job is named
    #[arg(long, required_unless_present = "id")]
    queue: Option<String>,
    /// Only of this key
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    times: TimesArgs,
    #[command(flatten)]
    page: PageArgs,
}

impl Events {
    pub(super) async fn run(&self, store: &dyn Store, json: bool) -> Result<()> {
        let queue = self.queue(store).await?;
        let (since, until) = self.times.bounds(store.now().await?);
        let wanted = Wanted {
            queue: &queue,
            job: self.id,
            key: self.key.as_deref(),
            since,
            until,
            after: self.page.after.as_deref(),
        };
        let page = journal::page(store, wanted, self.page.rows_max()).await?;
        let none = "no events: servers with [journal] enabled note them";
        tell(json, &page, table(&page.events).or(none));
        if let Some(next) = page.next.filter(|_| !json) {
            hint(format!("more: --after {next}"));
        }
        Ok(())
    }

    /// The queue that is named, or that of the job.
    async fn queue(&self, store: &dyn Store) -> Result<String> {
        if let Some(queue) = &self.queue {
            return Ok(find::queue(store, queue).await?.queue.name);
        }
        let number = self.id.map(|id| id.queue());
        let queues = store.queues().await?;
        let of_job = queues.into_iter().find(|view| Some(view.number) == number);
        let none = || Failure::failed("the store has no queue of this job's number");
        Ok(of_job.ok_or_else(none)?.queue.name)
    }
}

fn table(events: &[Value]) -> Table<'_, Value> {
    fn text<'a>(event: &'a Value, name: &str) -> &'a str {
        event[name].as_str().unwrap_or_default()
    }
    Table::of(events)
        .name("when", |event| text(event, "at"))
        .name("job", |event| text(event, "job_id"))
        .text("key", |event| text(event, "key"))
        .name("event", |event| text(event, "event"))
        .number("attempt", |event| {
            event["attempt"].as_u64().map_or_else(String::new, |n| n.to_string())
        })
        .text("node", |event| text(event, "node"))
        .error("error", |event| event["error"].as_str())
}
