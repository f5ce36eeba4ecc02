//! `seriatim history`: the figures of the past.

use clap::Args;
use seriatim::store::Store;

use super::args::Common;
use crate::app::find;
use crate::app::history::{self, History as Figures, Span};
use crate::base::time::length;
use crate::cli::output::table::{Column, Table};
use crate::cli::output::{Failure, Terminal, say, say_json};

#[derive(Args)]
pub(crate) struct History {
    #[command(flatten)]
    common: Common,
    /// Only of this queue; default: all together
    #[arg(long)]
    queue: Option<String>,
    /// How far back
    #[arg(long, value_enum, default_value_t)]
    span: Span,
}

impl History {
    pub(crate) async fn run(self) -> Result<(), Failure> {
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
            length(std::time::Duration::from_secs(point.lag)).into(),
            number(point.jobs),
            number(point.running),
            number(point.retrying),
            number(point.dead),
        ]);
    }
    table
}
