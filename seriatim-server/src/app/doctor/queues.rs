//! Queues that are paused or bury many jobs.

use std::time::Duration;

use seriatim::store::QueueStats;

use super::finding::{Finding, List, Repair, Severity};
use super::look::Seen;
use crate::base::text::{count, cut};

/// Jobs that died in this time count as new.
const NEW: Duration = Duration::from_secs(3_600);
/// A morgue is nearly full from this part of its limit on.
const NEARLY_FULL_PERCENT: u64 = 80;
/// Columns shown of an error.
const ERROR_COLUMNS: usize = 120;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let paused = seen.stats.iter().filter_map(|queue| paused(queue, seen));
    let mut findings: Vec<Finding> = paused.collect();
    findings.extend(seen.stats.iter().filter_map(|queue| morgue(queue, seen)));
    findings
}

fn paused(queue: &QueueStats, seen: &Seen) -> Option<Finding> {
    // What runs goes on in spite of the pause.
    (queue.paused && queue.waiting() > 0).then(|| {
        let by = seen.paused_by(&queue.queue, |pauses| pauses.queue.as_ref());
        Finding::of_queue(
            Severity::Warning,
            &queue.queue,
            format!("is paused{by}, with {} waiting", count(queue.waiting(), "lane")),
            format!("resume it with `seriatim queues resume {}`", queue.queue),
        )
        .repair(Repair::ResumeQueue)
    })
}

fn morgue(queue: &QueueStats, seen: &Seen) -> Option<Finding> {
    if queue.dead == 0 {
        return None;
    }
    let name = &queue.queue;
    let tell = |severity, found, advice| {
        Some(Finding::of_queue(severity, name, found, advice).list(List::Morgue))
    };
    let cap = seen.queue(name).map_or(u64::MAX, |view| view.queue.retain_dead_max);
    let is_nearly_full =
        u128::from(queue.dead) * 100 >= u128::from(cap) * u128::from(NEARLY_FULL_PERCENT);
    if is_nearly_full && cap > 0 {
        return tell(
            Severity::Serious,
            format!(
                "its morgue has {} of at most {cap} dead jobs: when it is full, the oldest are deleted",
                queue.dead
            ),
            format!(
                "`seriatim morgue {name}` shows them: requeue or delete them, or raise retain_dead_max"
            ),
        );
    }
    let latest = seen.dead.iter().find(|(of, _)| of == name).map(|(_, jobs)| jobs.as_slice());
    let latest = latest.unwrap_or_default();
    let is_new = |at| seen.now.since(at) < NEW;
    let new = latest.iter().filter(|job| job.finished_at.is_some_and(is_new)).count();
    let error = latest.first().and_then(|job| job.error.as_deref()).unwrap_or("no error is known");
    let error = cut(error, ERROR_COLUMNS);
    let advice = format!(
        "`seriatim morgue {name}` shows them; when the cause is fixed, `seriatim morgue requeue {name} --all`"
    );
    if new == 0 {
        let found = format!("{} in the morgue", count(queue.dead, "job"));
        return tell(Severity::Notice, found, advice);
    }
    let more = if new == latest.len() && (new as u64) < queue.dead { "at least " } else { "" };
    let found = format!(
        "{more}{} died in the last hour; the latest error: {error}",
        count(new as u64, "job"),
    );
    tell(Severity::Warning, found, advice).map(|finding| finding.repair(Repair::Requeue))
}
