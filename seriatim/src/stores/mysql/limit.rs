//! The bare limit: the least SQL that gives the same guarantees, to measure ourselves against.

use std::time::Instant;

use super::error::Try;
use super::options::Options;
use super::pool::{Loan, Pool};
use super::sql::{Columns, list};
use crate::model::error::Result;

/// Jobs per second of the least statements in two transactions for each batch: claim (lock, read, mark),
/// then delete, on one table with one index. The table `seriatim_bare` is created anew and dropped.
pub async fn bare_limit(url: &str, jobs: usize, batch: usize) -> Result<f64> {
    let pool = Pool::new(Options::parse(url)?);
    let mut loan = pool.lend().await?;
    let measured = measure(&mut loan, jobs, batch).await;
    loan.run("DROP TABLE IF EXISTS seriatim_bare").await?;
    Ok(measured?)
}

async fn measure(loan: &mut Loan<'_>, jobs: usize, batch: usize) -> Try<f64> {
    loan.run(
        "DROP TABLE IF EXISTS seriatim_bare; \
         CREATE TABLE seriatim_bare (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, st TINYINT NOT NULL, \
         due BIGINT NOT NULL, owner BIGINT NULL, body BLOB, KEY ready (st, due)) ENGINE = InnoDB",
    )
    .await?;
    let numbers: Vec<usize> = (0..jobs).collect();
    for some in numbers.chunks(batch) {
        let rows: Vec<String> = some.iter().map(|due| format!("(0,{due},'{{}}')")).collect();
        let sql = format!("INSERT INTO seriatim_bare (st, due, body) VALUES {}", rows.join(","));
        loan.run(&sql).await?;
    }
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let claim = format!(
            "START TRANSACTION; SELECT id, body FROM seriatim_bare FORCE INDEX (ready) WHERE st = 0 \
             ORDER BY due LIMIT {batch} FOR UPDATE SKIP LOCKED"
        );
        let rows = loan.run(&claim).await?.into_iter().nth(1).map(|answer| answer.rows);
        let rows = rows.unwrap_or_default().into_iter();
        let ids: Try<Vec<u64>> = rows.map(|row| Ok(Columns::of(row).int()? as u64)).collect();
        let ids = ids?;
        let all = list(ids.iter().copied());
        loan.run(&format!(
            "UPDATE seriatim_bare SET st = 1, owner = 7 WHERE id IN ({all}); COMMIT"
        ))
        .await?;
        loan.run(&format!("DELETE FROM seriatim_bare WHERE id IN ({all}) AND owner = 7")).await?;
        done += ids.len();
    }
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}
