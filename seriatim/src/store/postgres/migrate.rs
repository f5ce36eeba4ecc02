//! Setting the store up.

use super::error;
use super::pool::{Pool, in_schema};
use crate::error::{Error, ErrorKind, Result};

/// The version that this build writes and reads.
const VERSION: i32 = 1;

const SCRIPTS: [&str; 10] = [
    include_str!("sql/schema.sql"),
    include_str!("sql/base.sql"),
    include_str!("sql/queue.sql"),
    include_str!("sql/push.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/node.sql"),
    include_str!("sql/people.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/entry.sql"),
];

/// Creates all in one transaction, one node at a time.
pub(super) async fn migrate(pool: &Pool) -> Result<()> {
    let mut loan = pool.lend().await?;
    let Some(client) = loan.client() else {
        return Ok(());
    };
    let step = client.transaction().await.map_err(error::of_driver)?;
    let sql = |text: &str| in_schema(text, &pool.schema);
    let lock = sql("SELECT pg_advisory_xact_lock(hashtext('migrate seriatim.'))");
    step.execute(&lock, &[]).await.map_err(error::of_driver)?;
    let version = version(&step, &pool.schema).await?;
    match version {
        Some(VERSION) => return Ok(()),
        Some(other) => return Err(other_version(other)),
        None => {}
    }
    // Not `IF NOT EXISTS`: that needs the right to create even when there is nothing to create.
    let exists = sql("SELECT to_regnamespace(rtrim('seriatim.', '.')) IS NOT NULL");
    if !step.query_one(&exists, &[]).await.map_err(error::of_driver)?.get::<_, bool>(0) {
        let create = format!("CREATE SCHEMA {}", pool.schema);
        step.batch_execute(&create).await.map_err(error::of_driver)?;
    }
    for script in SCRIPTS {
        step.batch_execute(&sql(script)).await.map_err(error::of_driver)?;
    }
    let done = sql("INSERT INTO seriatim.meta (version) VALUES ($1)");
    step.execute(&done, &[&VERSION]).await.map_err(error::of_driver)?;
    step.execute(&sql("SELECT seriatim.reseed()"), &[]).await.map_err(error::of_driver)?;
    step.commit().await.map_err(error::of_driver)
}

async fn version(step: &tokio_postgres::Transaction<'_>, schema: &str) -> Result<Option<i32>> {
    let exists = in_schema("SELECT to_regclass('seriatim.meta') IS NOT NULL", schema);
    if !step.query_one(&exists, &[]).await.map_err(error::of_driver)?.get::<_, bool>(0) {
        return Ok(None);
    }
    let version = in_schema("SELECT version FROM seriatim.meta", schema);
    let row = step.query_opt(&version, &[]).await.map_err(error::of_driver)?;
    Ok(row.map(|row| row.get(0)))
}

fn other_version(found: i32) -> Error {
    let message = format!(
        "the store in PostgreSQL has version {found} and this build knows version {VERSION}: \
         use the build that wrote it, or a newer one"
    );
    Error::new(ErrorKind::Conflict, message)
}
