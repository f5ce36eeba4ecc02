//! The order in which the lane of a key hands its jobs over.

use std::fmt;
use std::str::FromStr;

use crate::contract::JobView;
use crate::model::{Cursor, Mode, Result, Timestamp};
use crate::stores::state::rank::score_rank;

/// What decides when a job is handed over, apart from its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handover {
    pub(super) score: f64,
    pub(super) priority: u16,
    pub(super) run_at: Timestamp,
}

/// Later; priority or 0; due time or score. Ties are in the order of arrival.
pub(super) type Place = (bool, u16, i64);

impl Handover {
    pub(super) fn of(job: &JobView) -> Self {
        Self { score: job.score, priority: job.priority, run_at: job.run_at }
    }

    /// That of the row after which a page starts.
    pub(super) fn read(after: &Cursor) -> Result<Self> {
        after.place.parse().map_err(|()| Cursor::wrong())
    }

    /// Its place among the jobs of its lane. In `exclusive`, those that are not due come last.
    pub(super) fn place(self, mode: Mode, now: Timestamp) -> Place {
        match mode {
            Mode::Exclusive if self.run_at > now => (true, 0, self.run_at.as_micros()),
            Mode::Exclusive => (false, self.priority, self.run_at.as_micros()),
            _ => (false, 0, score_rank(self.score)),
        }
    }
}

/// As cursors hold it, whatever the mode: `score/priority/due`.
impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All digits: it is read as the same number.
        write!(f, "{:?}/{}/{}", self.score, self.priority, self.run_at.as_micros())
    }
}

impl FromStr for Handover {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let read = |text: &str| {
            let mut parts = text.split('/');
            let score: f64 = parts.next()?.parse().ok()?;
            let (priority, run_at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let is_whole = parts.next().is_none() && score.is_finite();
            is_whole.then_some(Self { score, priority, run_at: Timestamp::from_micros(run_at) })
        };
        read(text).ok_or(())
    }
}
