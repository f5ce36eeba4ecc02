//! A range of lanes, in the order in which they are listed.

use std::cmp::Ordering;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::Timestamp;
use seriatim::store::LaneView;

use super::error::Error;
use crate::base::time;

/// By what lanes are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum By {
    #[default]
    Age,
    Key,
    #[serde(rename = "run_at", alias = "due")]
    Due,
    #[serde(rename = "retry_count", alias = "retries")]
    Retries,
}

/// Where a lane lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Before,
    Within,
    After,
}

/// What a lane is compared by.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Key(String),
    Due(Timestamp),
    Retries(i32),
}

/// From one place to another, both included; open where there is none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Range {
    from: Option<Place>,
    to: Option<Place>,
}

impl Range {
    pub(super) fn read(by: By, from: Option<&str>, to: Option<&str>) -> Result<Self, Error> {
        let read =
            |field, text: Option<&str>| text.map(|text| Place::read(by, text, field)).transpose();
        Ok(Self { from: read("from", from)?, to: read("to", to)? })
    }

    pub(super) fn has_beginning(&self) -> bool {
        self.from.is_some()
    }

    pub(super) fn place(&self, lane: &LaneView) -> Bound {
        let is = |place: &Option<Place>, side: Ordering| {
            place.as_ref().is_some_and(|place| place.of(lane) == Some(side))
        };
        match () {
            () if is(&self.to, Ordering::Greater) => Bound::After,
            () if is(&self.from, Ordering::Less) => Bound::Before,
            () => Bound::Within,
        }
    }
}

impl Place {
    fn read(by: By, text: &str, field: &'static str) -> Result<Self, Error> {
        let wrong = |why| Error::Bound { field, why };
        match by {
            By::Key => Ok(Self::Key(text.to_owned())),
            By::Due => time::read(text).map(Self::Due).map_err(wrong),
            By::Retries => text
                .parse()
                .map(Self::Retries)
                .map_err(|_| wrong(format!("{text:?} is not a retry count: write a whole number"))),
            By::Age => Err(Error::Unranged { field }),
        }
    }

    /// On which side of this a lane is listed. Retry counts are listed most first.
    fn of(&self, lane: &LaneView) -> Option<Ordering> {
        match self {
            Self::Key(key) => lane.key.as_deref().map(|of| of.cmp(key.as_str())),
            Self::Due(due) => lane.due.map(|of| of.cmp(due)),
            Self::Retries(count) => Some(count.cmp(&lane.retry_count)),
        }
    }
}
