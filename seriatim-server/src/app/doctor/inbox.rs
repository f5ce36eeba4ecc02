//! Tasks that SQL sessions inserted and that are no jobs yet.

use std::time::Duration;

use seriatim::limits::PAGE_ROWS_MAX;

use super::finding::{Finding, Severity};
use super::look::Seen;
use crate::base::text::{count, one_line};
use crate::base::time::length;

/// Rows that wait for less are being pushed.
const PATIENCE: Duration = Duration::from_secs(60);
const ABOUT: &str = "inbox";

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    waiting(seen).into_iter().chain(refused(seen)).collect()
}

fn waiting(seen: &Seen) -> Option<Finding> {
    let since = seen.now.since(seen.inbox.waits_since?);
    (since > PATIENCE).then(|| {
        Finding::new(
            Severity::Serious,
            ABOUT,
            format!("a row that an SQL session inserted has waited for {}", length(since)),
            "start a node (`seriatim serve`) on this store; if one runs, see its log, and whether a transaction has the row locked",
        )
    })
}

fn refused(seen: &Seen) -> Option<Finding> {
    let rows = &seen.inbox.refused;
    let last = rows.first()?;
    let many = if rows.len() == PAGE_ROWS_MAX { "at least " } else { "" };
    let names = [("queue", &last.queue), ("key", &last.key)];
    let names = names
        .into_iter()
        .filter_map(|(name, text)| Some(format!(", {name} {:?}", one_line(text.as_deref()?))));
    let found = format!(
        "{many}{} refused; the latest is row {}{}: {}",
        count(rows.len() as u64, "row"),
        last.row,
        names.collect::<String>(),
        one_line(&last.why)
    );
    let advice = "correct the row in the inbox and set its column refused to NULL, or delete it: docs/sql.md";
    Some(Finding::new(Severity::Warning, ABOUT, found, advice))
}
