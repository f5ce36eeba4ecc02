//! Notices the writes of other processes. The kernel tells of each write to the log; where it cannot, the file is looked
//! at often (decision 0054).

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::fault::{BUSY_TIMEOUT, translate};
use super::line::{Line, Next};
use super::sentry::Sentry;
use crate::model::Result;

/// How often to look where nobody tells, and while somebody writes. Wake-ups are no more frequent either.
const INTERVAL: Duration = Duration::from_millis(20);
/// How often to look where the kernel tells: it may not know all who write. Tests do without.
const DOUBT: Duration = Duration::from_secs(if cfg!(test) { 3_600 } else { 1 });
/// The shortest time between two looks because of what the kernel tells: it tells of the store's own commits too.
const REST: Duration = Duration::from_millis(5);
/// The time to the next look while somebody writes, at first.
const COMMIT_TIME_MIN: Duration = Duration::from_micros(100);
/// So many changes in a row of which it did not tell, and the kernel is not relied on.
const UNTOLD_MAX: u32 = 3;

/// How the writing thread waits while there are listeners.
pub(super) struct Watch {
    /// The file's [`data_version`] at the last look. It does not count the connection's own writes.
    seen: i64,
    /// Whether the kernel was asked to tell.
    has_asked: bool,
    /// `None`: it was not asked, or does not tell.
    sentry: Option<Sentry>,
    /// The next look.
    due: Instant,
    /// No look before this time, whatever the kernel tells.
    rests_until: Instant,
    /// The kernel has told of a write since the last look that was certain.
    told: bool,
    /// Somebody was writing then, at the last look.
    writing_since: Option<Instant>,
    /// Changes in a row of which the kernel did not tell.
    untold: u32,
}

impl Watch {
    /// `None` for a database in memory, which no other connection writes.
    pub(super) fn new(connection: &Connection) -> Result<Option<Self>> {
        if connection.path() == Some("") {
            return Ok(None);
        }
        let seen = data_version(connection).map_err(translate)?;
        let now = Instant::now();
        Ok(Some(Self {
            seen,
            has_asked: false,
            sentry: None,
            due: now,
            rests_until: now,
            told: false,
            writing_since: None,
            untold: 0,
        }))
    }

    /// Asks the kernel to tell of writes from now on, once.
    pub(super) fn begin(&mut self, connection: &Connection) {
        if !self.has_asked {
            let path = connection.path().ok_or(io::ErrorKind::InvalidFilename.into());
            self.rely_on(path.and_then(|path| Sentry::of(Path::new(&format!("{path}-wal")))));
        }
    }

    fn rely_on(&mut self, sentry: io::Result<Sentry>) {
        self.has_asked = true;
        // What was written before is not told.
        self.due = Instant::now();
        match sentry {
            Ok(sentry) => self.sentry = Some(sentry),
            Err(error) => self.rely_on_nobody(&error.to_string()),
        }
    }

    fn rely_on_nobody(&mut self, why: &str) {
        self.sentry = None;
        self.due = Instant::now();
        if cfg!(target_os = "linux") {
            tracing::warn!(
                why,
                "inotify does not report other processes' writes to the SQLite file: polling it every {} ms",
                INTERVAL.as_millis()
            );
        }
    }

    /// The next message, or `TimedOut` when a [look](Self::look) may be due.
    pub(super) fn next<M>(&mut self, line: &Line<M>) -> Next<M> {
        let left = self.due.saturating_duration_since(Instant::now());
        let Some(sentry) = &self.sentry else { return line.next(Some(left)) };
        let listens = !self.told && self.writing_since.is_none();
        let mut told = Ok(false);
        let next = line.next_after(sentry.alarm(), || told = sentry.sleep(listens, left));
        match told {
            Ok(false) => {}
            Ok(true) => {
                self.told = true;
                self.due = self.due.min(self.rests_until);
            }
            Err(error) => self.rely_on_nobody(&error.to_string()),
        }
        next
    }

