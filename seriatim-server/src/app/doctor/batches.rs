//! Batches that stay unsealed, and callbacks that were not pushed.

use std::time::Duration;

use seriatim::store::BatchView;

use super::finding::{Finding, Severity};
use super::look::Seen;
use crate::base::text::{count, one_line, shell_word};
use crate::base::time::relative;

/// Batches that are not sealed for less are being filled.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    unsealed(seen).into_iter().chain(uncalled(seen)).collect()
}

fn unsealed(seen: &Seen) -> Option<Finding> {
    let is_old = |batch: &&BatchView| {
        batch.ended_at.is_none() && !batch.sealed && seen.now.since(batch.opened_at) > PATIENCE
    };
    let old: Vec<&BatchView> = seen.batches.iter().filter(is_old).collect();
    let first = old.last()?;
    let id = one_line(&first.id);
    let word = shell_word(&id);
    let dashes = if first.id.starts_with('-') { "-- " } else { "" };
    Some(Finding::new(
        Severity::Notice,
        "batches",
        format!(
            "{} not sealed for more than a day; batch {id} was opened {}",
            count(old.len() as u64, "batch"),
            relative(seen.now, first.opened_at)
        ),
        format!(
            "if all its jobs are pushed, seal it; otherwise its callback is never pushed: `seriatim batches seal {dashes}{word}`; `seriatim batches list --live` lists the others"
        ),
    ))
}

fn uncalled(seen: &Seen) -> Option<Finding> {
    let uncalled: Vec<(&BatchView, &String)> =
        (seen.batches.iter()).filter_map(|batch| Some((batch, batch.refused.as_ref()?))).collect();
    let (batch, why) = uncalled.first()?;
    Some(Finding::new(
        Severity::Warning,
        "batches",
        format!(
            "{}{} ended without a callback; the latest is {}: {}",
            if seen.older_batches { "at least " } else { "" },
            count(uncalled.len() as u64, "batch"),
            one_line(&batch.id),
            one_line(why)
        ),
        "push the callback's job yourself; a batch is forgotten seven days after its end",
    ))
}
