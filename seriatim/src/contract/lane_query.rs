//! Which lanes a listing shows, and in which order.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lane_view::{LaneStage, LaneView};
use crate::model::limits::PAGE_ROWS_MAX;
use crate::model::{Cursor, Error, LaneId, NodeId, Result, Timestamp};

/// The order of a listing of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneOrder {
    /// By age.
    #[default]
    Age,
    /// By key.
    Key,
    /// By due time.
    Due,
    /// By retry count, highest first; only lanes with a failure.
    RetryCount,
}

/// A place in the order of a lane listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LanePlace {
    /// By key. Lanes without a key count as the empty key.
    Key(String),
    /// By due time.
    Due(Timestamp),
    /// By retry count, highest first.
    RetryCount(i32),
}

/// See [`Views::lanes`](super::Views::lanes). All filters apply together.
#[derive(Clone, Debug)]
pub struct LaneQuery {
    /// The queue.
    pub queue: Arc<str>,
    /// When lanes are ready or scheduled; the store's clock if unset.
    pub now: Option<Timestamp>,
    /// Only the lane of this key.
    pub key: Option<String>,
    /// Only this lane.
    pub lane: Option<LaneId>,
    /// Only lanes whose key has this prefix.
    pub prefix: Option<String>,
    /// Only lanes in one of these stages; in any, if empty.
    pub stages: Vec<LaneStage>,
    /// Only lanes that this node holds.
    pub node: Option<NodeId>,
    /// Only lanes due then or later.
    pub due_from: Option<Timestamp>,
    /// Only lanes due then or earlier.
    pub due_to: Option<Timestamp>,
    /// Only lanes with this retry count or a higher one.
    pub retries_min: Option<i32>,
    /// The order.
    pub order: LaneOrder,
    /// The first place in the order, included. A place of another order is `Invalid`, as for `to`.
    pub from: Option<LanePlace>,
    /// The last place in the order, included.
    pub to: Option<LanePlace>,
    /// Where to start: the `next` of the previous page.
    pub after: Option<String>,
    /// Where to start, if `after` is unset: behind this lane, which was due then, though it may be gone; before all that are due then, if
    /// its number is 0. Only by due time. So the pages of several queues can be merged.
    pub behind: Option<(Timestamp, LaneId)>,
    /// Most rows.
    pub rows_max: usize,
    /// Most lanes that the store reads, in the order, to find matches: then the page ends, [`cut`](super::Page). No
    /// limit if unset. A store may read more if it finds matches by an index.
    pub scan_max: Option<usize>,
    /// Whether only the claims matter. Then `jobs` and `priority` may be 0 and `only` unset, so that no store reads the
    /// jobs that wait behind them.
    pub bare: bool,
}

/// Lanes to look at if there is no limit; fits in any number.
const NO_LIMIT: usize = i32::MAX as usize;

