//! Cron entries and their next times.

use seriatim::{Cron, Timestamp};

use crate::base::time::absolute;
use crate::protocol::document::{CronEntries, CronEntry};

/// Times shown for each entry.
const TICKS: usize = 3;

/// The entries as a JSON document.
pub(crate) fn document(entries: &[Cron], now: Timestamp) -> CronEntries {
    let entry = |entry: &Cron| CronEntry {
        name: entry.name().to_owned(),
        schedule: entry.schedule().to_owned(),
        time_zone: entry.zone().to_owned(),
        queue: entry.queue().to_owned(),
        next: ticks(entry, now),
    };
    CronEntries { cron: entries.iter().map(entry).collect() }
}

pub(crate) fn ticks(entry: &Cron, now: Timestamp) -> Vec<String> {
    let ticks = std::iter::successors(entry.next_after(now), |tick| entry.next_after(*tick));
    ticks.take(TICKS).map(absolute).collect()
}
