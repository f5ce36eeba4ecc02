//! SQL for the filters of a listing of lanes. Both stores that use it name the columns of lanes alike.

use crate::contract::{LaneQuery, LaneStage, behind};
use crate::model::Timestamp;

/// What differs between the stores.
pub(super) struct Dialect<'a> {
    /// The column of the key.
    pub(super) key: &'static str,
    /// The condition for claimed lanes.
    pub(super) claimed: &'a str,
    /// A text as a literal.
    pub(super) text: fn(&str) -> String,
}

/// The condition for lanes that fit the query, apart from its key, its node and the range of its order.
pub(super) fn fits(query: &LaneQuery, now: Timestamp, dialect: &Dialect<'_>) -> String {
    let Dialect { key, claimed, text } = dialect;
    let mut all = Vec::new();
    if let Some(prefix) = query.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        all.push(format!("{key} IS NOT NULL AND {key} >= {}", text(prefix)));
        all.extend(behind(prefix).map(|end| format!("{key} < {}", text(&end))));
    }
    if !query.stages.is_empty() {
        let stages: Vec<String> =
            query.stages.iter().map(|stage| in_stage(*stage, claimed, now)).collect();
        all.push(format!("({})", stages.join(" OR ")));
    }
    all.extend(query.due_from.map(|from| format!("due >= {}", from.as_micros())));
    all.extend(query.due_to.map(|to| format!("due <= {}", to.as_micros())));
    all.extend(query.retries_min.map(|least| format!("retry >= {least}")));
    if all.is_empty() { "true".to_owned() } else { all.join(" AND ") }
}

fn in_stage(stage: LaneStage, claimed: &str, now: Timestamp) -> String {
    let waits = format!("st IN (0, 1) AND NOT ({claimed})");
    match stage {
        LaneStage::Ready => format!("{waits} AND retry < 0 AND due <= {}", now.as_micros()),
        LaneStage::Scheduled => format!("{waits} AND retry < 0 AND due > {}", now.as_micros()),
        LaneStage::Retrying => format!("{waits} AND retry >= 0"),
        LaneStage::Running => claimed.to_owned(),
        LaneStage::Held => "st = 3 AND flags & 2 = 0".to_owned(),
        LaneStage::Paused => "st = 3 AND flags & 2 = 2".to_owned(),
        LaneStage::Crashed => "crashes > 0".to_owned(),
    }
}