    /// Whether a look is overdue, because calls have not ceased since it was due.
    pub(super) fn is_overdue(&self) -> bool {
        self.due.elapsed() >= INTERVAL
    }

    /// Whether another connection has written since the last look. Does nothing before a look is due.
    pub(super) fn look(&mut self, connection: &Connection) -> bool {
        let now = Instant::now();
        if now < self.due {
            return false;
        }
        let Some(sentry) = &self.sentry else {
            self.due = now + INTERVAL;
            return data_version(connection).is_ok_and(|version| self.is_news(version));
        };
        self.told |= sentry.forget();
        // Before the question: what is written after it is told.
        if let Err(error) = sentry.listen() {
            self.rely_on_nobody(&error.to_string());
            return false;
        }
        let Ok(Some(version)) = version_while_nobody_writes(connection) else {
            let since = *self.writing_since.get_or_insert(now);
            self.due = now + ((now - since) / 2).clamp(COMMIT_TIME_MIN, INTERVAL);
            // Writes of other processes must be noticed even if they leave no gap.
            let is_long = now - since >= INTERVAL;
            return is_long && data_version(connection).is_ok_and(|version| self.is_news(version));
        };
        self.writing_since = None;
        let news = self.is_news(version);
        self.rests_until = now + if news { INTERVAL } else { REST };
        self.due = now + DOUBT;
        self.judge(news);
        news
    }

    fn is_news(&mut self, version: i64) -> bool {
        std::mem::replace(&mut self.seen, version) != version
    }

    /// Whether the kernel is still relied on, after a look that was certain.
    fn judge(&mut self, news: bool) {
        let Some(sentry) = &self.sentry else { return };
        let was_told = std::mem::take(&mut self.told);
        if !news {
            return;
        }
        if was_told {
            self.untold = 0;
        } else if sentry.forget() {
            // The write came during the look, and what was forgotten may be the next one.
            self.told = true;
            self.due = self.rests_until;
        } else {
            self.untold += 1;
            if self.untold >= UNTOLD_MAX {
                self.rely_on_nobody("it missed the last ones");
            }
        }
    }
}

