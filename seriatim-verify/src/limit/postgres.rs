//! PostgreSQL's limit and size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use seriatim::{Result, store::Postgres};
use tokio_postgres::Client;

use super::shared::{BATCH, failed};

/// Concurrent sessions: the server makes them wait for each other's flushes.
const CLIENTS: usize = 5;

const CREATE: &str = "DROP TABLE IF EXISTS seriatim.bare; \
    CREATE TABLE seriatim.bare (id bigint PRIMARY KEY, st smallint NOT NULL, due bigint NOT NULL, \
      owner int, body bytea) WITH (autovacuum_enabled = false); \
    CREATE INDEX bare_ready ON seriatim.bare (due, id) WHERE st = 0; \
    INSERT INTO seriatim.bare SELECT i, 0, i, NULL, '{}' FROM generate_series(1, JOBS) i; \
    VACUUM ANALYZE seriatim.bare; CHECKPOINT";
const CLAIM: &str = "UPDATE seriatim.bare b SET st = 1, owner = 7 FROM (SELECT id FROM seriatim.bare \
    WHERE st = 0 ORDER BY due, id LIMIT $1 FOR UPDATE SKIP LOCKED) c WHERE b.id = c.id \
    RETURNING b.id, b.body";
const FINISH: &str = "DELETE FROM seriatim.bare WHERE id = ANY ($1) AND owner = 7";
const DROP: &str = "DROP TABLE seriatim.bare";
const SIZE: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class \
    WHERE relnamespace = rtrim('seriatim.', '.')::regnamespace AND relkind = 'r'";

/// Two statements in two durable transactions per batch: claim (`UPDATE … RETURNING`), then `DELETE`, on one table
/// with two indexes. The table is created beside the store's and removed.
pub(super) async fn jobs_per_second(url: &str, jobs: usize) -> Result<f64> {
    let store = Postgres::connect(url).await?;
    let mut sessions = Vec::new();
    for _ in 0..CLIENTS {
        sessions.push(Arc::new(store.session().await?));
    }
    let create = store.in_schema(CREATE).replace("JOBS", &jobs.to_string());
    for statement in create.split("; ") {
        sessions[0].batch_execute(statement).await.map_err(failed)?;
    }
    let done = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let (claim, finish) = (store.in_schema(CLAIM), store.in_schema(FINISH));
    let drains = sessions.iter().map(|session| {
        let (session, claim, finish) = (session.clone(), claim.clone(), finish.clone());
        let done = done.clone();
        tokio::spawn(async move { drain(&session, &claim, &finish, jobs, &done).await })
    });
    let drains: Vec<_> = drains.collect();
    for drain in drains {
        drain.await.map_err(failed)?.map_err(failed)?;
    }
    let rate = jobs as f64 / started.elapsed().as_secs_f64();
    sessions[0].batch_execute(&store.in_schema(DROP)).await.map_err(failed)?;
    Ok(rate)
}

async fn drain(
    session: &Client,
    claim: &str,
    finish: &str,
    jobs: usize,
    done: &AtomicUsize,
) -> Result<(), tokio_postgres::Error> {
    let (claim, finish) = (session.prepare(claim).await?, session.prepare(finish).await?);
    while done.load(Ordering::Relaxed) < jobs {
        let rows = session.query(&claim, &[&(BATCH as i64)]).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            break;
        }
        session.execute(&finish, &[&ids]).await?;
        done.fetch_add(ids.len(), Ordering::Relaxed);
    }
    Ok(())
}

/// Size of the store's tables with their indexes, in bytes.
pub(super) async fn bytes(url: &str) -> Result<u64> {
    let store = Postgres::connect(url).await?;
    let row = store.session().await?.query_one(&store.in_schema(SIZE), &[]).await;
    row.and_then(|row| row.try_get::<_, i64>(0)).map(|bytes| bytes as u64).map_err(failed)
}
