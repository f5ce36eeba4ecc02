//! The rows of a history: their names, and what they cover.

/// Stands for all queues together. No queue has such a name.
pub(crate) const ALL: &str = "*";
/// Stands for those that have no history of their own.
pub(super) const OTHER: &str = "*other";
/// Stands for the store's server.
pub(crate) const SERVER: &str = "*store";
/// What rows are about: the figures of a queue, all its turns, or those of one of its tasks.
pub(super) const FIGURES: &str = "history";
pub(super) const TURNS: &str = "turns";
pub(super) const TASKS: &str = "tasks";
pub(super) const MINUTE: i64 = 60;
pub(super) const HOUR: i64 = 60 * MINUTE;
pub(super) const DAY: i64 = 24 * HOUR;

/// The two series of a queue.
#[derive(Clone, Copy)]
pub(super) enum Series {
    /// A row for an hour, a point for a minute.
    Minutes,
    /// A row for a day, a point for an hour.
    Hours,
}

impl Series {
    pub(super) fn step(self) -> i64 {
        match self {
            Self::Minutes => MINUTE,
            Self::Hours => HOUR,
        }
    }

    /// What a row covers, in seconds.
    pub(super) fn row(self) -> i64 {
        match self {
            Self::Minutes => HOUR,
            Self::Hours => DAY,
        }
    }

    /// How long rows are kept, in seconds.
    pub(super) fn kept(self) -> i64 {
        match self {
            Self::Minutes => DAY + HOUR,
            Self::Hours => 31 * DAY,
        }
    }

    /// How the names of all rows about this begin.
    pub(super) fn prefix(self, about: &str) -> String {
        match self {
            Self::Minutes => format!("{about}/m/"),
            Self::Hours => format!("{about}/h/"),
        }
    }

    /// The name of the row of figures that covers this time, in seconds.
    pub(super) fn name(self, queue: &str, at: i64) -> String {
        format!("{}{queue}/{}", self.prefix(FIGURES), self.number(at))
    }

    /// The end of that name.
    pub(super) fn number(self, at: i64) -> String {
        format!("{:08}", at.div_euclid(self.row()))
    }
}
