//! The part that the URLs of all database servers share: `name=value` options.

use std::time::Duration;

use crate::model::names::closest;
use crate::model::text::one_line;
use crate::model::{Error, Result};

/// Default number of connections of one store.
pub(super) const CONNECTIONS: usize = 8;
/// Most connections that a URL may request.
const CONNECTIONS_MAX: usize = 200;
/// Limit for opening a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for a call, including the wait for a free connection.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The text behind a `?` may be part of a password, so no error quotes it.
const UNESCAPED: &str = "has an @ behind a ?: in a password write ? as %3F and @ as %40";
/// Most characters of an unknown option's name that an error shows.
const NAME_CHARS_MAX: usize = 40;

/// Splits `name=value` and decodes the value's %-escapes.
pub(super) fn name_and_value(pair: &str) -> Result<(&str, String)> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let broken = || match pair.contains('@') {
        true => Error::invalid("store", UNESCAPED),
        false => Error::invalid(shown(name), "holds a broken %-escape"),
    };
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
    let wrong = || format!("must be a number from 1 to {CONNECTIONS_MAX}");
    number.ok_or_else(|| Error::invalid("connections", wrong()))
}

/// How many of these connections pushes may use at once. They wait for keys that users' transactions have locked; the others
/// are left to calls that do not.
pub(super) fn for_pushes(connections: usize) -> usize {
    connections - connections / 4
}

pub(super) fn length(name: &'static str, value: &str) -> Result<Duration> {
    let length = crate::model::duration::parse(value).ok().filter(|length| !length.is_zero());
    length.ok_or_else(|| Error::invalid(name, "must be a duration such as 30s"))
}

/// An option's name, as errors show it.
fn shown(name: &str) -> String {
    one_line(&name.chars().take(NAME_CHARS_MAX).collect::<String>())
}

/// The error for a file that an option names and that cannot be read.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(super) fn unreadable(
    option: &'static str,
    path: &std::path::Path,
    error: &std::io::Error,
) -> Error {
    let path = one_line(&path.to_string_lossy());
    Error::invalid(option, format!("{path} cannot be read: {error}"))
}

/// The error for an option that does not exist.
pub(super) fn unknown_option(query: &str, name: &str, known: &[&str]) -> Error {
    // The `?` may be part of a password, which no error quotes.
    if query.contains('@') {
        return Error::invalid("store", UNESCAPED);
    }
    let shown = shown(name);
    let near = closest(&shown.to_ascii_lowercase(), known.iter().copied());
    let hint = near.map(|near| format!(": did you mean {near}?")).unwrap_or_default();
    let message = format!("has no option {shown:?}{hint} (there are {})", known.join(", "));
    Error::invalid("store", message)
}

#[cfg(test)]
mod tests {
    use super::unknown_option;

    #[test]
    fn an_unknown_option_is_named_with_the_one_that_was_meant_and_no_password() {
        let known = ["schema", "connections", "connect_timeout"];
        let message_of = |query, name| unknown_option(query, name, &known).to_string();
        assert_eq!(
            message_of("conections=3", "conections"),
            "store: has no option \"conections\": did you mean connections? (there are schema, connections, connect_timeout)"
        );
        assert!(
            message_of("Connect-Timeout=3", "Connect-Timeout").contains("mean connect_timeout?")
        );
        assert!(!message_of("colour=red", "colour").contains("did you mean"));
        let message = message_of("ecret&x@host/db", "ecret");
        assert!(!message.contains("ecret") && message.contains("%3F"), "{message}");
    }
}
