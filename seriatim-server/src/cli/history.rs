//! `seriatim history`: the figures of the past.

use std::time::Duration;

use clap::Args;
use seriatim::store::Store;

use super::args::Common;
use crate::app::find;
use crate::app::history::{self, History as Figures, Span, Tasks};
use crate::base::time::{length, run_time};
use crate::cli::output::table::{Column, Table};
use crate::cli::output::{Failure, Terminal, say, say_json};

#[derive(Args)]
pub(crate) struct History {
    #[command(flatten)]
    common: Common,
    /// Only of this queue; default: all together
    #[arg(long)]
    queue: Option<String>,
    /// How long the turns of the queue and of each of its tasks took
    #[arg(long, requires = "queue")]
    tasks: bool,
    /// How far back
    #[arg(long, value_enum, default_value_t)]
    span: Span,
}

impl History {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if let (true, Some(queue)) = (self.tasks, &self.queue) {
            return self.show_tasks(queue).await;
        }
        let read = async |store: seriatim::SharedStore| self.read(&*store).await;
        let figures = self.common.store.using(read).await?;
        if self.common.json {
            say_json(&figures);
        } else if figures.points.is_empty() {
            say("no figures: `seriatim serve` writes them each minute, while there is work");
        } else {
            say(table(&figures).render(Terminal::of_stdout()));
        }
        Ok(())
    }

    async fn show_tasks(&self, queue: &str) -> Result<(), Failure> {
        let read = async |store: seriatim::SharedStore| {
            find::queue(&*store, queue).await?;
            let now = store.now().await?;
            Ok(history::tasks(&*store, queue, self.span, now).await?)
        };
        let found = self.common.store.using(read).await?;
        if self.common.json {
            say_json(&found);
        } else if found.all.is_none() && found.tasks.is_empty() {
            say("no figures: `seriatim serve` writes them each minute");
        } else {
            say(table_of_tasks(&found).render(Terminal::of_stdout()));
        }
        Ok(())
    }

    async fn read(&self, store: &dyn Store) -> Result<Figures, Failure> {
        if let Some(queue) = &self.queue {
            find::queue(store, queue).await?;
        }
        Ok(history::document(store, self.queue.as_deref(), self.span).await?)
    }
}

fn table(figures: &Figures) -> Table {
    let mut table = Table::new(&[
        ("from", Column::Name),
        ("done", Column::Number),
        ("failed", Column::Number),
        ("lag", Column::Number),
        ("jobs", Column::Number),
        ("running", Column::Number),
        ("retrying", Column::Number),
        ("dead", Column::Number),
    ]);
    for dated in &figures.points {
        let point = &dated.point;
        let number = |number: u64| number.to_string().into();
        table.row(vec![
            crate::base::time::absolute(dated.at.0).into(),
            number(point.done),
            number(point.failed),
            length(Duration::from_secs(point.lag)).into(),
            number(point.jobs),
            number(point.running),
            number(point.retrying),
            number(point.dead),
        ]);
    }
    table
}

fn table_of_tasks(found: &Tasks) -> Table {
    let mut table = Table::new(&[
        ("task", Column::Name),
        ("turns", Column::Number),
        ("failed", Column::Number),
        ("mean", Column::Number),
        ("p50", Column::Number),
        ("p95", Column::Number),
        ("longest", Column::Number),
    ]);
    let each = found.tasks.iter().map(|of| (of.task.as_str(), &of.all));
    for (task, times) in found.all.iter().map(|all| ("all turns", all)).chain(each) {
        let part = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), run_time).into();
        table.row(vec![
            task.into(),
            times.turns.to_string().into(),
            times.failed.to_string().into(),
            run_time(times.mean).into(),
            part(times.p50),
            part(times.p95),
            run_time(times.longest).into(),
        ]);
    }
    table
}
