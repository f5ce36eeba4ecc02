//! Tests of the pure part: ids, payloads, retries, durations, what a settlement decides, and readers under fuzz.
#![allow(clippy::unwrap_used)]

mod fuzz;
mod naming;
mod planning;
#[cfg(feature = "cron")]
mod schedules;
mod waiting;
