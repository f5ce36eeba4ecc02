//! apalis on SQLite, with claims in batches of 1,000 and one connection, its fastest settings here.
//!
//! Without results (`KEPT` 0), it never stores that a job is done: after a restart it runs all of them again. With results,
//! each completion scans the table, so its speed falls with the number of jobs.

use std::str::FromStr;
use std::time::Duration;

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage, queries};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::{Figures, PUSH_BATCH, all_of, did, from_callers, rate};

const CONCURRENCY: usize = 50;
const BATCH: usize = 1_000;
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const QUEUE: &str = "blank";

async fn handle(_: u64) -> Result<(), BoxDynError> {
    did();
    Ok(())
}

fn task(number: u64) -> apalis_sqlite::SqliteTask {
    TaskBuilder::new(serde_json::to_vec(&number).unwrap()).build()
}

pub async fn measure(url: &str, jobs: u64, kept: usize) -> Figures {
    // As durable as Seriatim: a commit is on disk.
    let options = SqliteConnectOptions::from_str(url)
        .unwrap()
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(30));
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    SqliteStorage::setup(&pool).await.unwrap();
    let push = rate(jobs, async {
        for first in (0..jobs).step_by(PUSH_BATCH as usize) {
            let tasks: Vec<_> = (first..jobs.min(first + PUSH_BATCH)).map(task).collect();
            let mut transaction = pool.begin().await.unwrap();
            queries::push_tasks(&mut *transaction, QUEUE, &tasks).await.unwrap();
            transaction.commit().await.unwrap();
        }
    });
    let push = push.await;
    let config = Config::default().queue(QUEUE).batch_size(BATCH);
    let config = config.lock_tasks(kept == 1).persist_results(kept == 1);
    let backend =
        SqliteStorage::<u64>::new(&pool).with_config(config).poll_with_interval(POLL_INTERVAL);
    let worker =
        WorkerBuilder::new("bench").backend(backend).concurrency(CONCURRENCY).build(handle);
    let drain = rate(jobs, async {
        let all = all_of(jobs);
        let all = async move {
            all.await;
            Ok::<(), std::io::Error>(())
        };
        worker.run_until(all).await.unwrap();
    });
    let drain = drain.await;
    let single = from_callers(jobs, || async {
        let mut connection = pool.acquire().await.unwrap();
        queries::push_tasks(&mut *connection, "later", &[task(0)]).await.unwrap();
    });
    Figures { push, single: single.await, drain }
}
