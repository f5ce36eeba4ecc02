//! What people do with SQL: the inbox and the views.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::types::Value;

use super::*;
use crate::contract::{DrainInbox, Fleet, Heartbeat, SharedStore};
use crate::stores::sql_session::Database;
use crate::stores::{inbox, sql_views};

/// A file in a folder of its own.
#[derive(Clone)]
struct File(Arc<tempfile::TempDir>);

impl File {
    fn new() -> Self {
        Self(Arc::new(tempfile::tempdir().unwrap()))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("jobs.db")
    }
}

fn written(sql: &str) -> String {
    sql.replace("@key", "key").replace('@', "seriatim_")
}

#[async_trait]
impl Database for File {
    async fn open(&self) -> SharedStore {
        let store = Sqlite::open(self.path()).unwrap();
        store.migrate().await.unwrap();
        let node = NodeInfo::new("n".into(), LEASE);
        store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
        Arc::new(store)
    }

    async fn run(&self, sql: &str, commits: bool) {
        let session = rusqlite::Connection::open(self.path()).unwrap();
        session.busy_timeout(Duration::from_secs(20)).unwrap();
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        session.execute_batch(&format!("BEGIN IMMEDIATE; {}; {end}", written(sql))).unwrap();
    }

    async fn rows(&self, sql: &str) -> (Vec<String>, Vec<Vec<Option<String>>>) {
        let session = rusqlite::Connection::open(self.path()).unwrap();
        let mut statement = session.prepare(&written(sql)).unwrap();
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let text = |value| match value {
            Value::Null => None,
            Value::Integer(number) => Some(number.to_string()),
            Value::Real(number) => Some(number.to_string()),
            Value::Text(text) => Some(text),
            Value::Blob(bytes) => panic!("{bytes:?} is no text"),
        };
        let read = |row: &rusqlite::Row<'_>| {
            (0..names.len()).map(|at| row.get(at).map(text)).collect::<rusqlite::Result<Vec<_>>>()
        };
        let rows = statement.query_map([], read).unwrap().map(Result::unwrap).collect();
        (names.clone(), rows)
    }

    fn micros(&self, column: &str) -> String {
        format!("CAST(round(unixepoch({column}, 'subsec') * 1000000) AS INTEGER)")
    }
}

inbox::tests::cases!(File::new());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_an_earlier_version_are_pushed_after_the_upgrade() {
    let before = "ALTER TABLE @inbox DROP COLUMN max_retries; ALTER TABLE @inbox DROP COLUMN key_group; PRAGMA user_version = 17";
    let case = inbox::tests::rows_of_an_earlier_version_are_pushed_after_the_upgrade;
    case(File::new(), before).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused_and_not_changed() {
    let file = File::new();
    let store = file.open().await;
    let sql = "INSERT INTO @inbox (queue, @key, payload) VALUES ('q', x'fffe', '1'), \
        ('q', 'a' || char(0) || 'b', '2'), ('p', NULL, CAST(x'22ff22' AS TEXT)), ('q', CAST('ok' AS BLOB), '3')";
    file.run(sql, true).await;
    let request = DrainInbox { rows_max: 10, ..DrainInbox::default() };
    let drained = store.drain_inbox(request).await.unwrap();
    let keys: Vec<_> = drained.jobs.iter().map(|job| job.key.as_deref()).collect();
    assert_eq!(keys, [Some("ok")], "{drained:?}");
    let why: Vec<_> = drained.refused.iter().map(|row| row.why.contains("UTF-8")).collect();
    assert_eq!(why, [true; 3], "{drained:?}");
}

#[tokio::test]
async fn values_of_any_type_are_pushed_or_refused() {
    let file = File::new();
    let store = file.open().await;
    let sql = "INSERT INTO @inbox (queue, payload, priority, run_at) VALUES
        ('p', 7, 1, unixepoch()), ('p', '7', 1.0, 1e9), (x'ff', '1', 1, NULL), ('p', x'ff00', 1, NULL),
        ('p', '1', 'high', NULL), ('p', '1', x'01', NULL), ('p', '1', 1, 'tomorrow'), ('p', '1', 1, x'00'),
        ('p', '1', 1, 1e300)";
    file.run(sql, true).await;
    let drained = store.drain_inbox(DrainInbox { rows_max: 100, ..Default::default() });
    let drained = drained.await.unwrap();
    assert_eq!(drained.pushed.len(), 2, "{drained:?}");
    let why: Vec<_> =
        drained.refused.iter().map(|row| row.why.split(':').next().unwrap()).collect();
    assert_eq!(why, ["queue", "payload", "priority", "priority", "run_at", "run_at", "run_at"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_the_views_show_every_job_lane_and_node_as_the_store_does() {
    sql_views::the_views_show_every_job_lane_and_node_as_the_store_does(File::new()).await;
}
