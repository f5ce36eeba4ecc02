//! `seriatim cron`: the entries of the configuration, and when they are due.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use seriatim::{Cron, Timestamp};

use crate::config::Config;
use crate::output::{Failure, say};

/// Ticks that are shown of each entry.
const TICKS: usize = 3;

#[derive(Args)]
pub(crate) struct CronArgs {
    /// The configuration; seriatim.toml of this folder when it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl CronArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let config = Config::read(self.config.as_deref())?;
        let entries = config.cron_entries()?;
        let now = Timestamp::of_this_machine();
        if self.json {
            say(document(&entries, now).to_string());
        } else if entries.is_empty() {
            say("no [[cron]] entries in the configuration");
        } else {
            for entry in &entries {
                say(format!("{entry} -> {}: next {}", entry.queue(), ticks(entry, now).join(", ")));
            }
        }
        Ok(())
    }
}

/// The entries, as programs read them.
pub(crate) fn document(entries: &[Cron], now: Timestamp) -> Value {
    let rows = entries.iter().map(|entry| {
        json!({ "name": entry.name(), "schedule": entry.schedule(), "time_zone": entry.zone(),
                "queue": entry.queue(), "next": ticks(entry, now) })
    });
    json!({ "cron": rows.collect::<Vec<_>>() })
}

fn ticks(entry: &Cron, now: Timestamp) -> Vec<String> {
    let ticks = std::iter::successors(entry.next_after(now), |tick| entry.next_after(*tick));
    ticks.take(TICKS).map(written).collect()
}

fn written(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(time.as_micros());
    time.map(|time| time.to_string()).unwrap_or_default()
}