/// A number that changes when another connection has written.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// The same, but `None` while another connection writes. A write can be seen in the log before its commit shows, for as
/// long as the disk takes. Who holds the lock knows that nobody is in between.
fn version_while_nobody_writes(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let say = |sql| connection.prepare_cached(sql)?.execute([]).map(drop);
    connection.busy_timeout(Duration::ZERO)?;
    let begun = say("BEGIN IMMEDIATE");
    connection.busy_timeout(BUSY_TIMEOUT)?;
    match begun {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => {
            let version = data_version(connection);
            say("COMMIT")?;
            version.map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::connect_writer;
    use super::*;

    /// Longer than a test lasts.
    const LONG: Duration = Duration::from_secs(60);

    /// A watch, its connection, and one as another process has it.
    struct Pair {
        watch: Watch,
        line: Line<()>,
        here: Connection,
        there: Connection,
        folder: tempfile::TempDir,
    }

    impl Pair {
        fn open() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("jobs.db");
            let here = connect_writer(&path, false).unwrap();
            here.execute_batch("CREATE TABLE t (a)").unwrap();
            let there = connect_writer(&path, false).unwrap();
            let watch = Watch::new(&here).unwrap().unwrap();
            Self { watch, line: Line::new(), here, there, folder }
        }

        /// One that the kernel tells of writes.
        fn told() -> Self {
            let mut pair = Self::open();
            pair.watch.begin(&pair.here);
            assert!(pair.watch.sentry.is_some());
            assert!(!pair.looks(), "nobody has written");
            pair
        }

        fn write_there(&self) {
            self.there.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        }

        fn looks(&mut self) -> bool {
            self.watch.look(&self.here)
        }

        /// Waits as the writing thread does. Returns the number of looks that were due until there was news.
        fn looks_until_news(&mut self) -> usize {
            let begun = Instant::now();
            let mut looks = 0;
            while begun.elapsed() < LONG {
                assert!(matches!(self.watch.next(&self.line), Next::TimedOut));
                looks += usize::from(self.watch.due <= Instant::now());
                if self.looks() {
                    return looks;
                }
            }
            panic!("no news after {looks} looks");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_tells_of_each_commit_of_another_process() {
        let mut pair = Pair::told();
        for number in 0..20 {
            pair.write_there();
            assert!(pair.looks_until_news() <= 2, "commit {number}");
            assert!(pair.watch.due > Instant::now() + LONG, "{number}: the next look is far away");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_commit_that_does_not_show_yet_is_looked_for_again() {
        let mut pair = Pair::told();
        // Without a cache, changes go to the log before the commit.
        let begin = "PRAGMA cache_size = 0; BEGIN IMMEDIATE; CREATE TABLE u (a); CREATE TABLE v (a); CREATE TABLE w (a);";
        pair.there.execute_batch(begin).unwrap();
        assert!(matches!(pair.watch.next(&pair.line), Next::TimedOut));
        assert!(pair.watch.told);
        assert!(!pair.looks());
        assert!(pair.watch.due <= Instant::now() + INTERVAL, "it looks again soon");
        pair.there.execute_batch("COMMIT").unwrap();
        pair.looks_until_news();
        assert!(pair.watch.due > Instant::now() + LONG, "it waits to be told again");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_others_have_written_is_heard_of_although_one_of_them_always_writes() {
        let mut pair = Pair::told();
        let third = connect_writer(&pair.folder.path().join("jobs.db"), false).unwrap();
        pair.write_there();
        third.execute_batch("BEGIN IMMEDIATE").unwrap();
        pair.looks_until_news();
        assert!(pair.watch.writing_since.is_some(), "somebody still writes");
        third.execute_batch("COMMIT").unwrap();
        pair.write_there();
        pair.looks_until_news();
        assert!(pair.watch.writing_since.is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_own_commit_costs_one_look_and_is_no_news() {
        let mut pair = Pair::told();
        pair.here.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        assert!(matches!(pair.watch.next(&pair.line), Next::TimedOut));
        assert!(pair.watch.told);
        pair.watch.due = Instant::now();
        assert!(!pair.looks());
        assert!(!pair.watch.told && pair.watch.due > Instant::now() + LONG);
    }

    #[test]
    fn where_the_kernel_refuses_to_tell_the_file_is_looked_at_often() {
        let mut pair = Pair::open();
        pair.watch.rely_on(Err(io::Error::other("too many")));
        assert!(!pair.looks(), "nobody has written");
        for _ in 0..3 {
            pair.write_there();
            pair.looks_until_news();
            assert!(pair.watch.due <= Instant::now() + INTERVAL);
        }
        pair.watch.begin(&pair.here);
        assert!(pair.watch.sentry.is_none(), "it is asked once");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_kernel_that_does_not_know_who_writes_is_not_relied_on() {
        let mut pair = Pair::open();
        let other = pair.folder.path().join("other");
        std::fs::write(&other, "").unwrap();
        pair.watch.rely_on(Sentry::of(&other));
        assert!(!pair.looks(), "nobody has written");
        for untold in 1..=UNTOLD_MAX {
            pair.write_there();
            pair.watch.due = Instant::now();
            assert!(pair.looks());
            assert_eq!(pair.watch.sentry.is_some(), untold < UNTOLD_MAX);
        }
        pair.write_there();
        pair.looks_until_news();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_message_ends_the_sleep() {
        let mut pair = Pair::told();
        std::thread::scope(|scope| {
            scope.spawn(|| pair.line.add(super::super::line::Rank::Usual, ()).unwrap());
            assert!(matches!(pair.watch.next(&pair.line), Next::Message(())));
        });
        std::thread::scope(|scope| {
            scope.spawn(|| pair.line.close());
            assert!(matches!(pair.watch.next(&pair.line), Next::Closed));
        });
    }
}
