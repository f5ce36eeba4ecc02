//! The order in which lanes are listed, and a range of it.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::store::{LaneOrder, LanePlace};

use super::error::{Error, Result};
use crate::base::time;

/// The order in which lanes are listed.
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

impl By {
    pub(crate) fn order(self) -> LaneOrder {
        match self {
            Self::Age => LaneOrder::Age,
            Self::Key => LaneOrder::Key,
            Self::Due => LaneOrder::Due,
            Self::Retries => LaneOrder::RetryCount,
        }
    }

    /// One end of a range, as a user writes it.
    pub(crate) fn place(
        self,
        field: &'static str,
        text: Option<&str>,
    ) -> Result<Option<LanePlace>> {
        let Some(text) = text else { return Ok(None) };
        let wrong = |why| Error::Bound { field, why };
        let place = match self {
            Self::Key => LanePlace::Key(text.to_owned()),
            Self::Due => LanePlace::Due(time::read(text).map_err(wrong)?),
            Self::Retries => LanePlace::RetryCount(text.parse().map_err(|_| {
                wrong(format!("{text:?} is not a retry count: write a whole number"))
            })?),
            Self::Age => return Err(Error::Unranged { field }),
        };
        Ok(Some(place))
    }
}
