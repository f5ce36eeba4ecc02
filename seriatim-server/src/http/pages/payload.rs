//! Payloads, as pages show them.

use seriatim::Payload;

/// Longest payload that a page shows, in bytes; of a longer one it shows the beginning.
const SHOWN_BYTES_MAX: usize = 64 << 10;
/// Bytes shown of a payload that is no text, as hexadecimal digits.
const HEX_BYTES_MAX: usize = 1 << 10;

/// A payload for a template.
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) bytes: usize,
    pub(super) is_cut: bool,
}

impl Shown {
    pub(super) fn of(payload: &Payload) -> Self {
        let all = payload.as_bytes();
        let bytes = all.len();
        let (text, is_cut) = match std::str::from_utf8(all) {
            Ok(text) if bytes <= SHOWN_BYTES_MAX => (pretty(text), false),
            Ok(text) => (text[..text.floor_char_boundary(SHOWN_BYTES_MAX)].to_owned(), true),
            Err(_) => (hex(&all[..bytes.min(HEX_BYTES_MAX)]), bytes > HEX_BYTES_MAX),
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
