//! Mapping of SQLite's errors.

use std::time::Duration;

use rusqlite::ffi::ErrorCode;

use crate::model::{Error, ErrorKind};

/// How long an operation waits for another process's lock before it fails with `Unavailable`.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The store error for a driver's error.
pub(super) fn translate(error: rusqlite::Error) -> Error {
    let code = error.sqlite_error_code();
    let (kind, message) = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            "the database file is locked by another process; it is tried again",
        ),
        Some(ErrorCode::DiskFull) => {
            (ErrorKind::Full, "the disk is full: nothing was written; free some space")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            ErrorKind::ReadOnly,
            "the database cannot be written: check the permissions of the file and of its folder",
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            ErrorKind::Corrupt,
            "the database file is damaged: restore a backup, or save what can be read with `sqlite3 FILE .recover`",
        ),
        Some(ErrorCode::NotADatabase) => {
            (ErrorKind::Corrupt, "the file is not an SQLite database: check the path")
        }
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Unavailable,
            "the database file cannot be opened: does its folder exist, and may it be written?",
        ),
        Some(ErrorCode::SystemIoFailure) => (
            ErrorKind::Unavailable,
            "reading or writing the database file failed: is the disk full, or broken?",
        ),
        _ => (ErrorKind::Internal, "SQLite refused a statement"),
    };
    Error::new(kind, message).because(error)
}
