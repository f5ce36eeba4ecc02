//! `seriatim stats`: the figures of all queues.

use clap::Args;

use super::args::StoreArg;
use crate::app::figures::{Figures, statistics};
use crate::base::time::length;
use crate::cli::output::table::{Cell, Column, Table, Tone};
use crate::cli::output::{Failure, Terminal, say, say_json};

#[derive(Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    store: StoreArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let figures = self.store.using(async |store| Ok(Figures::all(&*store).await?)).await?;
        if self.json {
            say_json(&statistics(&figures, None));
            return Ok(());
        }
        if figures.is_empty() {
            say(format!("no queues in {}", self.store.shown()?));
            return Ok(());
        }
        say(table(&figures).render(Terminal::of_stdout()));
        Ok(())
    }
}

fn table(all: &[Figures]) -> Table {
    let mut table = Table::new(&[
        ("queue", Column::Name),
        ("mode", Column::Name),
        ("jobs", Column::Number),
        ("waiting", Column::Number),
        ("running", Column::Number),
        ("prefetched", Column::Number),
        ("retrying", Column::Number),
        ("dead", Column::Number),
        ("processed", Column::Number),
        ("failed", Column::Number),
        ("lag", Column::Number),
        ("", Column::Text),
    ]);
    for of in all {
        let queue = &of.stats;
        table.row(vec![
            (&*queue.queue).into(),
            queue.mode.map_or("", |mode| mode.as_str()).into(),
            queue.jobs.to_string().into(),
            queue.waiting().to_string().into(),
            of.running().to_string().into(),
            of.prefetched.to_string().into(),
            Cell::trouble(queue.retrying, Tone::Warn),
            Cell::trouble(queue.dead, Tone::Bad),
            queue.processed.to_string().into(),
            queue.failed.to_string().into(),
            length(queue.lag).into(),
            Cell::toned(if queue.paused { "paused" } else { "" }, Tone::Warn),
        ]);
    }
    table
}
