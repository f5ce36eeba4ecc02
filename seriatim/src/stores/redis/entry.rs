//! Rows of an index as their places in a listing.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::model::{Mode, Timestamp};
use crate::stores::handover::{Handover, Place};

/// The sort key of a row; ties are broken by shard and number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SortKey {
    Number(i64),
    Text(Arc<str>),
    Turn(InTurn),
}

/// A place in the order in which a lane hands jobs over, and what it is made of, which cursors hold.
#[derive(Clone, Debug)]
pub(super) struct InTurn(Place, Handover);

impl Ord for InTurn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for InTurn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InTurn {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for InTurn {}

/// What sort keys are made of.
#[derive(Clone, Copy)]
pub(super) enum By {
    Number,
    Text,
    Turn(Mode, Timestamp),
}

impl By {
    pub(super) fn read(self, place: &str) -> Option<SortKey> {
        Some(match self {
            Self::Number => SortKey::Number(place.parse().ok()?),
            Self::Text => SortKey::Text(place.into()),
            Self::Turn(mode, now) => turn(place.parse().ok()?, mode, now),
        })
    }
}

pub(super) fn turn(job: Handover, mode: Mode, now: Timestamp) -> SortKey {
    SortKey::Turn(InTurn(job.place(mode, now), job))
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Turn(InTurn(_, job)) => job.fmt(f),
        }
    }
}

/// A row of an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) place: SortKey,
    pub(super) shard: u16,
    pub(super) number: i64,
}

impl Entry {
    pub(super) fn cursor(&self, walk: Option<u64>) -> String {
        cursor(self.shard, self.number, walk, &self.place)
    }

    pub(super) fn of_cursor(cursor: &str, by: By) -> Option<Self> {
        let (shard, number, _, place) = parts(cursor)?;
        Some(Self { place: by.read(place)?, shard, number })
    }
}

/// The cursor of the next page: `shard-number:place`, or `shard-number-walk:place` if it goes on with what is kept of a walk.
pub(super) fn cursor(
    shard: u16,
    number: i64,
    walk: Option<u64>,
    place: &impl fmt::Display,
) -> String {
    match walk {
        Some(walk) => format!("{shard}-{number}-{walk}:{place}"),
        None => format!("{shard}-{number}:{place}"),
    }
}

/// The walk that a cursor goes on with.
pub(super) fn walk_of(cursor: &str) -> Option<u64> {
    parts(cursor)?.2
}

fn parts(cursor: &str) -> Option<(u16, i64, Option<u64>, &str)> {
    let (name, place) = cursor.split_once(':')?;
    let mut name = name.splitn(3, '-');
    let (shard, number) = (name.next()?.parse().ok()?, name.next()?.parse().ok()?);
    let walk = name.next().map(str::parse).transpose().ok()?;
    Some((shard, number, walk, place))
}
