//! The order of a listing, and what it shows, in SQL.

use crate::contract::LaneState;

/// What rows are ordered by; the number decides between equals.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Number,
    Value(&'static str),
    /// Rows that have none come first.
    Text(&'static str),
}

impl Order {
    pub(super) fn by(self, number: &str) -> String {
        match self {
            Self::Number => number.to_owned(),
            Self::Value(order) | Self::Text(order) => format!("{order}, {number}"),
        }
    }

    /// A row's place in it, as a cursor has it.
    pub(super) fn text(self) -> String {
        match self {
            Self::Number => "''".to_owned(),
            Self::Value(order) | Self::Text(order) => format!("IFNULL(CAST({order} AS CHAR), '')"),
        }
    }
}

/// The condition for lanes in a state, in SQL; both stores number the states alike.
pub(super) fn in_state(state: Option<LaneState>) -> &'static str {
    match state {
        None => "true",
        Some(LaneState::Waiting) => "st IN (0, 1)",
        Some(LaneState::Claimed) => "st = 2",
        Some(LaneState::Held) => "st = 3 AND flags & 2 = 0",
        Some(LaneState::Paused) => "st = 3 AND flags & 2 = 2",
    }
}
