//! `seriatim history`: the figures of the past.

use std::time::Duration;

use clap::Args;
use seriatim::store::Store;

use super::args::Common;
use crate::app::find;
use crate::app::history::{self, Dated, History as Figures, Span, Tasks};
use crate::base::time::{absolute, length, run_time};
use crate::cli::output::{Result, Table, tell};
use crate::protocol::document::Times;

#[derive(Args)]
pub(crate) struct History {
    #[command(flatten)]
    common: Common,
    /// Only this queue. Default: all queues together
    #[arg(long)]
    queue: Option<String>,
    /// Show run times instead: of the queue, and of each of its tasks
    #[arg(long, requires = "queue")]
    tasks: bool,
    /// Time span
    #[arg(long, value_enum, default_value_t)]
    span: Span,
}

impl History {
    pub(crate) async fn run(self) -> Result<()> {
        if let (true, Some(queue)) = (self.tasks, &self.queue) {
            return self.show_tasks(queue).await;
        }
        let read = async |store: seriatim::SharedStore| self.read(&*store).await;
        let figures = self.common.store.using(read).await?;
        let none = "no metrics: `seriatim serve` writes them each minute, while there is work";
        tell(self.common.json, &figures, table(&figures).or(none));
        Ok(())
    }

    async fn show_tasks(&self, queue: &str) -> Result<()> {
        let read = async |store: seriatim::SharedStore| {
            find::queue(&*store, queue).await?;
            let now = store.now().await?;
            Ok(history::tasks(&*store, queue, self.span, now).await?)
        };
        let found = self.common.store.using(read).await?;
        let none = "no metrics: `seriatim serve` writes them each minute";
        tell(self.common.json, &found, table_of_tasks(&times(&found)).or(none));
        Ok(())
    }

    async fn read(&self, store: &dyn Store) -> Result<Figures> {
        if let Some(queue) = &self.queue {
            find::queue(store, queue).await?;
        }
        Ok(history::document(store, self.queue.as_deref(), self.span).await?)
    }
}

fn table(figures: &Figures) -> Table<'_, Dated> {
    Table::of(&figures.points)
        .name("from", |of| absolute(of.at.0))
        .number("done", |of| of.point.done)
        .number("failed", |of| of.point.failed)
        .number("lag", |of| length(Duration::from_secs(of.point.lag)))
        .number("jobs", |of| of.point.jobs)
        .number("running", |of| of.point.running)
        .number("retrying", |of| of.point.retrying)
        .number("dead", |of| of.point.dead)
}

/// Of all turns, then of those of each task.
fn times(found: &Tasks) -> Vec<(&str, &Times)> {
    let each = found.tasks.iter().map(|of| (of.task.as_str(), &of.all));
    found.all.iter().map(|all| ("all turns", all)).chain(each).collect()
}

fn table_of_tasks<'a>(times: &'a [(&str, &Times)]) -> Table<'a, (&'a str, &'a Times)> {
    let part = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), run_time);
    Table::of(times)
        .name("task", |(task, _)| task)
        .number("turns", |(_, of)| of.turns)
        .number("failed", |(_, of)| of.failed)
        .number("mean", |(_, of)| run_time(of.mean))
        .number("p50", |(_, of)| part(of.p50))
        .number("p95", |(_, of)| part(of.p95))
        .number("longest", |(_, of)| run_time(of.longest))
}
