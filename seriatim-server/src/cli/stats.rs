//! `seriatim stats`: the figures of all queues.

use clap::Args;
use serde_json::{Map, Value, json};

use super::args::StoreArg;
use crate::app::figures::{ALL, Figures};
use crate::base::time::length;
use crate::cli::output::table::{Cell, Column, Table, Tone};
use crate::cli::output::{Failure, Terminal, say};

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
            say(as_json(&figures));
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

/// Lowkiq's shape (L17), with all figures in it. As there, `length` counts ids that wait: no payloads,
/// and nothing that is claimed.
pub(crate) fn as_json(all: &[Figures]) -> Value {
    let mut by_worker = Map::new();
    let mut total = Map::new();
    for figure in ALL {
        let sum: u64 = all.iter().map(figure.of).sum();
        total.insert(figure.name.to_owned(), sum.into());
    }
    let lag = all.iter().map(|of| of.stats.lag.as_secs_f64()).fold(0.0, f64::max);
    total.insert("lag".to_owned(), lag.into());
    for of in all {
        let mut numbers = of.numbers();
        as_in_lowkiq(&mut numbers);
        numbers.insert("mode".to_owned(), json!(of.stats.mode));
        numbers.insert("paused".to_owned(), of.stats.paused.into());
        by_worker.insert(of.stats.queue.to_string(), numbers.into());
    }
    as_in_lowkiq(&mut total);
    json!({ "total": total, "by_worker": by_worker })
}

/// The same under the names that Lowkiq has for them.
fn as_in_lowkiq(numbers: &mut Map<String, Value>) {
    for (name, figure) in [("length", "waiting"), ("morgue_length", "dead")] {
        let number = numbers[figure].clone();
        numbers.insert(name.to_owned(), number);
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
