//! Creating and upgrading the schema.

use rusqlite::Connection;

use super::fault::translate;
use super::row::Sql;
use crate::model::{Error, ErrorKind, Result};

/// "Seri": lets `file` and SQLite's tools identify the file.
const APPLICATION_ID: i64 = 0x5365_7269;

/// The steps from each schema version to the next; the first creates version 1.
const MIGRATIONS: [&str; 18] = [
    include_str!("schema.sql"),
    GIVEN_UP,
    SECRET,
    CLOSED_ITEMS,
    include_str!("sql/ready.sql"),
    NAMES,
    RESERVED,
    NOTE,
    include_str!("sql/listed.sql"),
    concat!(include_str!("sql/inbox.sql"), include_str!("sql/views.sql")),
    include_str!("sql/share.sql"),
    concat!(include_str!("sql/drop_views.sql"), include_str!("sql/views.sql")),
    include_str!("sql/batch.sql"),
    include_str!("sql/batch_list.sql"),
    RETRYING,
    FAILED,
    concat!(
        include_str!("sql/expiry.sql"),
        include_str!("sql/drop_views.sql"),
        include_str!("sql/views.sql")
    ),
    INBOX_COLUMNS,
];

/// Claims and rescues of a node with a ticket up to this one take nothing.
const GIVEN_UP: &str = "ALTER TABLE node ADD COLUMN given_up INTEGER NOT NULL DEFAULT 0;";

/// The secret that the servers of a store share.
const SECRET: &str =
    "CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1), bytes BLOB NOT NULL);";

/// Claims under way may own jobs in `item`, which a settle looks for only if the lane has this flag.
const CLOSED_ITEMS: &str = "UPDATE lane SET flags = flags | 64 WHERE st = 2 AND n > 0;";

/// When the sweep looks at an idempotency key next. `until` stays what it was: from then on the key is known only while
/// its job is stored.
const NAMES: &str = "ALTER TABLE idempotency ADD COLUMN look_at INTEGER NOT NULL DEFAULT 0;
    UPDATE idempotency SET look_at = until;
    DROP INDEX idempotency_until;
    CREATE INDEX idempotency_look_at ON idempotency (look_at);";

/// Up to which token claims may be lost with the machine, and the boot in which that was last looked at.
const RESERVED: &str = "ALTER TABLE meta ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE meta ADD COLUMN boot TEXT NOT NULL DEFAULT '';";

/// The notebook.
const NOTE: &str = "CREATE TABLE note (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;";

/// How many lanes of a queue have failed and not succeeded since.
const RETRYING: &str = "ALTER TABLE queue ADD COLUMN retrying INTEGER NOT NULL DEFAULT 0;
    UPDATE queue SET retrying = (SELECT count(*) FROM lane WHERE q = number AND retry >= 0);";

/// `lane_worst` has the same lanes, and each failure would be written to both.
const FAILED: &str = "DROP INDEX lane_failed;";

/// More that a row of the inbox may say of its job.
const INBOX_COLUMNS: &str = "ALTER TABLE seriatim_inbox ADD COLUMN max_retries INTEGER;
    ALTER TABLE seriatim_inbox ADD COLUMN key_group TEXT;";

/// The version of the schema that this build reads and writes.
pub(super) const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Brings the file to [`SCHEMA_VERSION`]. Runs in a transaction with the write lock, so one of several processes
/// migrates and the others find it done.
pub(super) fn migrate(connection: &Connection) -> Result<()> {
    let version = version(connection).map_err(translate)?;
    check_owner(connection, version)?;
    if version > SCHEMA_VERSION {
        return Err(too_new(version));
    }
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(version.max(0) as usize) {
        let mark = format!(
            "PRAGMA user_version = {}; PRAGMA application_id = {APPLICATION_ID};",
            step + 1
        );
        connection.execute_batch(sql).map_err(translate)?;
        connection.execute_batch(&mark).map_err(translate)?;
    }
    Ok(())
}

/// Refuses a file that [`migrate`] would change. Reads only.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let version = version(connection).map_err(translate)?;
    check_owner(connection, version)?;
    match version {
        0 => {
            let message = "no store was ever set up in this file: migrate it first";
            Err(Error::new(ErrorKind::NotFound, message))
        }
        version if version > SCHEMA_VERSION => Err(too_new(version)),
        version if version < SCHEMA_VERSION => Err(too_old(version)),
        _ => Ok(()),
    }
}

/// Refuses the database of another program: writing to it would damage both.
fn check_owner(connection: &Connection, version: i64) -> Result<()> {
    let owner: i64 = pragma(connection, "application_id").map_err(translate)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(translate)?;
    if owner == APPLICATION_ID || (owner == 0 && version == 0 && tables == 0) {
        return Ok(());
    }
    let message = "the file belongs to another program: name another file";
    Err(Error::new(ErrorKind::Conflict, message))
}

/// Explains why the first statement of a transaction failed: the schema may be missing or of another version.
pub(super) fn explain(connection: &Connection, error: rusqlite::Error) -> Error {
    if error.sqlite_error_code() != Some(rusqlite::ErrorCode::Unknown) {
        return translate(error);
    }
    match version(connection) {
        Ok(version) if version > SCHEMA_VERSION => too_new(version),
        Ok(version) if version < SCHEMA_VERSION => too_old(version),
        _ => translate(error),
    }
}

fn too_old(version: i64) -> Error {
    let message = format!(
        "the file has schema {version}, this program needs {SCHEMA_VERSION}: migrate it first"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn too_new(version: i64) -> Error {
    let message = format!(
        "the file was written by a newer version (schema {version}; this one reads {SCHEMA_VERSION}): upgrade this program"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn version(connection: &Connection) -> Sql<i64> {
    pragma(connection, "user_version")
}

fn pragma(connection: &Connection, name: &str) -> Sql<i64> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
}
