//! The rows of a page, found by looking at one after the other.

use std::fmt::Display;

use crate::contract::LaneQuery;
use crate::model::Cursor;

/// Collects a page from rows that come in order.
pub(super) struct Look<T, P> {
    most: usize,
    looks_max: usize,
    looked: usize,
    /// The number and place of the last row looked at.
    last: Option<(u64, P)>,
    rows: Vec<(u64, P, T)>,
    more: bool,
    cut: bool,
}

impl<T, P: Display + Clone> Look<T, P> {
    pub(super) fn of_lanes(query: &LaneQuery) -> Self {
        let (most, looks_max) = (query.most(), query.looks_max());
        let (last, rows) = (None, Vec::new());
        Self { most, looks_max, looked: 0, last, rows, more: false, cut: false }
    }

    /// Looks at the next row, which is shown if it fits. Answers whether to go on.
    pub(super) fn at(&mut self, number: u64, place: P, row: Option<T>) -> bool {
        self.cut = self.looked >= self.looks_max;
        self.more = row.is_some() && self.rows.len() >= self.most;
        if self.cut || self.more {
            return false;
        }
        self.looked += 1;
        self.last = Some((number, place.clone()));
        self.rows.extend(row.map(|row| (number, place, row)));
        true
    }

    /// Records that rows that do not fit were left out: this many were looked at before the next one.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn skip_to(&mut self, looked: usize) {
        self.looked = looked;
    }

    /// The rows of the page, the cursor of the next page, and whether the look was cut.
    pub(super) fn page(self) -> (Vec<T>, Option<String>, bool) {
        let behind = |(number, place): &(u64, P)| Cursor::behind(number, place);
        let next = match (self.cut, self.more) {
            (true, _) => self.last.as_ref().map(behind),
            (false, true) => {
                self.rows.last().map(|(number, place, _)| Cursor::behind(number, place))
            }
            (false, false) => None,
        };
        (self.rows.into_iter().map(|(_, _, row)| row).collect(), next, self.cut)
    }
}
