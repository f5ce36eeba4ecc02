//! Creating and upgrading the schema.

use tokio_postgres::Client;

use super::error;
use super::pool::{Pool, in_schema};
use crate::model::{Error, ErrorKind, Result};

/// The oldest version with an upgrade.
const OLDEST: usize = 15;
/// Changes the tables from each version since [`OLDEST`] to the next. Views and functions are created again.
const STEPS: &[&str] = &[
    include_str!("sql/to_16.sql"),
    include_str!("sql/to_17.sql"),
    include_str!("sql/to_18.sql"),
    include_str!("sql/to_19.sql"),
    include_str!("sql/to_20.sql"),
    include_str!("sql/to_21.sql"),
    include_str!("sql/to_22.sql"),
    include_str!("sql/to_23.sql"),
    include_str!("sql/to_24.sql"),
    include_str!("sql/to_25.sql"),
    include_str!("sql/to_26.sql"),
    include_str!("sql/to_27.sql"),
    include_str!("sql/to_28.sql"),
    include_str!("sql/to_29.sql"),
    include_str!("sql/to_30.sql"),
    include_str!("sql/to_31.sql"),
    include_str!("sql/to_32.sql"),
    include_str!("sql/to_33.sql"),
    include_str!("sql/to_34.sql"),
    include_str!("sql/to_35.sql"),
    include_str!("sql/to_36.sql"),
    include_str!("sql/to_37.sql"),
    include_str!("sql/to_38.sql"),
    include_str!("sql/to_39.sql"),
    include_str!("sql/to_40.sql"),
    include_str!("sql/to_41.sql"),
    include_str!("sql/to_42.sql"),
    include_str!("sql/to_43.sql"),
    include_str!("sql/to_44.sql"),
    include_str!("sql/to_45.sql"),
];
/// The version that this build reads and writes.
pub(super) const VERSION: usize = OLDEST + STEPS.len();
/// What [`version`] answers when all tables were emptied, its own too.
const EMPTIED: usize = 0;

const SCHEMA: &str = include_str!("sql/schema.sql");

/// Before the tables change: views would keep columns from changing their types.
const DROP: &str = include_str!("sql/drop.sql");
/// Scripts without data, which may run again.
const FUNCTIONS: &[&str] = &[
    include_str!("sql/storage.sql"),
    include_str!("sql/rows.sql"),
    include_str!("sql/batches.sql"),
    include_str!("sql/base.sql"),
    include_str!("sql/queue.sql"),
    include_str!("sql/window.sql"),
    include_str!("sql/push.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/share.sql"),
    include_str!("sql/going_on.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/node.sql"),
    include_str!("sql/wake.sql"),
    include_str!("sql/actions.sql"),
    include_str!("sql/deletion.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/inbox.sql"),
    include_str!("sql/views.sql"),
    include_str!("sql/listing.sql"),
    include_str!("sql/entry.sql"),
];

/// Creates or upgrades everything in one transaction, one node at a time.
pub(super) async fn migrate(pool: &Pool) -> Result<()> {
    let mut loan = pool.lend().await?;
    if let Some(client) = loan.client() {
        set_up(client, pool).await?;
        loan.ended();
    }
    Ok(())
}

