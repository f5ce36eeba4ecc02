//! The order of rows: SQL for that of listings, and keys that sort as numbers do.

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

/// The time of the last of the newest N ended jobs before a time; null if there is none. An index on `at` has it, but
/// no index has their full order, in which jobs of one time follow their numbers. `from` is the table with the
/// conditions.
pub(super) fn last_of_newest(from: &str, before: i64, rows_max: usize) -> String {
    format!(
        "SELECT MIN(n.at) FROM (SELECT at FROM {from} AND at < {before} ORDER BY at DESC LIMIT {rows_max}) n"
    )
}

/// Bytes with the same order as the number.
pub(super) fn sortable(number: i64) -> [u8; 8] {
    ((number as u64) ^ (1 << 63)).to_be_bytes()
}
