//! SQL for the order and the filter of listings.

use crate::contract::LaneState;

/// The sort key of rows; the row's number breaks ties.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Number,
    Value(&'static str),
    /// Rows without a value come first.
    Text(&'static str),
}

impl Order {
    pub(super) fn by(self, number: &str) -> String {
        match self {
            Self::Number => number.to_owned(),
            Self::Value(order) | Self::Text(order) => format!("{order}, {number}"),
        }
    }

    /// The row's sort value, as a cursor stores it.
    pub(super) fn text(self) -> String {
        match self {
            Self::Number => "''".to_owned(),
            Self::Value(order) | Self::Text(order) => format!("IFNULL(CAST({order} AS CHAR), '')"),
        }
    }
}

/// The SQL condition for lanes in a state. Both stores number the states alike.
pub(super) fn in_state(state: Option<LaneState>) -> &'static str {
    match state {
        None => "true",
        Some(LaneState::Waiting) => "st IN (0, 1)",
        Some(LaneState::Claimed) => "st = 2",
        Some(LaneState::Held) => "st = 3 AND flags & 2 = 0",
        Some(LaneState::Paused) => "st = 3 AND flags & 2 = 2",
    }
}
