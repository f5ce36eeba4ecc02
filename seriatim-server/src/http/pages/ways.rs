//! Requests that a page offers to copy.

/// A request with this body, which is a word of the shell.
pub(super) fn post(path: &str, body: &str) -> String {
    format!(
        "curl -X POST \"$SERIATIM_URL{path}\" -H \"Authorization: Bearer $SERIATIM_TOKEN\" -H 'Content-Type: application/json' -d {body}"
    )
}

/// A text as the value of an attribute, with the ends of its lines: a browser reads `\r` as `\n` where it stands as it is.
pub(super) fn attribute(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '"' | '\'' | '\r' | '\n' => value += &format!("&#{};", u32::from(c)),
            c => value.push(c),
        }
    }
    value
}
