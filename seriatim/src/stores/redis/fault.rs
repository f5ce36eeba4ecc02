//! Mapping of the driver's errors.

use redis::{ErrorKind as Driver, RedisError, ServerErrorKind as Server};

use super::line::is_replica_now;
use crate::contract::errors::{too_many_routes, was_given_up};
use crate::model::{Error, ErrorKind};

/// The store error for a driver's error. It contains neither the address nor the password.
pub(super) fn translate(error: RedisError) -> Error {
    let text = error.to_string();
    let says = |code: &str| error.code() == Some(code) || text.contains(&format!("{code} "));
    if says("GIVENUP") {
        return was_given_up();
    }
    if says("TOOMANYROUTES") {
        return too_many_routes();
    }
    let (kind, message) = if says("OOM") {
        (
            ErrorKind::Full,
            "the server's memory is full (`maxmemory`): it takes nothing new until jobs are done or the limit is raised",
        )
    } else if says("MISCONF") {
        (ErrorKind::Full, "the server cannot write to its disk and refuses writes")
    } else if is_replica_now(&error) {
        // Another one takes over, or has.
        (ErrorKind::Unavailable, "the server has become a replica, which confirms nothing")
    } else if says("READONLY") || says("NOPERM") {
        (
            ErrorKind::ReadOnly,
            "the server refuses writes: it is a replica, or the user lacks permission",
        )
    } else if says("WRONGPASS") || says("NOAUTH") || error.kind() == Driver::AuthenticationFailed {
        (ErrorKind::Invalid, "the server refuses the user name or the password")
    } else {
        match error.kind() {
            Driver::InvalidClientConfig => (ErrorKind::Invalid, "the address is not a Redis URL"),
            Driver::Parse | Driver::UnexpectedReturnType => {
                (ErrorKind::Corrupt, "the server's answer was unexpected")
            }
            Driver::Extension if !is_busy(&text) => (ErrorKind::Internal, "a script failed"),
            Driver::Server(Server::ResponseError) => (ErrorKind::Internal, "a script failed"),
            _ => (ErrorKind::Unavailable, "the Redis server cannot be reached or is busy"),
        }
    };
    Error::new(kind, message).because(error)
}

fn is_busy(text: &str) -> bool {
    ["BUSY", "NOREPLICAS", "MASTERDOWN", "LOADING"].iter().any(|code| text.contains(code))
}
