//! Creating and upgrading the tables.

use super::error::Try;
use super::pool::{Loan, Pool};
use super::sql::{CLOCK, Columns};
use crate::model::{Error, ErrorKind};

/// The oldest version with an upgrade.
const OLDEST: i64 = 7;
/// What changes the tables from each version since [`OLDEST`] to the next. [`SCHEMA`] adds the new tables.
const STEPS: [&str; 6] = [
    // Routes and classes have room for a group.
    "ALTER TABLE seriatim_lane MODIFY class BIGINT NOT NULL DEFAULT 0, MODIFY route BIGINT NOT NULL DEFAULT 0",
    // The ended jobs of a key are found without the others.
    "ALTER TABLE seriatim_ended ADD KEY ended_key (q, state, k)",
    // Only a view has changed.
    "DO 0",
    // Again. Rescues look at claims that earlier builds made when they look at all.
    "DO 0",
    // More that a row of the inbox may say of its job.
    "ALTER TABLE seriatim_inbox ADD COLUMN max_retries INT NULL, ADD COLUMN key_group TEXT NULL",
    // A wake-up may be for two processes.
    "ALTER TABLE seriatim_ring ADD COLUMN a BIGINT NOT NULL DEFAULT 0, ADD COLUMN b BIGINT NOT NULL DEFAULT 0",
];
/// The version that this build writes and reads.
const VERSION: i64 = OLDEST + STEPS.len() as i64;
const SCHEMA: &str = include_str!("schema.sql");
/// Limit in seconds for waiting for another node's migration.
const LOCK_SECONDS: u32 = 60;

/// Creates what is missing, one node at a time. DDL cannot be rolled back, so every statement is repeatable and the
/// version is written last.
pub(super) async fn migrate(pool: &Pool) -> Try<()> {
    let mut loan = pool.lend().await?;
    if version(&mut loan).await? != Some(VERSION) {
        let lock = format!("SELECT GET_LOCK(CONCAT('seriatim ', MD5(DATABASE())), {LOCK_SECONDS})");
        let got = loan.rows(&lock).await?.into_iter().next().map(Columns::of);
        if got.map(|mut row| row.maybe_int()).transpose()?.flatten() != Some(1) {
            let message = "another node has been setting the store up for a minute: try again";
            return Err(Error::new(ErrorKind::Unavailable, message).into());
        }
        let done = create(&mut loan).await;
        loan.run("DO RELEASE_LOCK(CONCAT('seriatim ', MD5(DATABASE())))").await?;
        done?;
    }
    loan.give_back();
    Ok(())
}

/// Refuses a store that [`migrate`] would change. Writes nothing.
pub(super) async fn check(pool: &Pool) -> Try<()> {
    let mut loan = pool.lend().await?;
    let found = version(&mut loan).await?;
    loan.give_back();
    match found {
        Some(VERSION) => Ok(()),
        Some(found @ OLDEST..VERSION) => {
            let message = format!(
                "the store in MySQL has version {found}, this program needs {VERSION}: migrate it first"
            );
            Err(Error::new(ErrorKind::Conflict, message).into())
        }
        Some(other) => Err(other_version(other).into()),
        None => Err(not_set_up().into()),
    }
}

pub(super) fn not_set_up() -> Error {
    Error::new(ErrorKind::NotFound, "the store has not been set up here: migrate it first")
}

async fn create(loan: &mut Loan<'_>) -> Try<()> {
    match version(loan).await? {
        Some(VERSION) => return Ok(()),
        Some(found @ OLDEST..VERSION) => {
            for step in &STEPS[(found - OLDEST) as usize..] {
                match loan.run(step).await {
                    Err(fail) if fail.is_there_already() => {}
                    result => drop(result?),
                }
            }
        }
        Some(other) => return Err(other_version(other).into()),
        None => {}
    }
    loan.run(SCHEMA).await?;
    // Nodes may have cached the definitions of a store that was emptied: a new version invalidates them.
    let meta = format!(
        "INSERT INTO seriatim_meta (id, version, definitions) VALUES (1, {VERSION}, {CLOCK}) \
         ON DUPLICATE KEY UPDATE version = {VERSION}"
    );
    loan.run(&meta).await?;
    Ok(())
}

async fn version(loan: &mut Loan<'_>) -> Try<Option<i64>> {
    let exists = "SELECT COUNT(*) FROM information_schema.tables \
                  WHERE table_schema = DATABASE() AND table_name = 'seriatim_meta'";
    let count = loan.rows(exists).await?.into_iter().next().map(Columns::of);
    if count.map(|mut row| row.int()).transpose()?.unwrap_or_default() == 0 {
        return Ok(None);
    }
    let rows = loan.rows("SELECT version FROM seriatim_meta WHERE id = 1").await?;
    rows.into_iter().next().map(|row| Columns::of(row).int()).transpose()
}

fn other_version(found: i64) -> Error {
    let remedy = match found < VERSION {
        true => "empty it with the build that wrote it, then drop its tables and views",
        false => "use the build that wrote it, or a newer one",
    };
    let message = format!(
        "the store in MySQL has version {found} and this build knows version {VERSION}: {remedy}"
    );
    Error::new(ErrorKind::Conflict, message)
}
