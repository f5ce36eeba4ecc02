//! Mapping of the server's errors, and of those that the store's functions raise.

use tokio_postgres::error::{DbError, SqlState};

use crate::contract::errors::{is_closing, no_queue, too_many_routes, was_given_up};
use crate::model::{Error, ErrorKind};

/// Maps the error of a call. Its source is the server's or the driver's error; neither contains a password.
pub(super) fn of_driver(e: tokio_postgres::Error) -> Error {
    if let Some(db) = e.as_db_error() {
        let (kind, message) = meaning(db);
        return Error::new(kind, message).because(db.clone());
    }
    if is_encoding(&e) {
        return Error::new(ErrorKind::Internal, "a parameter or column has an unexpected type")
            .because(e);
    }
    Error::new(ErrorKind::Unavailable, broken(&e)).because(e)
}

fn broken(e: &tokio_postgres::Error) -> String {
    format!("the connection to PostgreSQL cannot be made or is broken: {}", cause(e))
}

/// The innermost cause: a refused port, an untrusted certificate, the server's message. The driver's own text is only
/// "db error" or similar.
pub(super) fn cause(e: &tokio_postgres::Error) -> &dyn std::error::Error {
    let mut cause: &dyn std::error::Error = e;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}

/// Whether the server rolled back because of concurrent calls, so that a retry is right.
pub(super) fn is_retriable(e: &tokio_postgres::Error) -> bool {
    let retriable = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    e.code().is_some_and(|code| retriable.contains(code))
}

/// Whether a statement has waited as long as it may for what another transaction has locked.
pub(super) fn is_lock_timeout(e: &tokio_postgres::Error) -> bool {
    e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Code and detail of an error that the store's functions raise.
pub(super) fn ours(e: &tokio_postgres::Error) -> Option<(&str, &str)> {
    let db = e.as_db_error()?;
    db.code().code().starts_with("SR").then(|| (db.code().code(), db.detail().unwrap_or("")))
}

/// Whether a call has given way to a transaction of a user.
pub(super) fn has_given_way(e: &tokio_postgres::Error) -> bool {
    matches!(ours(e), Some(("SR027", _)))
}

/// The errors that several functions raise: an unknown queue, a dead node, too many queues.
pub(super) fn common(e: tokio_postgres::Error) -> Error {
    match ours(&e) {
        Some(("SR004", _)) => {
            let message = "the node has not registered or was declared dead: take a new id";
            Error::new(ErrorKind::NodeGone, message)
        }
        Some(("SR005", name)) => no_queue(name),
        Some(("SR006", _)) => {
            let most = crate::model::limits::QUEUES_MAX;
            Error::invalid("queue", format!("the store can hold at most {most} queues"))
        }
        Some(("SR008", _)) => was_given_up(),
        Some(("SR010", name)) => is_closing(name),
        Some(("SR029", _)) => too_many_routes(),
        Some(("SR027", name)) => {
            let message = format!(
                "queue {name:?} cannot be changed now: a transaction that pushed to it, or settled its jobs, was open for \
                 all of this call's time (call_timeout in the URL). Let it end, then repeat this"
            );
            Error::new(ErrorKind::Unavailable, message)
        }
        Some(("SR007", _)) => {
            Error::invalid("transaction", "must be at isolation level READ COMMITTED")
        }
        _ => of_driver(e),
    }
}

fn is_encoding(e: &tokio_postgres::Error) -> bool {
    // The driver has no error kind for this: only the text tells.
    let text = e.to_string();
    text.contains("serializing parameter") || text.contains("deserializing column")
}

fn meaning(db: &DbError) -> (ErrorKind, &'static str) {
    let code = db.code();
    if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY {
        return (ErrorKind::Full, "PostgreSQL has no room left");
    }
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        return (ErrorKind::ReadOnly, "this PostgreSQL server can be read only: use the primary");
    }
    match (&code.code()[..2], code.code()) {
        // Connection, read-only or invalid transaction, transaction rollback, resources, locks not available, operator
        // intervention.
        ("08" | "25" | "40" | "53" | "55" | "57", _) => {
            (ErrorKind::Unavailable, "PostgreSQL cannot serve this right now")
        }
        ("28", _) => (ErrorKind::Invalid, "PostgreSQL refuses this user or password"),
        (_, "3D000") => (ErrorKind::Invalid, "PostgreSQL has no such database"),
        (_, "42501") => (ErrorKind::Invalid, "this user lacks a privilege in PostgreSQL"),
        (_, "42P01" | "42883" | "3F000") => {
            (ErrorKind::NotFound, "the store has not been set up here: migrate it first")
        }
        ("22", _) => (ErrorKind::Invalid, "PostgreSQL cannot keep such a value"),
        ("XX" | "58", _) => (ErrorKind::Corrupt, "PostgreSQL cannot read its own data"),
        _ => (ErrorKind::Internal, "PostgreSQL refused the statement"),
    }
}
