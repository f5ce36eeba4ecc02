//! Payloads, as pages show them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::IgnoredAny;
use seriatim::Payload;

use crate::base::text::{cut, json_plain, one_line};
use crate::config::{DashboardConfig, Payloads};

/// Longest payload that a page shows, in bytes.
const SHOWN_BYTES_MAX: usize = 64 << 10;
/// What it shows of a longer one: marks that are escaped make five of one.
const BEGINNING_BYTES: usize = 16 << 10;
/// Bytes shown of a payload that is no text, as hexadecimal digits.
const HEX_BYTES_MAX: usize = 1 << 10;

/// A payload for a template.
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) bytes: usize,
    pub(super) is_cut: bool,
}

/// What a visitor does not see of payloads.
#[derive(Clone, Debug, Default)]
pub(super) struct Discreet {
    /// Why they see none.
    hidden: Option<&'static str>,
    /// Names of fields without values.
    redact: Arc<[String]>,
}

/// Stands for a value that is not shown.
const REDACTED: &str = "\"(redacted)\"";

impl Discreet {
    /// Whether nothing is hidden from them: a visitor who may search payloads can read them.
    pub(super) fn shows_all(&self) -> bool {
        self.hidden.is_none() && self.redact.is_empty()
    }

    pub(super) fn of(config: &DashboardConfig, is_admin: bool) -> Self {
        let hidden = match config.payloads {
            Payloads::Show => None,
            Payloads::Admin if is_admin => None,
            Payloads::Admin => Some("(shown to admins)"),
            Payloads::Hide => Some("(hidden)"),
        };
        Self { hidden, redact: config.redact.iter().map(|name| name.to_lowercase()).collect() }
    }

    /// The payload without what the visitor does not see, or why there is nothing left.
    pub(super) fn seen<'p>(&self, payload: &'p [u8]) -> Result<Cow<'p, [u8]>, &'static str> {
        if let Some(why) = self.hidden {
            return Err(why);
        }
        if self.redact.is_empty() {
            return Ok(payload.into());
        }
        let json = std::str::from_utf8(payload).ok();
        let json = json.filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        let Some(text) = json else {
            return Err("(no JSON: it cannot be redacted, and is not shown)");
        };
        Ok(redacted(text, &self.redact).into_bytes().into())
    }

    /// The payload as its author may change it; none if the visitor does not see all of it, or it is no JSON.
    pub(super) fn whole(&self, payload: &Payload) -> Option<String> {
        self.text(payload, SHOWN_BYTES_MAX).map(|text| pretty(&json_plain(text)))
    }

    /// The payload as it was written, if it is JSON of at most `bytes_max`, and the visitor sees all of it.
    pub(super) fn text<'p>(&self, payload: &'p Payload, bytes_max: usize) -> Option<&'p str> {
        let bytes = payload.as_bytes();
        let is_seen = self.shows_all() && bytes.len() <= bytes_max;
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_seen)?;
        serde_json::from_str::<IgnoredAny>(text).is_ok().then_some(text)
    }

    /// The beginning of a payload, on one line.
    pub(super) fn begin(&self, payload: &Payload, columns: usize) -> String {
        match self.seen(payload.as_bytes()) {
            Ok(seen) => {
                // A character has at most four bytes.
                let begin = &seen[..seen.len().min(columns * 4)];
                cut(&one_line(&String::from_utf8_lossy(begin)), columns)
            }
            Err(why) => why.to_owned(),
        }
    }
}

/// JSON without the values of fields with these names, which are in lower case.
fn redacted(text: &str, names: &[String]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find('"') {
        let end = begin + token(&rest[begin..]);
        let (before, after) = rest.split_at(end);
        out.push_str(before);
        rest = after;
        let value = rest.trim_ascii_start().strip_prefix(':').map(str::trim_ascii_start);
        let is_secret = || {
            // As a reader understands it: `pass\u0077ord` is `password`.
            let name = serde_json::from_str::<String>(&before[begin..]).unwrap_or_default();
            names.contains(&name.to_lowercase())
        };
        if let Some(value) = value.filter(|_| is_secret()) {
            out.push(':');
            out.push_str(REDACTED);
            rest = &value[token(value)..];
        }
    }
    out + rest
}

