//! Suggestions for mistyped names.

/// Most letters by which a name and its suggestion differ; half of the longer name is a second limit.
const SLIP_MAX: usize = 3;

/// The known name that was probably meant.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    let slip_max = |known: &str| SLIP_MAX.min(name.len().max(known.len()) / 2);
    scored.min().filter(|(distance, known)| *distance <= slip_max(known)).map(|(_, known)| known)
}

/// ` (did you mean "orders"?)`, or an empty text.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = closest(name, known);
    near.map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_is_mostly_the_same_was_meant() {
        assert_eq!(closest("ordres", ["mails", "orders"]), Some("orders"));
        assert_eq!(closest("wran", ["error", "warn", "off"]), Some("warn"));
        assert_eq!(closest("log", ["result", "done", "progress"]), None);
        assert_eq!(closest("3", ["off", "info"]), None);
        assert_eq!(closest("", ["off", "info"]), None);
    }
}