/// Where a store finds the lanes of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneSource<'q> {
    Lane(LaneId),
    Key(&'q str),
    /// Among the claimed lanes; those of this node.
    Claimed(Option<&'q NodeId>),
    /// Among those that are held or paused.
    Parked,
    /// In the order, looking at each.
    Walk,
}

impl LaneQuery {
    /// All lanes of a queue by age: the first page.
    pub fn new(queue: impl Into<Arc<str>>) -> Self {
        Self {
            queue: queue.into(),
            now: None,
            key: None,
            lane: None,
            prefix: None,
            stages: Vec::new(),
            node: None,
            due_from: None,
            due_to: None,
            retries_min: None,
            order: LaneOrder::Age,
            from: None,
            to: None,
            after: None,
            behind: None,
            rows_max: PAGE_ROWS_MAX,
            scan_max: None,
            bare: false,
        }
    }

    /// Only waiting lanes that have been due for this long or longer: see [`LaneView::lag`]. If no stages are set,
    /// selects those of waiting lanes; other lanes have no lag.
    #[must_use]
    pub fn lagging(self, least: Duration, now: Timestamp) -> Self {
        let latest = now - least;
        let stages = match self.stages.is_empty() {
            true => LaneStage::WAITING.to_vec(),
            false => self.stages,
        };
        let due_to = self.due_to.map_or(latest, |to| to.min(latest));
        Self { now: Some(now), due_to: Some(due_to), stages, ..self }
    }

    /// Where the lanes are found.
    pub(crate) fn source(&self) -> LaneSource<'_> {
        let only = |stages: &[LaneStage]| {
            !self.stages.is_empty() && self.stages.iter().all(|stage| stages.contains(stage))
        };
        if let Some(lane) = self.lane {
            return LaneSource::Lane(lane);
        }
        match (&self.key, &self.node) {
            (Some(key), _) => LaneSource::Key(key),
            (None, Some(node)) => LaneSource::Claimed(Some(node)),
            _ if only(&[LaneStage::Running]) => LaneSource::Claimed(None),
            _ if only(&[LaneStage::Held, LaneStage::Paused]) => LaneSource::Parked,
            _ => LaneSource::Walk,
        }
    }

    /// Most rows of a page.
    pub(crate) fn most(&self) -> usize {
        self.rows_max.clamp(1, PAGE_ROWS_MAX)
    }

    /// Most lanes to look at one after the other.
    pub(crate) fn looks_max(&self) -> usize {
        let looks_max = self.scan_max.filter(|_| self.source() == LaneSource::Walk);
        looks_max.map_or(NO_LIMIT, |looks_max| looks_max.clamp(1, NO_LIMIT))
    }

    /// Whether only waiting lanes are in the stages.
    #[cfg(feature = "postgres")]
    pub(crate) fn waits(&self) -> bool {
        let waits = |stage| LaneStage::WAITING.contains(stage);
        !self.stages.is_empty() && self.stages.iter().all(waits)
    }

    /// Whether all waiting lanes, and only these, are in the stages.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn is_of_waiting(&self) -> bool {
        let is = |stage| self.stages.contains(stage) == LaneStage::WAITING.contains(stage);
        LaneStage::ALL.iter().all(is)
    }

    /// Whether it lists, by their time, only lanes that wait for a time which has not come. The places of those that are
    /// due need no look then.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn is_of_future(&self) -> bool {
        let later = [LaneStage::Scheduled, LaneStage::Retrying];
        let only_later =
            !self.stages.is_empty() && self.stages.iter().all(|stage| later.contains(stage));
        let begins = match self.from {
            Some(LanePlace::Due(due)) => Some(due),
            _ => self.due_from,
        };
        let is_later = |now| begins.is_some_and(|begins| begins > now);
        self.order == LaneOrder::Due && only_later && self.now.is_some_and(is_later)
    }

    /// Whether only lanes with a failure fit.
    #[cfg(feature = "redis")]
    pub(crate) fn needs_failure(&self) -> bool {
        self.order == LaneOrder::RetryCount
            || self.retries_min.is_some_and(|least| least >= 0)
            || self.stages == [LaneStage::Retrying]
    }

    /// Whether all lanes in the range of the order fit.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn is_range(&self) -> bool {
        let is_due = self.due_from.is_some() || self.due_to.is_some();
        let is_all_later = self.is_of_future()
            && self.stages.contains(&LaneStage::Scheduled)
            && self.stages.contains(&LaneStage::Retrying);
        (self.stages.is_empty() || self.is_of_waiting() || is_all_later)
            && (self.prefix.is_none() || self.order == LaneOrder::Key)
            && (!is_due || self.order == LaneOrder::Due)
            && (self.retries_min.is_none() || self.order == LaneOrder::RetryCount)
    }

    /// Whether a lane fits all filters but the range of the order.
    pub fn shows(&self, lane: &LaneView, now: Timestamp) -> bool {
        let key = lane.key.as_deref();
        let in_stage = |stage: &LaneStage| match stage {
            LaneStage::Crashed => lane.crashes > 0,
            stage => *stage == lane.stage(now),
        };
        self.lane.is_none_or(|wanted| lane.lane == wanted)
            && self.key.as_deref().is_none_or(|wanted| key == Some(wanted))
            && self.prefix.as_deref().is_none_or(|start| key.unwrap_or("").starts_with(start))
            && (self.stages.is_empty() || self.stages.iter().any(in_stage))
            && (self.node.is_none() || lane.node == self.node)
            && self.due_from.is_none_or(|from| lane.due.is_some_and(|due| due >= from))
            && self.due_to.is_none_or(|to| lane.due.is_some_and(|due| due <= to))
            && self.retries_min.is_none_or(|least| lane.retry_count >= least)
            && (self.order != LaneOrder::RetryCount || lane.retry_count >= 0)
    }

    /// The cursor after which the page starts: that of the previous page, or one just before the first place that fits.
    pub(crate) fn begin(&self) -> Result<Option<Cursor>> {
        let from = self.place("from", self.from.as_ref())?;
        let before = |place| Cursor { number: 0, place };
        if self.after.is_some() {
            let after = self.after.as_deref();
            return match self.order {
                LaneOrder::Key => Cursor::read(after),
                LaneOrder::Age | LaneOrder::Due => Cursor::read_by_number(after),
                LaneOrder::RetryCount => {
                    let cursor = Cursor::read_by_number(after)?;
                    let is_count = |cursor: &Cursor| cursor.place.parse::<i32>().is_ok();
                    if cursor.as_ref().is_some_and(|cursor| !is_count(cursor)) {
                        return Err(Cursor::wrong());
                    }
                    Ok(cursor)
                }
            };
        }
        if let Some((due, lane)) = self.behind {
            let wrong = || Error::invalid("behind", "is a place in the order of due times");
            let is_due = self.order == LaneOrder::Due;
            let number = i64::try_from(lane.number).ok().filter(|_| is_due).ok_or_else(wrong)?;
            return Ok(Some(Cursor { number, place: due.as_micros().to_string() }));
        }
        Ok(match self.order {
            LaneOrder::Age => None,
            LaneOrder::Key => from.into_iter().chain(self.prefix.clone()).max().map(before),
            LaneOrder::Due => {
                let due_from = self.due_from.map(Timestamp::as_micros);
                numbers(from).chain(due_from).max().map(|due| before(due.to_string()))
            }
            LaneOrder::RetryCount => from.map(before),
        })
    }

    /// The last place to list, as a cursor.
    pub(crate) fn end(&self) -> Result<Option<Cursor>> {
        let to = self.place("to", self.to.as_ref())?;
        let at = |place| Cursor { number: i64::MAX, place };
        Ok(match self.order {
            LaneOrder::Age => None,
            // The first key behind those with the prefix is in the range, and does not fit.
            LaneOrder::Key => {
                to.into_iter().chain(self.prefix.as_deref().and_then(behind)).min().map(at)
            }
            LaneOrder::Due => {
                let due_to = self.due_to.map(Timestamp::as_micros);
                numbers(to).chain(due_to).min().map(|due| at(due.to_string()))
            }
            LaneOrder::RetryCount => {
                let least = self.retries_min.map(|count| -i64::from(count));
                numbers(to).chain(least).min().map(|count| at(count.to_string()))
            }
        })
    }

    fn place(&self, field: &'static str, place: Option<&LanePlace>) -> Result<Option<String>> {
        match (place, self.order) {
            (None, _) => Ok(None),
            (Some(LanePlace::Key(key)), LaneOrder::Key) => Ok(Some(key.clone())),
            (Some(LanePlace::Due(due)), LaneOrder::Due) => Ok(Some(due.as_micros().to_string())),
            (Some(LanePlace::RetryCount(count)), LaneOrder::RetryCount) => {
                Ok(Some((-i64::from(*count)).to_string()))
            }
            _ => Err(Error::invalid(field, "is not a place in the order of this listing")),
        }
    }
}

/// A place in an order of numbers, as a number.
fn numbers(place: Option<String>) -> impl Iterator<Item = i64> {
    place.and_then(|place| place.parse().ok()).into_iter()
}

/// The first text behind all that begin with this one, in the order of bytes; `None` if there is none.
pub(crate) fn behind(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // The order of UTF-8 is that of the characters; surrogates are none.
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn the_text_behind_a_prefix_is_the_first_that_does_not_begin_with_it() {
        for (prefix, next) in [
            ("a", Some("b")),
            ("a/", Some("a0")),
            ("é", Some("ê")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
            ("", None),
        ] {
            assert_eq!(behind(prefix).as_deref(), next, "{prefix:?}");
        }
    }
}
