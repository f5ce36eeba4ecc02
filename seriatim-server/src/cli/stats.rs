//! `seriatim stats`: the figures of all queues.

use clap::Args;

use super::args::StoreArg;
use crate::app::figures::{Figures, statistics};
use crate::base::time::length;
use crate::cli::output::{Cell, Result, Table, Tone, tell};

#[derive(Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    store: StoreArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) async fn run(self) -> Result<()> {
        let figures = self.store.using(async |store| Ok(Figures::all(&*store).await?)).await?;
        let none = format!("no queues in {}", self.store.shown()?);
        tell(self.json, &statistics(&figures, None), table(&figures).or(none));
        Ok(())
    }
}

fn table(all: &[Figures]) -> Table<'_, Figures> {
    let paused = |of: &Figures| if of.stats.paused { "paused" } else { "" };
    Table::of(all)
        .name("queue", |of| &*of.stats.queue)
        .name("mode", |of| of.stats.mode.map_or("", |mode| mode.as_str()))
        .number("jobs", |of| of.stats.jobs)
        .number("waiting", |of| of.stats.waiting())
        .number("running", Figures::running)
        .number("prefetched", |of| of.prefetched)
        .trouble("retrying", Tone::Warn, |of| of.stats.retrying)
        .trouble("dead", Tone::Bad, |of| of.stats.dead)
        .number("processed", |of| of.stats.processed)
        .number("failed", |of| of.stats.failed)
        .number("lag", |of| length(of.stats.lag))
        .text("", |of| Cell::toned(paused(of), Tone::Warn))
}
