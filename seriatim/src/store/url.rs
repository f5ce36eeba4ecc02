//! What the URLs of the database servers say alike: the values behind `name=`.

use std::time::Duration;

use crate::error::{Error, Result};

/// Connections of one store, when the URL names no number.
pub(super) const CONNECTIONS: usize = 8;
/// Most that it may name.
const CONNECTIONS_MAX: usize = 200;
/// How long a connection may take to come about.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call may take, the wait for a free connection included.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// `name=value` without the value's %-escapes.
pub(super) fn name_and_value(pair: &str) -> Result<(&str, String)> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let broken = || Error::invalid(name.to_owned(), "holds a broken %-escape");
    Ok((name, decoded(value).ok_or_else(broken)?))
}

fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

pub(super) fn connections(value: &str) -> Result<usize> {
    let number = value.parse().ok().filter(|n| (1..=CONNECTIONS_MAX).contains(n));
    let wrong = || format!("is a number from 1 to {CONNECTIONS_MAX}");
    number.ok_or_else(|| Error::invalid("connections", wrong()))
}

pub(super) fn length(name: &'static str, value: &str) -> Result<Duration> {
    let length = crate::duration::parse(value).ok().filter(|length| !length.is_zero());
    length.ok_or_else(|| Error::invalid(name, "is a length such as 30s"))
}
