//! The order of a listing, in SQL.

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
