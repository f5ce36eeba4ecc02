//! What is pushed by the clock, and when next.

use serde_json::{Value, json};
use seriatim::{Cron, Timestamp};

use crate::base::time::absolute;

/// Ticks that are shown of each entry.
const TICKS: usize = 3;

/// The entries, as programs read them.
pub(crate) fn document(entries: &[Cron], now: Timestamp) -> Value {
    let rows = entries.iter().map(|entry| {
        json!({ "name": entry.name(), "schedule": entry.schedule(), "time_zone": entry.zone(),
                "queue": entry.queue(), "next": ticks(entry, now) })
    });
    json!({ "cron": rows.collect::<Vec<_>>() })
}

pub(crate) fn ticks(entry: &Cron, now: Timestamp) -> Vec<String> {
    let ticks = std::iter::successors(entry.next_after(now), |tick| entry.next_after(*tick));
    ticks.take(TICKS).map(absolute).collect()
}
