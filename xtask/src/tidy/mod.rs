//! `cargo xtask tidy`: style rules that rustfmt and clippy do not check.

mod arrows;
mod circles;
mod functions;
mod imports;
mod measure;
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

use rules::RULES;
use source::Source;

/// Fuzzing inputs, which are wrong on purpose.
const CORPUS: &str = "testkit/corpus/";

/// Checks every file of the repository and prints each breach with its file and line.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let sources = sources(root)?;
    let mut breaches = judge(&sources);
    breaches.extend(arrows::judge(&sources));
    if breaches.is_empty() {
        return Ok(());
    }
    for breach in &breaches {
        eprintln!("{breach}");
    }
    Err(format!("tidy: {} breaches", breaches.len()))
}

fn sources(root: &Path) -> Result<Vec<Source>, String> {
    let files = files::list(root)?.into_iter().filter(|path| !path.starts_with(CORPUS));
    Ok(files.filter_map(|path| Source::read(root, path)).collect())
}

fn judge(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(|source| RULES.iter().flat_map(|rule| rule(source))).collect()
}
