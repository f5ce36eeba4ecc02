//! Notices the writes of other processes, which no event reports.

use std::time::{Duration, Instant, SystemTime};

use rusqlite::Connection;

use super::fault::translate;
use crate::model::error::Result;

/// How often to look at the file.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long after a write to the log a commit may still become visible: SQLite shows it when it is on disk, and a busy
/// disk is slow. Also, two changes within a few milliseconds may have the same timestamp.
const COMMIT_TIME_MAX: Duration = Duration::from_secs(10);

pub(super) struct Watch {
    /// The file's [`data_version`] at the last query. It does not count the connection's own writes.
    seen: i64,
    log: Recent<Option<(u64, SystemTime)>>,
    looked_at: Instant,
}

/// A number that changes when another connection has written.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

impl Watch {
    pub(super) fn new(connection: &Connection) -> Result<Self> {
        let seen = data_version(connection).map_err(translate)?;
        Ok(Self { seen, log: Recent::default(), looked_at: Instant::now() })
    }

    /// How long until the next look.
    pub(super) fn left(&self) -> Duration {
        INTERVAL.saturating_sub(self.looked_at.elapsed())
    }

    /// Whether another connection has written since the last look.
    pub(super) fn look(&mut self, connection: &Connection) -> bool {
        self.looked_at = Instant::now();
        if !self.log.may_be_news(stamp(connection), self.looked_at) {
            return false;
        }
        let Ok(version) = data_version(connection) else { return false };
        std::mem::replace(&mut self.seen, version) != version
    }
}

/// Size and modification time of the write-ahead log. Reading these is cheaper than a query.
fn stamp(connection: &Connection) -> Option<(u64, SystemTime)> {
    let log = std::fs::metadata(format!("{}-wal", connection.path()?)).ok()?;
    Some((log.len(), log.modified().ok()?))
}

/// A value that was read again and again, and may mean something new for a while after it has changed.
#[derive(Default)]
struct Recent<T> {
    value: T,
    changed_at: Option<Instant>,
    /// The age of the change at the last query.
    asked: Duration,
}

impl<T: PartialEq> Recent<T> {
    /// Whether to query: at each change, and after it whenever its age has grown by a tenth. So what a change shows late
    /// is found at most a tenth later, at a tenth of the queries.
    fn may_be_news(&mut self, value: T, now: Instant) -> bool {
        if std::mem::replace(&mut self.value, value) != self.value || self.changed_at.is_none() {
            (self.changed_at, self.asked) = (Some(now), Duration::ZERO);
            return true;
        }
        let age = self.changed_at.map_or(Duration::MAX, |at| now.duration_since(at));
        let asks = age <= COMMIT_TIME_MAX && age >= self.asked + self.asked / 10;
        if asks {
            self.asked = age;
        }
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_late_is_found_a_tenth_later_with_few_queries() {
        let start = Instant::now();
        let mut log = Recent::default();
        let looks = (0..1_000u32).map(|look| INTERVAL * look);
        let asks: Vec<Duration> = looks.filter(|age| log.may_be_news(7, start + *age)).collect();
        assert!(asks.len() < 60, "{} queries", asks.len());
        for pair in asks.windows(2) {
            assert!(pair[1] - pair[0] <= pair[0] / 10 + INTERVAL, "{pair:?}");
        }
        let last = asks[asks.len() - 1];
        assert!(last > COMMIT_TIME_MAX * 9 / 10 && last <= COMMIT_TIME_MAX, "{last:?}");
        assert!(log.may_be_news(8, start + COMMIT_TIME_MAX * 3), "a change");
        assert!(log.may_be_news(8, start + COMMIT_TIME_MAX * 3 + INTERVAL), "shortly after it");
    }
}
