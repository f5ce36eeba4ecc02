//! The start of a page in a listing.

use std::fmt::Display;

use crate::model::error::{Error, Result};

/// Starts a page after the row with this number and this place in the listing's order. The row may be gone. Callers
/// treat it as opaque: the `next` of the previous page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) number: i64,
    /// As text; empty if the listing is ordered by number, and for a row without a place.
    pub(crate) place: String,
}

impl Cursor {
    /// The cursor after a row, as text.
    pub(crate) fn behind(number: impl Display, place: impl Display) -> String {
        format!("{number}:{place}")
    }

    /// Reads a query's `after`.
    pub(crate) fn read(after: Option<&str>) -> Result<Option<Self>> {
        let read = |after: &str| {
            let (number, place) = after.split_once(':')?;
            Some(Self { number: number.parse().ok()?, place: place.to_owned() })
        };
        after.map(|after| read(after).ok_or_else(Self::wrong)).transpose()
    }

    /// The same in a listing whose places are numbers.
    pub(crate) fn read_by_number(after: Option<&str>) -> Result<Option<Self>> {
        let cursor = Self::read(after)?;
        cursor.as_ref().map(Self::place_number).transpose()?;
        Ok(cursor)
    }

    pub(crate) fn place_number(&self) -> Result<i64> {
        if self.place.is_empty() { Ok(0) } else { self.place.parse().map_err(|_| Self::wrong()) }
    }

    pub(crate) fn wrong() -> Error {
        Error::invalid("after", "must be the `next` of the previous page")
    }
}
