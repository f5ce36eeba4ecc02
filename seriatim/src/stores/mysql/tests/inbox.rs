//! What people do with SQL: the inbox and the views.

use async_trait::async_trait;

use super::super::gates::Lock;
use super::super::inbox::oldest;
use super::*;
use crate::contract::{DrainInbox, Drained, Inbox, SharedStore};
use crate::stores::sql_session::Database;
use crate::stores::{inbox, sql_views};

/// A separate database.
#[derive(Clone)]
struct Own(String);

#[async_trait]
impl Database for Own {
    async fn open(&self) -> SharedStore {
        open(&self.0).await
    }

    async fn run(&self, sql: &str, commits: bool) {
        let mut session = session(&self.0).await;
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        let sql = format!("SET time_zone = '+00:00'; START TRANSACTION; {}; {end}", written(sql));
        session.query_drop(sql).await.unwrap();
    }

    async fn rows(&self, sql: &str) -> (Vec<String>, Vec<Vec<Option<String>>>) {
        let mut session = session(&self.0).await;
        session.query_drop("SET time_zone = '+00:00'").await.unwrap();
        let mut answer = session.query_iter(written(sql)).await.unwrap();
        let columns = answer.columns().unwrap();
        let names = columns.iter().map(|column| column.name_str().into_owned()).collect();
        let rows: Vec<mysql_async::Row> = answer.collect().await.unwrap();
        let text = |value: mysql_async::Value| match value {
            mysql_async::Value::Bytes(bytes) => Some(String::from_utf8(bytes).unwrap()),
            _ => None,
        };
        (names, rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    fn micros(&self, column: &str) -> String {
        format!("CAST(UNIX_TIMESTAMP({column}) * 1000000 AS SIGNED)")
    }
}

fn written(sql: &str) -> String {
    sql.replace("@key", "`key`").replace('@', "seriatim_")
}

async fn drained(store: &Mysql) -> Drained {
    store.drain_inbox(DrainInbox { rows_max: 1_000, ..Default::default() }).await.unwrap()
}

inbox::tests::cases!(Own(new_database().await));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_an_earlier_version_are_pushed_after_the_upgrade() {
    let before = "ALTER TABLE @inbox DROP COLUMN max_retries, DROP COLUMN key_group; UPDATE @meta SET version = 11";
    let case = inbox::tests::rows_of_an_earlier_version_are_pushed_after_the_upgrade;
    case(Own(new_database().await), before).await;
}

#[tokio::test]
async fn of_the_rows_behind_a_step_few_payloads_are_read() {
    const ROWS: usize = 120;
    let database = new_database().await;
    let store = reading::open_one(&database).await;
    let mut session = session(&database).await;
    let row = written(
        "INSERT INTO @inbox (queue, payload) VALUES ('q', CONCAT('\"', REPEAT('x', 524286), '\"'))",
    );
    session.query_drop(vec![row; ROWS].join(";")).await.unwrap();
    // What the whole server has read: other tests add to it.
    let mut pages = async || {
        let sql = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'";
        let row: Option<(String, u64)> = session.query_first(sql).await.unwrap();
        row.unwrap().1
    };
    let mut least = u64::MAX;
    for _ in 0..5 {
        let before = pages().await;
        let oldest = transact!(store.inner, Lock::Look, None, work => oldest(work, 1_000, &[]));
        least = least.min(pages().await - before);
        assert_eq!(oldest.unwrap().rows.len(), 32);
    }
    let all = (ROWS * (512 << 10) / (16 << 10)) as u64;
    assert!(least < all * 2 / 3, "{least} pages, of {all}");
}

#[tokio::test]
async fn a_row_that_commits_late_is_not_lost_and_follows_those_before_it() {
    let database = new_database().await;
    let store = open(&database).await;
    let insert = |number: u32| {
        written(&format!("INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'k', '{number}')"))
    };
    let (mut late, mut soon) = (session(&database).await, session(&database).await);
    late.query_drop(format!("START TRANSACTION; {}", insert(1))).await.unwrap();
    soon.query_drop(insert(2)).await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 2, "it does not wait for others");
    late.query_drop("COMMIT").await.unwrap();
    soon.query_drop(insert(3)).await.unwrap();
    let rest: Vec<_> =
        drained(&store).await.jobs.iter().map(|job| job.payload.to_value()).collect();
    assert_eq!(rest, [1, 3], "in the order of the commits");
}

#[tokio::test]
async fn a_row_that_a_transaction_has_locked_is_passed_by() {
    let database = new_database().await;
    let store = open(&database).await;
    let two = written(
        "INSERT INTO @inbox (queue, @key, payload) VALUES ('q', 'a', '1'), ('q', 'b', '2')",
    );
    let mut session = session(&database).await;
    session.query_drop(two).await.unwrap();
    let locked = written("START TRANSACTION; DELETE FROM @inbox WHERE id = 1");
    session.query_drop(locked).await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 2);
    session.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 1);
}

#[tokio::test]
async fn locked_rows_are_passed_by_however_few_rows_a_step_takes() {
    let database = new_database().await;
    let store = open(&database).await;
    declare(&store, Queue::fifo("q")).await;
    let (mut user, mut holder) = (session(&database).await, session(&database).await);
    let into = written("INSERT INTO @inbox (queue, @key, payload) VALUES");
    user.query_drop(format!("{into} ('q', 'k', '1'), ('q', 'k', '2')")).await.unwrap();
    let lock = written("START TRANSACTION; SELECT id FROM @inbox WHERE id = 1 FOR UPDATE");
    holder.query_drop(lock).await.unwrap();
    let one = DrainInbox { rows_max: 1, ..Default::default() };
    assert_eq!(store.drain_inbox(one).await.unwrap().jobs[0].payload.to_value(), 2);
    // The store refuses the second, so the first is pushed alone.
    user.query_drop(format!("{into} ('q', 'k', '3'), ('q', NULL, '4')")).await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 3);
    holder.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(drained(&store).await.jobs[0].payload.to_value(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_the_views_show_every_job_lane_and_node_as_the_store_does() {
    sql_views::the_views_show_every_job_lane_and_node_as_the_store_does(Own(new_database().await))
        .await;
}
