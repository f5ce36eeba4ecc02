//! Whom a push wakes of the processes that wait.

use super::*;
use crate::stores::waiting::{self, Place, Waiting};

/// A schema, and a session to look at it.
struct Schema(String, tokio_postgres::Client);

impl Schema {
    async fn new() -> Self {
        Self(new_schema(), session().await)
    }

    async fn run(&self, sql: &str) {
        self.1.batch_execute(&in_schema(sql, &self.0)).await.unwrap();
    }
}

impl Place for Schema {
    async fn open(&self) -> SharedStore {
        open(&self.0).await
    }

    async fn sleepers(&self) -> usize {
        let sql = in_schema("SELECT count(*) FROM seriatim.sleeper", &self.0);
        self.1.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) as usize
    }

    async fn forget_all_but_one(&self) {
        let others = "place <> (SELECT min(place) FROM seriatim.sleeper)";
        self.run(&format!("DELETE FROM seriatim.sleeper WHERE {others}")).await;
    }
}

waiting::cases!(Schema::new());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_woken_if_one_of_two_is_gone_and_it_is_forgotten() {
    let schema = Schema::new().await;
    let mut waiting = Waiting::new(&schema).await;
    schema.forget_all_but_one().await;
    schema.run("INSERT INTO seriatim.sleeper VALUES ('q', 1, 2147483647)").await;
    waiting.push(vec![job("a", 1)]).await;
    waiting.all_are_woken().await;
    assert_eq!(schema.sleepers().await, 1);
}

/// Processes enter themselves and wake others at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn wake_ups_of_many_processes_wait_for_none_of_them() {
    const CALLS: u32 = 300;
    let schema = Schema::new().await;
    let pusher = open(&schema.0).await;
    declare(&pusher, Queue::fifo("q")).await;
    let calls = (0..8).map(|place| {
        let name = schema.0.clone();
        tokio::spawn(async move {
            let session = session().await;
            for call in 0..CALLS {
                // Some are of sessions that are gone.
                let process = if call % 3 == 0 { "2147483647" } else { "pg_backend_pid()" };
                let wake = format!(
                    "SELECT seriatim.wake('c', '', 'q', 'r', 'q,r', 's', {place}, {process})"
                );
                session.batch_execute(&in_schema(&wake, &name)).await.unwrap();
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

/// As a server has that only shows pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_may_only_read_hears_wake_ups() {
    let schema = Schema::new().await;
    let writer = open(&schema.0).await;
    declare(&writer, Queue::fifo("q")).await;
    let reads = "options=-c%20default_transaction_read_only%3Don";
    let reader =
        Postgres::connect(&format!("{}?schema={}&{reads}", url(), schema.0)).await.unwrap();
    let mut wakeups = reader.wakeups();
    wakeups.wait(SOON).await.expect("it listens now");
    push(&writer, vec![job("a", 1)]).await;
    wakeups.wait(SOON).await.expect("it hears the push");
}
