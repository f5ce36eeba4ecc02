//! Filters of lanes: those of a listing, and of an operation on all lanes that match.

use std::time::Duration;

use seriatim::store::{LaneId, LaneQuery, LaneStage, NodeId};

use super::error::{Error, Result};
use crate::base::time;

/// The filters, as a user writes them; an empty one is none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filters<'a> {
    /// Stages, separated by commas.
    pub(crate) state: &'a str,
    pub(crate) lane: &'a str,
    pub(crate) prefix: &'a str,
    pub(crate) node: &'a str,
    pub(crate) due_from: &'a str,
    pub(crate) due_to: &'a str,
    pub(crate) retries_min: &'a str,
    pub(crate) lag_min: &'a str,
}

impl Filters<'_> {
    /// The query with these filters, the node by its id; and the least lag, which depends on the time.
    pub(crate) fn of(self, query: LaneQuery) -> Result<(LaneQuery, Option<Duration>)> {
        let due = |field, text: &str| {
            let read = |text| time::read(text).map_err(|why| Error::Bound { field, why });
            Some(text).filter(|text| !text.is_empty()).map(read).transpose()
        };
        let query = LaneQuery {
            stages: stages(self.state)?,
            lane: named(self.lane)?,
            prefix: Some(self.prefix).filter(|prefix| !prefix.is_empty()).map(str::to_owned),
            node: Some(self.node).filter(|node| !node.is_empty()).map(NodeId::from),
            due_from: due("due_from", self.due_from)?,
            due_to: due("due_to", self.due_to)?,
            retries_min: retries(self.retries_min)?,
            ..query
        };
        let lag_min = lag(self.lag_min, &query.stages)?;
        Ok((query, lag_min))
    }
}

/// The least lag of lanes in these stages.
fn lag(text: &str, stages: &[LaneStage]) -> Result<Option<Duration>> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |why: String| Error::Bound { field: "lag_min", why };
    if let Some(stage) = stages.iter().find(|stage| !LaneStage::WAITING.contains(stage)) {
        let why = format!("only lanes that wait have a lag: these are {}", stage.as_str());
        return Err(wrong(why));
    }
    seriatim::duration::parse(text).map(Some).map_err(|error| wrong(error.to_string()))
}

/// The stages of a filter.
pub(crate) fn stages(text: &str) -> Result<Vec<LaneStage>> {
    let named = |name: &str| {
        let stage = LaneStage::ALL.into_iter().find(|stage| stage.as_str() == name);
        stage.ok_or_else(|| {
            let names = LaneStage::ALL.map(LaneStage::as_str).join(", ");
            let why = format!(
                "{name:?} is not a lane state: use {names}, or several separated by commas"
            );
            Error::Bound { field: "state", why }
        })
    };
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(named).collect()
}

fn named(text: &str) -> Result<Option<LaneId>> {
    let wrong = |_| {
        let why = format!("{text:?} is not the id of a lane: copy it from a listing, as in 1-0-5");
        Error::Bound { field: "lane", why }
    };
    Some(text).filter(|text| !text.is_empty()).map(str::parse::<LaneId>).transpose().map_err(wrong)
}

fn retries(text: &str) -> Result<Option<i32>> {
    let wrong = |_| {
        let why = format!("{text:?} is not a retry count: write a whole number");
        Error::Bound { field: "retries_min", why }
    };
    Some(text).filter(|text| !text.is_empty()).map(str::parse::<i32>).transpose().map_err(wrong)
}
