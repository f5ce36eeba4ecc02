//! Tests of the model: ids, payloads, retries, durations, planned settlements, and parsers under fuzz.

mod fuzz;
mod naming;
mod planning;
#[cfg(feature = "cron")]
mod schedules;
mod waiting;
