//! Tests of the pure part: ids, payloads, retries, durations, and what a settlement decides.
#![allow(clippy::unwrap_used)]

mod naming;
mod planning;
#[cfg(feature = "cron")]
mod schedules;
mod waiting;
