//! Addresses of pages.

use seriatim::JobId;

/// Where forms send what they do.
pub(in crate::http) const DEEDS_PATH: &str = "/do";

/// A part of a path or a value of a query.
pub(super) fn encoded(text: &str) -> String {
    // A plus is a space in a query only.
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// An address below this one, and of no other site.
pub(super) fn local(address: &str, base: &str) -> Option<String> {
    let path = address.strip_prefix(base)?;
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    // A browser resolves them, and leaves this path.
    let dots = path.split(['/', '?', '#']).any(|part| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".."
    });
    let is_below = path.starts_with(['/', '?']) && !address.starts_with("//");
    (is_plain && is_below && !dots).then(|| address.to_owned())
}

/// A path with a query of these pairs; those without a value are left out.
pub(super) fn with(path: &str, pairs: &[(&str, &str)]) -> String {
    let query = query(pairs);
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// These pairs; those without a value are left out.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    pairs.join("&")
}

/// The fields of a form as a browser sends them on unchanged. It would make `\r\n` of the ends of lines, so values that have
/// some go in one field, as a query.
pub(super) fn carried<N: AsRef<str> + From<&'static str>>(
    fields: Vec<(N, String)>,
) -> Vec<(N, String)> {
    let is_split = |(_, value): &(N, String)| value.contains(['\n', '\r']);
    let (split, mut plain): (Vec<_>, Vec<_>) = fields.into_iter().partition(is_split);
    if !split.is_empty() {
        let split: Vec<(&str, &str)> =
            split.iter().map(|(name, value)| (name.as_ref(), value.as_str())).collect();
        plain.push(("do".into(), query(&split)));
    }
    plain
}

pub(super) fn queue(base: &str, name: &str) -> String {
    format!("{base}/queues/{}", encoded(name))
}

pub(super) fn lanes(base: &str, queue: &str, query: &[(&str, &str)]) -> String {
    with(&format!("{base}/queues/{}/lanes", encoded(queue)), query)
}

/// Keys that begin with a text, and tasks of this name.
pub(super) fn search_all(base: &str, text: &str) -> String {
    with(&format!("{base}/search"), &[("q", text), ("all", "true")])
}

pub(super) fn key(base: &str, key: &str) -> String {
    with(&format!("{base}/key"), &[("k", key)])
}

pub(super) fn job(base: &str, id: JobId) -> String {
    format!("{base}/jobs/{id}")
}

pub(super) fn operation(base: &str, id: &str) -> String {
    format!("{base}/operations/{}", encoded(id))
}

pub(super) fn node(base: &str, id: &str) -> String {
    format!("{base}/nodes/{}", encoded(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_leads_back_to_a_page_of_this_server_only() {
        for (address, base, is_ours) in [
            ("/queues?by=key", "", true),
            ("/jobs/queues", "/jobs", true),
            ("/other", "/jobs", false),
            ("/jobs/../other", "/jobs", false),
            ("/jobs/%2E./other", "/jobs", false),
            ("/jobs/queues?by=..", "/jobs", true),
            ("//evil.example", "", false),
            ("https://evil.example", "", false),
            ("/\\evil.example", "", false),
            ("/a\r\nX: y", "", false),
            ("", "", false),
        ] {
            assert_eq!(local(address, base).is_some(), is_ours, "{address}");
        }
    }
}
