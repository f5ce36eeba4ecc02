//! A database as an SQL session sees it: for tests of the SQL stores.

use async_trait::async_trait;

use crate::contract::SharedStore;

/// A database for one test, with a store in it. In its statements `@inbox`, `@jobs`, … stand for the public table and views,
/// `@key` for the column `key`.
#[async_trait]
pub(super) trait Database: Clone + Send + Sync + 'static {
    /// Opens the store as another process would. A node `n` is registered.
    async fn open(&self) -> SharedStore;

    /// Runs statements in a transaction of a session of its own, in UTC, and commits it or rolls it back.
    async fn run(&self, sql: &str, commits: bool);

    /// The names of the columns of a query, and its rows as texts.
    async fn rows(&self, sql: &str) -> (Vec<String>, Vec<Vec<Option<String>>>);

    /// The microseconds since 1970 of a column with a time.
    fn micros(&self, column: &str) -> String;

    /// What an INSERT says before VALUES if it gives the numbers of rows.
    fn numbering(&self) -> &'static str {
        ""
    }
}
