//! Errors of a configuration, in words: the place, the present value, the expected value.

use seriatim::names::closest;

use crate::base::setup_error::SetupError;

/// What has entries of several keys each.
const LISTS_OF_TABLES: [&str; 5] = ["workers", "cron", "periodic", "bridges", "http.tokens"];
/// What a duration looks like.
pub(super) const LENGTH: &str = "a duration";

/// The error of reading the value at `path` (empty: the document itself), with a suggestion when a
/// word is almost right.
pub(super) fn explain(name: &str, path: &str, error: &toml::de::Error) -> SetupError {
    let (shown, message) = (error.to_string(), error.message());
    // The first line names the place in the file. The others show what stands there.
    let place = shown.lines().next().filter(|_| error.span().is_some() && shown != message);
    let place = place.map(|place| format!("{place}\n")).unwrap_or_default();
    let holds_secrets = |part: &str| path.contains(&format!("].{part}."));
    let is_secret =
        path.starts_with("http.tokens") || ["env", "headers"].into_iter().any(holds_secrets);
    let told = match mismatch(message) {
        // A number may be a secret there.
        Some((_, wanted)) if is_secret => format!("write {}", wanted_in_words(wanted)),
        _ => single_table(path, message).unwrap_or_else(|| without_value(message)),
    };
    let path = match path {
        "" | "." => String::new(),
        path => format!("{path}: "),
    };
    SetupError::invalid(format!("{name}: {place}{path}{told}"))
}

/// The advice for `[workers]`: TOML has two pairs of brackets for the entries of
/// a list.
fn single_table(path: &str, message: &str) -> Option<String> {
    let is_single = mismatch(message)
        .is_some_and(|(given, wanted)| given == "map" && wanted.trim_end() == "a sequence");
    (is_single && LISTS_OF_TABLES.contains(&path))
        .then(|| format!("found a single table; write [[{path}]] above each of the entries"))
}

/// The message of the reader, without the text that stands in the file: it may be a secret that was written in a wrong
/// place, as the URL of a store with its password.
fn without_value(message: &str) -> String {
    if let Some((_, wanted)) = mismatch(message).filter(|(given, _)| given.starts_with("string ")) {
        return format!("found a string; write {}", wanted_in_words(wanted));
    }
    if message.starts_with("unknown variant") {
        let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        return names
            .split_first()
            .map_or_else(String::new, |(unknown, known)| variant("", unknown, known));
    }
    let told = in_words(message);
    // As in `"soon" is not a duration: …` and `write 500/s, not "many"`.
    if let Some((_, rest)) = told.strip_prefix('"').and_then(|rest| rest.split_once("\" is not ")) {
        return format!("this value is not {rest}");
    }
    told.split_once(", not \"").map_or(told.clone(), |(wanted, _)| wanted.to_owned())
}

/// The message of the reader, without Rust types.
pub(crate) fn in_words(message: &str) -> String {
    if let Some((given, wanted)) = mismatch(message) {
        return format!("found {}; write {}", given_in_words(given), wanted_in_words(wanted));
    }
    // A word without quotes may begin like `true` or `false`.
    if ["string values must be quoted", "invalid boolean"].iter().any(|it| message.starts_with(it))
    {
        return "write true or false, or a string in quotes, as in \"orders\"".to_owned();
    }
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let Some((unknown, known)) = names.split_first() else { return message.to_owned() };
    let suggestion =
        closest(unknown, known.iter().copied()).map(|known| format!(" (did you mean `{known}`?)"));
    let suggestion = suggestion.unwrap_or_default();
    if message.starts_with("unknown field") {
        return match known {
            [] => format!("unknown key `{unknown}`: no keys fit here"),
            known => {
                format!("unknown key `{unknown}`{suggestion}; known keys: `{}`", known.join("`, `"))
            }
        };
    }
    if message.starts_with("unknown variant") {
        return variant(&format!(" {unknown:?}"), unknown, known);
    }
    match message.strip_prefix("missing field ") {
        Some(field) => format!("{field} is missing"),
        None => message.to_owned(),
    }
}

/// The words for a value that is none of the known ones; `shown` is how it is quoted.
fn variant(shown: &str, unknown: &str, known: &[&str]) -> String {
    let meant = closest(unknown, known.iter().copied());
    let meant = meant.map(|known| format!(" (did you mean `{known}`?)")).unwrap_or_default();
    format!("unknown value{shown}{meant}: write \"{}\"", known.join("\", \""))
}

/// The present and the expected value of `invalid type: …, expected …`.
fn mismatch(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("invalid type: ");
    let rest = rest.or_else(|| message.strip_prefix("invalid value: "))?;
    rest.rsplit_once(", expected ")
}

fn given_in_words(given: &str) -> String {
    match given.split_once(' ') {
        Some(("string", text)) => format!("the string {text}"),
        Some(("integer", number)) => format!("the number {}", number.trim_matches('`')),
        Some(("floating", number)) => {
            format!("the number {}", number.trim_start_matches("point ").trim_matches('`'))
        }
        Some(("boolean", value)) => value.trim_matches('`').to_owned(),
        _ if given == "map" => "a table".to_owned(),
        _ if given == "sequence" => "a list".to_owned(),
        _ => given.to_owned(),
    }
}

fn wanted_in_words(wanted: &str) -> String {
    match wanted.trim_end() {
        LENGTH => "a duration in quotes: \"250ms\", \"10s\", \"5m\", \"1h\" or \"3d\"".to_owned(),
        "u64" | "usize" | "u32" => "a whole number, 0 or more, as in 10".to_owned(),
        "u8" => format!("a whole number from 0 to {}, as in 10", u8::MAX),
        "u16" => format!("a whole number from 0 to {}, as in 10", u16::MAX),
        "i32" | "i64" => "a whole number, as in 10".to_owned(),
        "f32" | "f64" => "a number, as in 1.5".to_owned(),
        "a boolean" => "true or false, without quotes".to_owned(),
        "a string" => "a string in quotes, as in \"orders\"".to_owned(),
        "a sequence" => "a list, as in [\"a\", \"b\"]".to_owned(),
        "a map" => "a table, as in { name = \"value\" }".to_owned(),
        // Only the parts of the configuration are structures.
        wanted if wanted.starts_with("struct ") => "a table: its name in brackets on a line of its own, as in [node], and its settings below".to_owned(),
        wanted => wanted.to_owned(),
    }
}
