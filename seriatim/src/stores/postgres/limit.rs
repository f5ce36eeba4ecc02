//! The bare limit: the least SQL that gives the same guarantees, to measure ourselves against.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio_postgres::Client;

use super::error;
use super::options::Options;
use crate::model::error::{Error, ErrorKind, Result};

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

/// Jobs per second of two statements in two durable transactions for each batch: claim (`UPDATE …
/// RETURNING`), then `DELETE`, on one table with two indexes, from so many clients at once. Makes
/// its table anew beside the store's and removes it.
pub async fn bare_limit(url: &str, jobs: usize, batch: usize, clients: usize) -> Result<f64> {
    let options = Options::parse(url)?;
    let sql = |text: &str| super::pool::in_schema(text, &options.schema);
    let mut sessions = Vec::new();
    for _ in 0..clients.max(1) {
        let tls = options.tls.clone();
        let (client, driver) = options.config.connect(tls).await.map_err(error::of_driver)?;
        tokio::spawn(driver);
        sessions.push(client);
    }
    for statement in CREATE.replace("JOBS", &jobs.to_string()).split("; ") {
        sessions[0].batch_execute(&sql(statement)).await.map_err(error::of_driver)?;
    }
    let done = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let (claim, finish) = (sql(CLAIM), sql(FINISH));
    let drains = sessions.into_iter().map(|client| {
        let (claim, finish, done) = (claim.clone(), finish.clone(), done.clone());
        tokio::spawn(async move { drain(client, &claim, &finish, batch, jobs, &done).await })
    });
    let drains: Vec<_> = drains.collect();
    let mut client = None;
    for drain in drains {
        let ended = drain.await;
        let broken = |e| Error::new(ErrorKind::Internal, "a measuring task ended").because(e);
        client = Some(ended.map_err(broken)?.map_err(error::of_driver)?);
    }
    let rate = jobs as f64 / started.elapsed().as_secs_f64();
    if let Some(client) = client {
        let drop = sql("DROP TABLE seriatim.bare");
        client.batch_execute(&drop).await.map_err(error::of_driver)?;
    }
    Ok(rate)
}

async fn drain(
    client: Client,
    claim: &str,
    finish: &str,
    batch: usize,
    jobs: usize,
    done: &AtomicUsize,
) -> Result<Client, tokio_postgres::Error> {
    let (claim, finish) = (client.prepare(claim).await?, client.prepare(finish).await?);
    while done.load(Ordering::Relaxed) < jobs {
        let rows = client.query(&claim, &[&(batch as i64)]).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            break;
        }
        client.execute(&finish, &[&ids]).await?;
        done.fetch_add(ids.len(), Ordering::Relaxed);
    }
    Ok(client)
}
