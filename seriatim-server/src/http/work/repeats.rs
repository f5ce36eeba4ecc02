//! What a request names more than once.

use std::collections::HashSet;
use std::hash::Hash;

use super::super::{Problem, Result};

/// Refuses a list that names a lane, or a claim of one, twice: only one of them would count, and both be answered.
pub(super) fn check_once<T: Eq + Hash>(
    list: &str,
    mut named: impl Iterator<Item = T>,
) -> Result<()> {
    let mut seen = HashSet::new();
    match named.position(|one| !seen.insert(one)) {
        None => Ok(()),
        Some(i) => Err(Problem::invalid(
            format!("{list}[{i}].lane"),
            "occurs more than once in this request",
        )),
    }
}
