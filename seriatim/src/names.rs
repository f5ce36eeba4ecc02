//! Names that people may have mistyped.

/// Names that differ by at most so much are taken for a slip.
const SLIP_MAX: usize = 3;

/// The name that was probably meant.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|known| (strsim::damerau_levenshtein(name, known), known));
    scored.min().filter(|(distance, _)| *distance <= SLIP_MAX).map(|(_, known)| known)
}

/// ` (did you mean "orders"?)`, or nothing.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = closest(name, known);
    near.map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default()
}
