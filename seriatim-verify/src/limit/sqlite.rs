//! SQLite's limit and size.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::{TransactionBehavior, params};
use seriatim::{Result, store::Sqlite};

use super::shared::{BATCH, failed};

const CREATE: &str = "DROP TABLE IF EXISTS bare;
    CREATE TABLE bare (id INTEGER PRIMARY KEY, st INTEGER NOT NULL, due INTEGER NOT NULL, owner INTEGER, body BLOB);
    CREATE INDEX bare_ready ON bare (due) WHERE st = 0;";
const FILL: &str = "INSERT INTO bare (st, due, body) VALUES (0, ?1, x'7b7d')";
const CLAIM: &str = "UPDATE bare SET st = 1, owner = 7 WHERE id IN
    (SELECT id FROM bare WHERE st = 0 ORDER BY due LIMIT ?1) RETURNING id, body";
const FINISH: &str = "DELETE FROM bare WHERE id = ?1 AND owner = 7";

/// Measures on a separate file beside the store's.
pub(super) async fn jobs_per_second(path: &str, jobs: usize) -> Result<f64> {
    let file = PathBuf::from(format!("{path}.limit"));
    let measured = {
        let file = file.clone();
        tokio::task::spawn_blocking(move || measure(&file, jobs)).await
    };
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    measured.map_err(failed)?
}

/// Two statements in two durable transactions per batch: claim (`UPDATE … RETURNING`), then `DELETE`, on one table
/// with one index.
fn measure(path: &Path, jobs: usize) -> Result<f64> {
    let mut session = Sqlite::session(path)?;
    drain(&mut session, jobs).map_err(failed)
}

fn drain(session: &mut rusqlite::Connection, jobs: usize) -> rusqlite::Result<f64> {
    session.execute_batch(CREATE)?;
    let fill = session.transaction()?;
    for due in 0..jobs as i64 {
        fill.prepare_cached(FILL)?.execute([due])?;
    }
    fill.commit()?;
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let claim = session.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let claimed: Vec<(i64, Vec<u8>)> = claim
            .prepare_cached(CLAIM)?
            .query_map([BATCH as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        claim.commit()?;
        let finish = session.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (id, _) in &claimed {
            finish.prepare_cached(FINISH)?.execute(params![id])?;
        }
        finish.commit()?;
        done += claimed.len();
    }
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}

/// Size of the database and its log, in bytes.
pub(super) fn bytes(path: &str) -> u64 {
    let length = |end| std::fs::metadata(format!("{path}{end}")).map_or(0, |file| file.len());
    length("") + length("-wal")
}
