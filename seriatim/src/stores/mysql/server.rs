//! Which server answers: see `stores/marks.rs`.

use super::error::Try;
use super::pool::Answer;
use super::sql::{Columns, corrupt};
use crate::stores::marks::Mark;

/// The server counts full seconds, and its clock may be set.
const START_SECONDS: i64 = 2;

/// A server, from one start of it to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    name: String,
    /// In seconds.
    started_at: i64,
}

impl Mark for Server {
    fn is(&self, other: &Self) -> bool {
        self.name == other.name && (self.started_at - other.started_at).abs() <= START_SECONDS
    }
}

impl Server {
    /// The statements that [`Self::read`] reads the answers of: who it is, and for how many seconds it has been up.
    pub(super) const MARK: &str = "SELECT CONCAT_WS(' ', @@GLOBAL.hostname, @@GLOBAL.port, @@GLOBAL.server_id), UNIX_TIMESTAMP(); SHOW GLOBAL STATUS LIKE 'Uptime'";

    pub(super) fn read(answers: Vec<Answer>) -> Try<Self> {
        let mut rows = answers.into_iter().filter_map(|answer| answer.rows.into_iter().next());
        let (about, uptime) = rows.next().zip(rows.next()).ok_or_else(corrupt)?;
        let (mut about, mut uptime) = (Columns::of(about), Columns::of(uptime));
        uptime.skip(1);
        let name = about.text()?.to_string();
        Ok(Self { name, started_at: about.int()? - uptime.int()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_the_same_until_it_starts_again() {
        let server = |name: &str, started_at| Server { name: name.to_owned(), started_at };
        assert!(server("db1 3306 1", 100).is(&server("db1 3306 1", 101)));
        assert!(!server("db1 3306 1", 100).is(&server("db1 3306 1", 110)));
        assert!(!server("db1 3306 1", 100).is(&server("db2 3306 2", 100)));
    }
}
