//! The limit and size of MySQL and MariaDB.

use std::time::Instant;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use seriatim::{Result, store::Mysql};

use super::shared::{BATCH, failed};

const CREATE: &str = "CREATE TABLE seriatim_bare (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, st TINYINT NOT NULL, \
    due BIGINT NOT NULL, owner BIGINT NULL, body BLOB, KEY ready (st, due)) ENGINE = InnoDB";
const DROP: &str = "DROP TABLE IF EXISTS seriatim_bare";
const SIZE: &str = "SELECT CAST(COALESCE(SUM(data_length + index_length + data_free), 0) AS SIGNED) \
    FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'seriatim\\_%'";

/// The fewest statements in two transactions per batch: claim (lock, read, mark), then delete, on one table with one
/// index. Creates and removes the table `seriatim_bare`.
pub(super) async fn jobs_per_second(url: &str, jobs: usize) -> Result<f64> {
    let mut session = Mysql::connect(url).await?.session().await?;
    session.query_drop(DROP).await.map_err(failed)?;
    let measured = measure(&mut session, jobs).await;
    session.query_drop(DROP).await.map_err(failed)?;
    measured.map_err(failed)
}

async fn measure(session: &mut Conn, jobs: usize) -> mysql_async::Result<f64> {
    session.query_drop(CREATE).await?;
    let numbers: Vec<usize> = (0..jobs).collect();
    for some in numbers.chunks(BATCH) {
        let rows: Vec<String> = some.iter().map(|due| format!("(0,{due},'{{}}')")).collect();
        let rows = rows.join(",");
        let fill = format!("INSERT INTO seriatim_bare (st, due, body) VALUES {rows}");
        session.query_drop(fill).await?;
    }
    let claim = format!(
        "START TRANSACTION; SELECT id, body FROM seriatim_bare FORCE INDEX (ready) WHERE st = 0 \
         ORDER BY due LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
    );
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let mut answers = session.query_iter(&claim).await?;
        // The result of `START TRANSACTION` has no rows.
        answers.collect::<mysql_async::Row>().await?;
        let rows: Vec<(u64, Vec<u8>)> = answers.collect().await?;
        answers.drop_result().await?;
        let ids: Vec<String> = rows.iter().map(|(id, _)| id.to_string()).collect();
        let all = ids.join(",");
        let mark =
            format!("UPDATE seriatim_bare SET st = 1, owner = 7 WHERE id IN ({all}); COMMIT");
        session.query_drop(mark).await?;
        let finish = format!("DELETE FROM seriatim_bare WHERE id IN ({all}) AND owner = 7");
        session.query_drop(finish).await?;
        done += ids.len();
    }
    Ok(jobs as f64 / started.elapsed().as_secs_f64())
}

/// Size of the store's tables with their indexes in bytes, as the server estimates it.
pub(super) async fn bytes(url: &str) -> Result<u64> {
    let mut session = Mysql::connect(url).await?.session().await?;
    let bytes: Option<i64> = session.query_first(SIZE).await.map_err(failed)?;
    Ok(bytes.unwrap_or_default() as u64)
}
