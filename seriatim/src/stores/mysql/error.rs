//! Mapping of the server's errors.

use std::collections::BTreeSet;

use mysql_async::{DriverError, Error as Driver, IoError, ServerError};

use crate::model::{Error, ErrorKind};

/// Why an operation failed.
pub(super) enum Fail {
    /// The server or the connection.
    Server(Driver),
    /// The request is invalid, or conflicts with the store's state.
    Ours(Error),
    /// A queue or route is missing: the operation must lock the definitions exclusively.
    Alone,
    /// Something may still write lanes of these queues: the operation must wait for that before it locks the definitions.
    Open(BTreeSet<u32>),
    /// A job was elsewhere when its lane was locked: repeat.
    Moved,
    /// The part of a lane that was read was not enough: repeat with all of it.
    Partial,
    /// The statements sent ahead were not sufficient: repeat without them.
    NotFast,
    /// An idempotency key of a push is not new: it must reserve them.
    Known,
}

pub(super) type Try<T> = Result<T, Fail>;

impl From<Driver> for Fail {
    fn from(e: Driver) -> Self {
        Self::Server(e)
    }
}

impl From<Error> for Fail {
    fn from(e: Error) -> Self {
        Self::Ours(e)
    }
}

impl From<Fail> for Error {
    fn from(fail: Fail) -> Self {
        match fail {
            Fail::Server(e) => of_driver(e),
            Fail::Ours(e) => e,
            Fail::Moved => {
                Error::new(ErrorKind::Unavailable, "the job was moved again and again: try again")
            }
            Fail::Alone | Fail::Open(_) | Fail::Known | Fail::NotFast | Fail::Partial => {
                Error::new(ErrorKind::Internal, "an operation failed after it was repeated")
            }
        }
    }
}

impl Fail {
    /// Whether concurrent calls are the reason, so that a retry is right. Of the server: 1205 lock wait timeout, 1213
    /// deadlock, 1020 changed since it was read.
    pub(super) fn is_retriable(&self) -> bool {
        matches!(self, Self::Moved)
            || matches!(self, Self::Server(Driver::Server(e)) if matches!(e.code, 1205 | 1213 | 1020))
    }

    /// Whether another session kept a row locked for longer than this one waits.
    pub(super) fn is_lock_wait(&self) -> bool {
        matches!(self, Self::Server(Driver::Server(e)) if e.code == 1205)
    }

    /// Whether the column or the index that a statement adds is there.
    pub(super) fn is_there_already(&self) -> bool {
        matches!(self, Self::Server(Driver::Server(e)) if matches!(e.code, 1060 | 1061))
    }

    /// Whether another session has created the same lane or idempotency key.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Known)
            || matches!(self, Self::Server(Driver::Server(e)) if e.code == 1062)
    }

    /// Whether the connection is still usable.
    pub(super) fn leaves_connection(&self) -> bool {
        match self {
            Self::Ours(_)
            | Self::Alone
            | Self::Open(_)
            | Self::Known
            | Self::NotFast
            | Self::Moved
            | Self::Partial => true,
            Self::Server(e) => !e.is_fatal(),
        }
    }
}

/// A change of a queue's mode, or its deletion, that has given way until its end.
pub(super) fn held_open() -> Error {
    let message = "the queue cannot be changed now: other transactions kept it locked until the time for this \
                   call (call_timeout in the URL) was over. Usually one that pushed to it, or settled its jobs, is \
                   still open: end it, then repeat this";
    Error::new(ErrorKind::Unavailable, message)
}

/// The error of a call. The driver's error is its source; it never contains a password.
pub(super) fn of_driver(e: Driver) -> Error {
    let (kind, message) = match &e {
        Driver::Server(server) => meaning(server),
        Driver::Io(e) if is_of_tls(e) => (
            ErrorKind::Unavailable,
            "MySQL's certificate does not prove that it is the server of the URL: see ssl-mode and ssl-ca",
        ),
        Driver::Driver(DriverError::NoClientSslFlagFromServer) => {
            (ErrorKind::Unavailable, "MySQL offers no encryption, and ssl-mode asks for it")
        }
        Driver::Io(IoError::Io(_)) | Driver::Driver(DriverError::ConnectionClosed) => {
            (ErrorKind::Unavailable, "the connection to MySQL cannot be made or is broken")
        }
        Driver::Driver(DriverError::PacketTooLarge | DriverError::PacketOutOfOrder) => (
            ErrorKind::Unavailable,
            "the connection to MySQL ended: is its max_allowed_packet at least 16 MiB?",
        ),
        Driver::Url(_) => {
            (ErrorKind::Invalid, "write the store as mysql://USER:PASSWORD@HOST:PORT/DATABASE")
        }
        _ => (ErrorKind::Unavailable, "the connection to MySQL cannot be used"),
    };
    Error::new(kind, message).because(e)
}

/// Whether the TLS handshake failed. The driver reports that in two ways.
fn is_of_tls(e: &IoError) -> bool {
    match e {
        IoError::Io(e) => e.kind() == std::io::ErrorKind::InvalidData,
        IoError::Tls(_) => true,
    }
}

fn meaning(e: &ServerError) -> (ErrorKind, &'static str) {
    match e.code {
        1021 | 1114 | 1037 | 1038 | 3675 => (ErrorKind::Full, "MySQL has no room left"),
        1290 | 1836 | 1792 => {
            (ErrorKind::ReadOnly, "this MySQL server can be read only: use the primary")
        }
        1040 | 1203 | 1226 => (ErrorKind::Unavailable, "MySQL has too many connections"),
        1044 | 1045 | 1698 => (ErrorKind::Invalid, "MySQL refuses this user or password"),
        1049 => (ErrorKind::Invalid, "MySQL has no such database"),
        1142 | 1227 | 1370 => (ErrorKind::Invalid, "this user lacks a privilege in MySQL"),
        1146 => (ErrorKind::NotFound, "the store has not been set up here: migrate it first"),
        1153 => (
            ErrorKind::Invalid,
            "the statement is larger than MySQL accepts: raise its max_allowed_packet",
        ),
        1020 | 1053 | 1077 | 1158..=1161 | 1205 | 1213 | 1317 | 1927 | 3024 | 3169 => {
            (ErrorKind::Unavailable, "MySQL cannot serve this right now")
        }
        1034 | 1194 | 1712 | 1877 => (ErrorKind::Corrupt, "MySQL cannot read its own data"),
        _ => (ErrorKind::Internal, "MySQL refused the statement"),
    }
}
