//! The limits of a queue and its groups, as rows of a table.

use seriatim::{Limit, Queue, Share};

use crate::app::limits::{Usage, named};

/// Groups shown of those with settings of their own.
const GROUPS_SHOWN: usize = 20;

/// What the queue, each group or one group may use; empty: no limit.
pub(super) struct LimitRow {
    pub(super) of: String,
    /// Turns that run, if their number is limited.
    pub(super) running: String,
    pub(super) most: String,
    pub(super) rate: String,
    pub(super) burst: String,
    /// Of a group.
    pub(super) weight: String,
}

/// The rows, and the number of groups left out. None if nothing is limited.
pub(super) fn rows(queue: &Queue, usage: &Usage) -> (Vec<LimitRow>, usize) {
    let mut rows = Vec::new();
    if queue.limit.is_set() {
        rows.push(LimitRow::new("the queue".to_owned(), &queue.limit, Some(usage.of_all())));
    }
    let Some(groups) = &queue.groups else { return (rows, 0) };
    rows.push(LimitRow::of_group("each group".to_owned(), &groups.each, None));
    for name in groups.named.keys().take(GROUPS_SHOWN) {
        let (share, turns) = (groups.share(Some(name)), usage.of_group(Some(name)));
        rows.push(LimitRow::of_group(named(Some(name)), &share, Some(turns)));
    }
    (rows, groups.named.len().saturating_sub(GROUPS_SHOWN))
}

impl LimitRow {
    fn new(of: String, limit: &Limit, turns: Option<u64>) -> Self {
        let text =
            |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
        let running = turns.filter(|_| limit.running.is_some());
        Self {
            of,
            running: running.map_or_else(String::new, |turns| turns.to_string()),
            most: text(limit.running),
            rate: limit.rate.map_or_else(String::new, |rate| rate.to_string()),
            burst: text(limit.rate.map(|_| limit.burst())),
            weight: String::new(),
        }
    }

    fn of_group(of: String, share: &Share, turns: Option<u64>) -> Self {
        let weight = share.weight.unwrap_or(1).to_string();
        Self { weight, ..Self::new(of, &share.limit, turns) }
    }
}
