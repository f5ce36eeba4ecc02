//! `cargo xtask tidy`: style rules that rustfmt and clippy do not check.
//!
//! It only tightens: breaches listed in [`allow`] may stay but not grow, and an entry that is no longer needed must
//! be removed.

mod allow;
mod arrows;
mod circles;
mod functions;
mod imports;
mod measure;
mod printed;
mod rules;
mod source;
mod sql;
mod table;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;

use crate::files;
use std::path::Path;

use allow::Allowed;
use rules::{Finding, RULES};
use source::Source;

/// Fuzzing inputs, which are wrong on purpose.
const CORPUS: &str = "testkit/corpus/";

/// Checks every file of the repository and prints each breach with its file and line.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let sources = sources(root)?;
    let mut breaches = judge(&sources, allow::ALLOWED);
    breaches.extend(arrows::judge(&sources));
    if breaches.is_empty() {
        return Ok(());
    }
    for breach in &breaches {
        eprintln!("{breach}");
    }
    Err(format!("tidy: {} breaches", breaches.len()))
}

/// Prints the table of arrows for the current imports.
pub(crate) fn arrows(root: &Path) -> Result<(), String> {
    print!("{}", printed::of(&sources(root)?)?);
    Ok(())
}

fn sources(root: &Path) -> Result<Vec<Source>, String> {
    let files = files::list(root)?.into_iter().filter(|path| !path.starts_with(CORPUS));
    Ok(files.filter_map(|path| Source::read(root, path)).collect())
}

/// Breaches that are not allowed, and allowances that are not needed.
fn judge(sources: &[Source], allowed: &[Allowed]) -> Vec<String> {
    let findings: Vec<Finding> =
        sources.iter().flat_map(|source| RULES.iter().flat_map(|rule| rule(source))).collect();
    let forbidden = findings
        .iter()
        .filter(|finding| !allowed.iter().any(|entry| entry.covers(finding)))
        .map(ToString::to_string);
    let unneeded =
        allowed.iter().filter(|entry| !findings.iter().any(|finding| entry.concerns(finding))).map(
            |entry| format!("{}: remove this from xtask/src/tidy/allow.rs: {entry:?}", entry.path),
        );
    forbidden.chain(unneeded).collect()
}
