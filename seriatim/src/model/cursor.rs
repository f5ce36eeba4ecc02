//! Where a page of a listing begins.

use std::fmt::Display;

use crate::model::error::{Error, Result};

/// Behind the row of this number, which has this place in the order of the listing. The row itself need not be
/// there any more. For callers it is opaque: the `next` of the page before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) number: i64,
    /// As text; empty where the order is that of the numbers, and for a row that has none.
    pub(crate) place: String,
}

impl Cursor {
    /// The cursor behind a row.
    pub(crate) fn behind(number: impl Display, place: impl Display) -> String {
        format!("{number}:{place}")
    }

    /// What a query begins behind.
    pub(crate) fn read(after: Option<&str>) -> Result<Option<Self>> {
        let read = |after: &str| {
            let (number, place) = after.split_once(':')?;
            Some(Self { number: number.parse().ok()?, place: place.to_owned() })
        };
        after.map(|after| read(after).ok_or_else(Self::wrong)).transpose()
    }

    /// A place that is a number.
    pub(crate) fn place_number(&self) -> Result<i64> {
        if self.place.is_empty() { Ok(0) } else { self.place.parse().map_err(|_| Self::wrong()) }
    }

    pub(crate) fn wrong() -> Error {
        Error::invalid("after", "a page begins where `next` of the page before says")
    }
}