/// The length of the JSON value that begins a text.
fn token(text: &str) -> usize {
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if is_quoted {
            (is_quoted, is_escaped) = (is_escaped || byte != b'"', !is_escaped && byte == b'\\');
            if !is_quoted && depth == 0 {
                return at + 1;
            }
            continue;
        }
        match byte {
            b'"' => is_quoted = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

impl Shown {
    pub(super) fn of(payload: &Payload, discreet: &Discreet) -> Self {
        let bytes = payload.as_bytes().len();
        let seen = match discreet.seen(payload.as_bytes()) {
            Ok(seen) => seen,
            Err(why) => return Self { text: why.to_owned(), bytes, is_cut: false },
        };
        let all = &*seen;
        let (text, is_cut) = match std::str::from_utf8(all) {
            Ok(text) if all.len() <= SHOWN_BYTES_MAX => (pretty(&json_plain(text)), false),
            Ok(text) => (json_plain(&text[..text.floor_char_boundary(BEGINNING_BYTES)]), true),
            Err(_) => (hex(&all[..all.len().min(HEX_BYTES_MAX)]), bytes > HEX_BYTES_MAX),
        };
        Self { text, bytes, is_cut }
    }
}

/// JSON with a line for each value. Only white space changes: numbers and the order of fields stay as they were written.
fn pretty(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut is_quoted, mut is_escaped) = (0_usize, false, false);
    let mut last = '\0';
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    for c in text.chars() {
        if is_quoted {
            out.push(c);
            (is_quoted, is_escaped) = (is_escaped || c != '"', !is_escaped && c == '\\');
            last = c;
            continue;
        }
        if c.is_ascii_whitespace() {
            continue;
        }
        let is_empty = matches!((last, c), ('{', '}') | ('[', ']'));
        if matches!(c, '}' | ']') {
            depth = depth.saturating_sub(1);
            if !is_empty {
                line(&mut out, depth);
            }
        } else if matches!(last, '{' | '[') {
            line(&mut out, depth);
        }
        out.push(c);
        match c {
            '"' => is_quoted = true,
            '{' | '[' => depth += 1,
            ',' => line(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
        last = c;
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn values_of_named_fields_are_left_out_at_any_depth_however_the_name_is_written() {
        let secret = names(&["password", "schlüssel"]);
        for (text, shown) in [
            (r#"{"password":"a\"b","user":1}"#, r#"{"password":"(redacted)","user":1}"#),
            (
                r#"[{"x":[{"PassWord" : {"a":["b",{}]} , "y":2}]}]"#,
                r#"[{"x":[{"PassWord":"(redacted)" , "y":2}]}]"#,
            ),
            (r#"{"pass\u0077ord":12.50}"#, r#"{"pass\u0077ord":"(redacted)"}"#),
            (
                r#"{"SCHLÜSSEL":[1,2],"a":"password"}"#,
                r#"{"SCHLÜSSEL":"(redacted)","a":"password"}"#,
            ),
            (
                r#"{"a":"\"password\":1","password":null}"#,
                r#"{"a":"\"password\":1","password":"(redacted)"}"#,
            ),
            (
                r#"{"password":1,"password":2}"#,
                r#"{"password":"(redacted)","password":"(redacted)"}"#,
            ),
            (r#"["password","x"]"#, r#"["password","x"]"#),
            ("12", "12"),
        ] {
            assert_eq!(redacted(text, &secret), shown);
        }
    }

    #[test]
    fn who_may_not_see_payloads_sees_why() {
        let payload = Payload::from_json_text(r#"{"password":"sesame","n":1}"#).unwrap();
        let of = |payloads, is_admin, redact: &[&str]| {
            let config =
                DashboardConfig { payloads, redact: names(redact), ..DashboardConfig::default() };
            Discreet::of(&config, is_admin)
        };
        let begin = |discreet: &Discreet| discreet.begin(&payload, 80);
        assert_eq!(begin(&of(Payloads::Admin, false, &[])), "(shown to admins)");
        assert!(begin(&of(Payloads::Admin, true, &[])).contains("sesame"));
        assert_eq!(begin(&of(Payloads::Hide, true, &[])), "(hidden)");
        let discreet = of(Payloads::Show, true, &["Password"]);
        assert!(!begin(&discreet).contains("sesame") && begin(&discreet).contains("\"n\":1"));
        assert!(!Shown::of(&payload, &discreet).text.contains("sesame"));
        let bytes = Payload::from_bytes(&b"password=sesame"[..]);
        assert!(!Shown::of(&bytes, &discreet).text.contains("sesame"), "no JSON");
    }

    #[test]
    fn a_payload_is_shown_with_its_numbers_and_the_order_of_its_fields() {
        let text = r#"{"z":9223372036854775808.10,"a":["x\"{,}",[],{}],"b":{"c":null}}"#;
        let shown = pretty(text);
        assert_eq!(
            shown,
            "{\n  \"z\": 9223372036854775808.10,\n  \"a\": [\n    \"x\\\"{,}\",\n    [],\n    {}\n  ],\n  \"b\": {\n    \"c\": null\n  }\n}"
        );
        assert_eq!(hex(&[0, 255]), "00 ff");
    }
}
