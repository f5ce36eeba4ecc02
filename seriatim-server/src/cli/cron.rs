//! `seriatim cron`: the entries of the configuration, and when they are due.

use clap::Args;
use serde_json::{Value, json};
use seriatim::{Cron, Timestamp};

use super::args::Common;
use crate::cli::output::{Failure, say};

/// Ticks that are shown of each entry.
const TICKS: usize = 3;

#[derive(Args)]
pub(crate) struct CronArgs {
    #[command(flatten)]
    common: Common,
}

impl CronArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let config = self.common.store.config()?;
        let entries = config.cron_entries()?;
        let now = Timestamp::of_this_machine();
        if self.common.json {
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
