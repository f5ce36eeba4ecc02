//! Lanes that run too long, fail repeatedly, or are held or paused.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim::store::{LaneStage, LaneState, QueueView};
use seriatim::{Mode, Timestamp};

use super::finding::{Finding, List, Repair, Severity};
use super::look::{FAILED_MAX, LANES_MAX, RUNNING_MAX, Seen};
use crate::app::running::{Running, age, stands_out, usual_ages};
use crate::base::text::{cut, one_line, operand};
use crate::base::time::length;

/// A lane with at least this many retries fails repeatedly.
const RETRIES_MANY: i32 = 5;
/// A retry at least this far off is a finding if other jobs of its key wait for it.
const FAR: Duration = Duration::from_secs(3_600);
/// Lanes named for each kind and queue; the others are counted.
const NAMED_MAX: usize = 3;
/// Columns shown of an error.
const ERROR_COLUMNS: usize = 120;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let usual = usual_ages(&seen.running, seen.now);
    let is_slow = |one: &&Running| stands_out(age(one, seen.now), usual[&one.queue]);
    let slow = grouped(seen.running.iter().filter(is_slow));
    let mut findings: Vec<Finding> =
        slow.into_iter().map(|(queue, lanes)| tell_slow(queue, &lanes, seen.now)).collect();
    let held = seen.troubled.iter().filter(|one| one.lane.state == LaneState::Held);
    findings.extend(grouped(held).into_iter().map(|(queue, lanes)| tell_held(queue, &lanes)));
    let paused = seen.troubled.iter().filter(|one| one.lane.state == LaneState::Paused);
    findings
        .extend(grouped(paused).into_iter().map(|(queue, lanes)| tell_paused(queue, &lanes, seen)));
    let failing = seen
        .troubled
        .iter()
        .filter(|one| one.lane.retry_count >= RETRIES_MANY && one.lane.state != LaneState::Held);
    findings.extend(grouped(failing).into_iter().map(|(queue, lanes)| tell_failing(queue, &lanes)));
    let blocking = seen.troubled.iter().filter(|one| blocks(one, seen));
    findings.extend(
        grouped(blocking).into_iter().map(|(queue, lanes)| tell_blocking(queue, &lanes, seen.now)),
    );
    findings
}

/// Whether other jobs of its key wait long for its retry, which [`tell_failing`] does not tell.
fn blocks(one: &Running, seen: &Seen) -> bool {
    let lane = &one.lane;
    let in_order = |view: &QueueView| matches!(view.queue.mode, Mode::Accumulate | Mode::Fifo);
    let waits_behind = seen.queue(&one.queue).is_some_and(in_order);
    let is_new = (0..RETRIES_MANY).contains(&lane.retry_count);
    let is_far = lane.due.is_some_and(|due| due.since(seen.now) >= FAR);
    waits_behind && is_new && is_far && lane.jobs > 1 && lane.state == LaneState::Waiting
}

fn grouped<'a>(lanes: impl Iterator<Item = &'a Running>) -> BTreeMap<&'a str, Vec<&'a Running>> {
    let mut groups: BTreeMap<&str, Vec<&Running>> = BTreeMap::new();
    for lane in lanes {
        groups.entry(&lane.queue).or_default().push(lane);
    }
    groups
}

/// Behind a colon some of their keys, names for lanes without a key; nothing of a key that [`lanes_that`] names.
fn names(lanes: &[&Running]) -> String {
    if key(lanes).is_some() {
        return String::new();
    }
    let name = |one: &&Running| match one.lane.key.as_deref() {
        Some(key) => format!("{:?}", one_line(key)),
        None => one.lane.lane.to_string(),
    };
    let named: Vec<String> = lanes.iter().take(NAMED_MAX).map(name).collect();
    match lanes.len().saturating_sub(NAMED_MAX) {
        0 => format!(": {}", named.join(", ")),
        more => format!(": {} and {more} more", named.join(", ")),
    }
}

/// Of a single lane.
fn key<'a>(lanes: &[&'a Running]) -> Option<&'a str> {
    if let [one] = lanes { one.lane.key.as_deref() } else { None }
}

/// The key as an argument of a command; `KEY` for several, and for one that cannot be copied from a line.
fn word(lanes: &[&Running]) -> String {
    let is_plain = |key: &&str| !key.contains('`') && one_line(key) == *key;
    match key(lanes).filter(is_plain) {
        Some(key) => operand(key),
        None => "KEY".to_owned(),
    }
}

fn tell(
    severity: Severity,
    queue: &str,
    lanes: &[&Running],
    list: List,
    (found, advice): (String, String),
) -> Finding {
    Finding::of_queue(severity, queue, found, advice).key(key(lanes)).list(list)
}

