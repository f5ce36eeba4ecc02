//! The bare limit: the least SQL that gives the same guarantees, to measure ourselves against.

use std::path::Path;
use std::time::Instant;

use rusqlite::{TransactionBehavior, params};

use super::fault::translate;
use super::{Durability, connect_writer};
use crate::model::error::Result;

/// Jobs per second of two statements in two durable transactions for each batch: claim (`UPDATE …
/// RETURNING`), then `DELETE`, on one table with one index. The file at `path` is created anew.
pub fn bare_limit(path: &Path, jobs: usize, batch: usize) -> Result<f64> {
    let mut connection = connect_writer(path, Durability::Full, false)?;
    connection
        .execute_batch(
            "DROP TABLE IF EXISTS bare;
             CREATE TABLE bare (id INTEGER PRIMARY KEY, st INTEGER NOT NULL, due INTEGER NOT NULL, owner INTEGER, body BLOB);
             CREATE INDEX bare_ready ON bare (due) WHERE st = 0;",
        )
        .map_err(translate)?;
    let fill = connection.transaction().map_err(translate)?;
    for i in 0..jobs as i64 {
        let sql = "INSERT INTO bare (st, due, body) VALUES (0, ?1, x'7b7d')";
        fill.prepare_cached(sql).and_then(|mut s| s.execute([i])).map_err(translate)?;
    }
    fill.commit().map_err(translate)?;
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let claim = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(translate)?;
        let sql = "UPDATE bare SET st = 1, owner = 7 WHERE id IN
                   (SELECT id FROM bare WHERE st = 0 ORDER BY due LIMIT ?1) RETURNING id, body";
        let claimed: Vec<(i64, Vec<u8>)> = claim
            .prepare_cached(sql)
            .and_then(|mut s| {
                s.query_map([batch as i64], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .map_err(translate)?;
        claim.commit().map_err(translate)?;
        let finish = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(translate)?;
        for (id, _) in &claimed {
            let sql = "DELETE FROM bare WHERE id = ?1 AND owner = 7";
            finish
                .prepare_cached(sql)
                .and_then(|mut s| s.execute(params![id]))
                .map_err(translate)?;
        }
        finish.commit().map_err(translate)?;
        done += claimed.len();
    }
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}
