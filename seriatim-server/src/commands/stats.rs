//! `seriatim stats`: the numbers of all queues.

use clap::Args;
use serde_json::{Map, Value, json};
use seriatim::store::QueueStats;

use super::args::StoreArg;
use crate::output::{Failure, say};

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
        say(table(&stats));
        Ok(())
    }
}

/// Lowkiq's shape (L17), with more in it.
fn as_json(stats: &[QueueStats]) -> Value {
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

fn table(stats: &[QueueStats]) -> String {
    let widest = stats.iter().map(|queue| queue.queue.len()).max().unwrap_or(0).max(5);
    let heads = ["jobs", "lanes", "running", "retries", "dead", "processed", "failed", "lag"];
    let mut text = format!("{:<widest$}  {:<10}", "queue", "mode");
    for head in heads {
        text += &format!(" {head:>9}");
    }
    for queue in stats {
        let mode = queue.mode.map_or("", |mode| mode.as_str());
        text += &format!("\n{:<widest$}  {mode:<10}", queue.queue);
        let numbers = [
            queue.jobs,
            queue.lanes,
            queue.running,
            queue.retries,
            queue.dead,
            queue.processed,
            queue.failed,
        ];
        for number in numbers {
            text += &format!(" {number:>9}");
        }
        text += &format!(" {:>8.1}s", queue.lag.as_secs_f64());
        if queue.paused {
            text += "  paused";
        }
    }
    text
}