fn tell_slow(queue: &str, lanes: &[&Running], now: Timestamp) -> Finding {
    let longest = lanes.iter().map(|one| age(one, now)).max().unwrap_or_default();
    let found = format!(
        "{} far longer than others, up to {}{}",
        lanes_that(lanes, RUNNING_MAX, "runs", "run"),
        length(longest),
        names(lanes)
    );
    let advice = format!(
        "`seriatim lanes show {queue} {}` shows its progress and jobs, `seriatim jobs cancel ID` ends it; set a `timeout` to end such turns",
        word(lanes)
    );
    let list = List::Lanes(LaneStage::Running);
    tell(Severity::Warning, queue, lanes, list, (found, advice))
}

fn tell_held(queue: &str, lanes: &[&Running]) -> Finding {
    let found = format!(
        "{}, all retries used up{}",
        lanes_that(lanes, LANES_MAX, "is held", "are held"),
        names(lanes)
    );
    let key = word(lanes);
    let advice = format!(
        "check its error (`seriatim lanes show {queue} {key}`), then `seriatim lanes retry {queue} {key}`"
    );
    tell(Severity::Serious, queue, lanes, List::Lanes(LaneStage::Held), (found, advice))
        .repair(Repair::Retry)
}

fn tell_paused(queue: &str, lanes: &[&Running], seen: &Seen) -> Finding {
    let by = match key(lanes) {
        Some(_) => seen.paused_by(queue, |pauses| pauses.key.as_ref()),
        None => String::new(),
    };
    let found =
        format!("{}{by}{}", lanes_that(lanes, LANES_MAX, "is paused", "are paused"), names(lanes));
    let which = if lanes.len() == 1 { "it" } else { "each" };
    let advice = format!("resume {which} with `seriatim lanes resume {queue} {}`", word(lanes));
    tell(Severity::Warning, queue, lanes, List::Lanes(LaneStage::Paused), (found, advice))
        .repair(Repair::Resume)
}

fn tell_failing(queue: &str, lanes: &[&Running]) -> Finding {
    let most = lanes.iter().map(|one| one.lane.retry_count).max().unwrap_or_default();
    let found = format!(
        "{} {} times{}; {}",
        lanes_that(lanes, FAILED_MAX, "failed", "failed up to"),
        most + 1,
        names(lanes),
        error_of(lanes)
    );
    let advice = format!(
        "fix the cause, then `seriatim lanes retry {queue} {0}` tries again at once; `seriatim lanes bury {queue} {0}` gives up",
        word(lanes)
    );
    let list = List::Failing(RETRIES_MANY);
    let finding = tell(Severity::Warning, queue, lanes, list, (found, advice));
    let all_wait = lanes.iter().all(|one| one.lane.state == LaneState::Waiting);
    if all_wait { finding.repair(Repair::Retry) } else { finding }
}

fn tell_blocking(queue: &str, lanes: &[&Running], now: Timestamp) -> Finding {
    let latest = lanes.iter().filter_map(|one| one.lane.due).max().unwrap_or(now);
    let jobs: u64 = lanes.iter().map(|one| one.lane.jobs - 1).sum();
    let found = format!(
        "{} for a retry in {}, and {} for it{}; {}",
        lanes_that(lanes, FAILED_MAX, "waits", "wait"),
        length(latest.since(now)),
        if jobs == 1 { "1 other job waits".to_owned() } else { format!("{jobs} other jobs wait") },
        names(lanes),
        error_of(lanes)
    );
    let advice = format!(
        "fix the cause, then `seriatim lanes retry {queue} {}` tries again at once",
        word(lanes)
    );
    let list = List::Blocking(now + FAR);
    tell(Severity::Warning, queue, lanes, list, (found, advice)).repair(Repair::Retry)
}

/// What is said of a key by its name, and of others by their number. Of each queue `read` at most were read.
fn lanes_that(lanes: &[&Running], read: usize, one: &str, many: &str) -> String {
    match (key(lanes), lanes.len()) {
        (Some(key), _) => format!("{:?} {one}", one_line(key)),
        (None, 1) => format!("1 lane {one}"),
        (None, several) if several >= read => format!("at least {several} lanes {many}"),
        (None, several) => format!("{several} lanes {many}"),
    }
}

/// The error of the first one.
fn error_of(lanes: &[&Running]) -> String {
    let error = lanes.first().and_then(|one| one.lane.error.as_deref());
    cut(error.unwrap_or("no error is known"), ERROR_COLUMNS)
}