async fn set_up(client: &mut Client, pool: &Pool) -> Result<()> {
    let step = client.transaction().await.map_err(error::of_driver)?;
    let sql = |text: &str| in_schema(text, &pool.schema);
    let lock = sql("SELECT pg_advisory_xact_lock(hashtext('migrate seriatim.'))");
    step.batch_execute(&lock).await.map_err(error::of_driver)?;
    // `LOCAL`: a pooler may share the session between clients.
    let quiet = "SET LOCAL client_min_messages = warning; SET LOCAL search_path = pg_catalog";
    step.batch_execute(quiet).await.map_err(error::of_driver)?;
    let tables = match version(&step, &pool.schema).await? {
        Some(VERSION) => return raise_tokens(step, &pool.schema).await,
        Some(EMPTIED) => &[][..],
        Some(found) if (OLDEST..VERSION).contains(&found) => &STEPS[found - OLDEST..],
        Some(other) => return Err(other_version(other)),
        None => &[SCHEMA],
    };
    // Not `IF NOT EXISTS`: that requires the right to create even if the schema exists.
    let exists = sql("SELECT to_regnamespace(rtrim('seriatim.', '.')) IS NOT NULL");
    if !is_true(&step, &exists).await? {
        let create = format!("CREATE SCHEMA {}", pool.schema);
        step.batch_execute(&create).await.map_err(error::of_driver)?;
    }
    for script in [DROP].iter().chain(tables).chain(FUNCTIONS) {
        step.batch_execute(&sql(script)).await.map_err(error::of_driver)?;
    }
    let done = format!(
        "INSERT INTO seriatim.meta (version) VALUES ({VERSION}) \
         ON CONFLICT (one) DO UPDATE SET version = excluded.version; SELECT seriatim.reseed()"
    );
    step.batch_execute(&sql(&done)).await.map_err(error::of_driver)?;
    step.commit().await.map_err(error::of_driver)
}

/// Raises the tokens to the clock: a backup may have been restored, with old ones.
async fn raise_tokens(step: tokio_postgres::Transaction<'_>, schema: &str) -> Result<()> {
    let reseed = in_schema("SELECT seriatim.reseed()", schema);
    match step.batch_execute(&reseed).await.map_err(error::of_driver) {
        // A read-only session draws no tokens.
        Err(e) if e.kind() == ErrorKind::ReadOnly => step.rollback().await,
        result => {
            result?;
            step.commit().await
        }
    }
    .map_err(error::of_driver)
}

/// Refuses a store that [`migrate`] would change. Reads only.
pub(super) async fn check(pool: &Pool) -> Result<()> {
    let mut loan = pool.lend().await?;
    let Some(client) = loan.client() else {
        return Ok(());
    };
    let step = client.transaction().await.map_err(error::of_driver)?;
    let found = version(&step, &pool.schema).await?;
    step.rollback().await.map_err(error::of_driver)?;
    loan.ended();
    match found {
        Some(VERSION) => Ok(()),
        Some(other) if (OLDEST..VERSION).contains(&other) => {
            let message = format!(
                "the schema {} has version {other}, this program needs {VERSION}: migrate it first",
                pool.schema
            );
            Err(Error::new(ErrorKind::Conflict, message))
        }
        Some(other) => Err(other_version(other)),
        None => {
            let message = format!("the schema {} holds no store: migrate it first", pool.schema);
            Err(Error::new(ErrorKind::NotFound, message))
        }
    }
}

async fn version(step: &tokio_postgres::Transaction<'_>, schema: &str) -> Result<Option<usize>> {
    let exists = in_schema("SELECT to_regclass('seriatim.meta') IS NOT NULL", schema);
    if !is_true(step, &exists).await? {
        return Ok(None);
    }
    let version = in_schema("SELECT version FROM seriatim.meta", schema);
    let rows = step.query_typed(&version, &[]).await.map_err(error::of_driver)?;
    Ok(Some(rows.first().map_or(EMPTIED, |row| row.get::<_, i32>(0) as usize)))
}

async fn is_true(step: &tokio_postgres::Transaction<'_>, sql: &str) -> Result<bool> {
    let rows = step.query_typed(sql, &[]).await.map_err(error::of_driver)?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

fn other_version(found: usize) -> Error {
    if found < OLDEST {
        let message = format!(
            "the store in PostgreSQL has version {found}, of a build before the first release, and this \
             build knows version {VERSION}: drain it with the build that wrote it, then drop its schema"
        );
        return Error::new(ErrorKind::Conflict, message);
    }
    let message = format!(
        "the store in PostgreSQL has version {found} and this build knows version {VERSION}: \
         use the build that wrote it, or a newer one"
    );
    Error::new(ErrorKind::Conflict, message)
}
