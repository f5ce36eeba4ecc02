//! Flags of listings of jobs.

use clap::Args;

use crate::app::job_filters::{Filters, TABLE_PAYLOAD_BYTES_MAX};
use crate::app::lane_pages::{SCAN_DEFAULT, SCAN_MAX};

/// Which jobs.
#[derive(Args)]
pub(super) struct WhichArgs {
    /// Only of this key
    #[arg(long, default_value = "", hide_default_value = true)]
    key: String,
    /// Only jobs whose key has this prefix
    #[arg(long, value_name = "START", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Only of this task
    #[arg(long, default_value = "", hide_default_value = true)]
    task: String,
    /// Only jobs with this text in their last error
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    error: String,
    /// Only jobs with this text in their payload or their last error
    #[arg(long, default_value = "", hide_default_value = true)]
    text: String,
    /// Only jobs due (or ended) at or after this time: a time, or 2h for two hours ago
    #[arg(
        long,
        visible_alias = "since",
        value_name = "TIME",
        default_value = "",
        hide_default_value = true
    )]
    from: String,
    /// Only jobs due (or ended) at or before this time
    #[arg(
        long,
        visible_alias = "until",
        value_name = "TIME",
        default_value = "",
        hide_default_value = true
    )]
    to: String,
}

/// Which jobs are listed.
#[derive(Args)]
pub(super) struct FilterArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Leave out longer payloads. Default: 16384 in a table, no limit with --json
    #[arg(long, value_name = "N")]
    payload_bytes_max: Option<usize>,
    /// Maximum number of jobs to read to find matches
    #[arg(long, value_name = "N", default_value_t = SCAN_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(1..=SCAN_MAX as i64))]
    scan_max: u32,
}

/// What is said of an empty list of dead jobs: with filters there may be others.
pub(super) fn no_dead_jobs(queue: Option<&str>, filters: Filters<'_>) -> String {
    let of = queue.map(|queue| format!(" of {queue}")).unwrap_or_default();
    format!("no dead jobs{of}{}", if filters.is_any() { " match" } else { "" })
}

impl WhichArgs {
    pub(super) fn given(&self) -> Filters<'_> {
        Filters {
            key: &self.key,
            prefix: &self.prefix,
            task: &self.task,
            error: &self.error,
            text: &self.text,
            from: &self.from,
            to: &self.to,
        }
    }
}

impl FilterArgs {
    pub(super) fn given(&self) -> Filters<'_> {
        self.which.given()
    }

    pub(super) fn scan_max(&self) -> usize {
        self.scan_max as usize
    }

    /// The longest payload to read.
    pub(super) fn payload_bytes_max(&self, json: bool) -> Option<usize> {
        self.payload_bytes_max.or((!json).then_some(TABLE_PAYLOAD_BYTES_MAX))
    }
}
