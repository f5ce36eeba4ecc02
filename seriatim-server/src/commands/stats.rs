//! `seriatim stats`: the numbers of all queues.

use clap::Args;
use serde_json::{Map, Value, json};
use seriatim::store::QueueStats;

use super::args::StoreArg;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::time::length;
use crate::output::{Failure, Terminal, say};

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
        let stats = self.store.using(async |store| Ok(store.stats(None).await?)).await?;
        if self.json {
            say(as_json(&stats));
            return Ok(());
        }
        if stats.is_empty() {
            say(format!("no queues in {}", self.store.shown()?));
            return Ok(());
        }
        say(table(&stats).render(Terminal::of_stdout()));
        Ok(())
    }
}

/// Lowkiq's shape (L17), with more in it.
pub(crate) fn as_json(stats: &[QueueStats]) -> Value {
    let mut by_worker = Map::new();
    let (mut length, mut morgue, mut lag) = (0, 0, 0.0_f64);
    for queue in stats {
        (length, morgue) = (length + queue.jobs, morgue + queue.dead);
        lag = lag.max(queue.lag.as_secs_f64());
        let numbers = json!({
            "length": queue.jobs, "morgue_length": queue.dead, "lag": queue.lag.as_secs_f64(),
            "mode": queue.mode, "paused": queue.paused, "lanes": queue.lanes, "running": queue.running,
            "retries": queue.retries, "processed": queue.processed, "failed": queue.failed,
        });
        by_worker.insert(queue.queue.to_string(), numbers);
    }
    let total = json!({ "length": length, "morgue_length": morgue, "lag": lag });
    json!({ "total": total, "by_worker": by_worker })
}

fn table(stats: &[QueueStats]) -> Table {
    let mut table = Table::new(&[
        ("queue", Column::Name),
        ("mode", Column::Name),
        ("jobs", Column::Number),
        ("lanes", Column::Number),
        ("running", Column::Number),
        ("retries", Column::Number),
        ("dead", Column::Number),
        ("processed", Column::Number),
        ("failed", Column::Number),
        ("lag", Column::Number),
        ("", Column::Text),
    ]);
    for queue in stats {
        table.row(vec![
            (&*queue.queue).into(),
            queue.mode.map_or("", |mode| mode.as_str()).into(),
            queue.jobs.to_string().into(),
            queue.lanes.to_string().into(),
            queue.running.to_string().into(),
            Cell::trouble(queue.retries, Tone::Warn),
            Cell::trouble(queue.dead, Tone::Bad),
            queue.processed.to_string().into(),
            queue.failed.to_string().into(),
            length(queue.lag).into(),
            Cell::toned(if queue.paused { "paused" } else { "" }, Tone::Warn),
        ]);
    }
    table
}
