//! `cargo xtask names`: compares the public names of the library, as rustdoc lists them, with the recorded ones.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;

use crate::cargo;

/// The recorded names. A change of this file is a change of the public API.
const RECORD: &str = "seriatim/public-names.txt";
/// Most names at the root, modules included.
const ROOT_NAMES_MAX: usize = 45;

const DOC: [&str; 5] = ["doc", "--no-deps", "-p", "seriatim", "--all-features"];

/// Fails if rustdoc warns, if a public name is new or gone, or if the root has too many.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let names = names(root)?;
    let record = fs::read_to_string(root.join(RECORD)).unwrap_or_default();
    let recorded: BTreeSet<String> = record.lines().map(str::to_owned).collect();
    let new = names.difference(&recorded).map(|name| format!("\n  + {name}"));
    let gone = recorded.difference(&names).map(|name| format!("\n  - {name}"));
    let changes: String = new.chain(gone).collect();
    if !changes.is_empty() {
        return Err(format!(
            "public names differ from {RECORD}; if that is intended, run `cargo xtask names --write`:{changes}"
        ));
    }
    let at_root = at_root(&names);
    if at_root.len() > ROOT_NAMES_MAX {
        return Err(format!(
            "the root of the library has {} names, at most {ROOT_NAMES_MAX} are allowed: {}",
            at_root.len(),
            at_root.into_iter().collect::<Vec<_>>().join(" ")
        ));
    }
    Ok(())
}

/// Records the current names, and fails as [`check`] does if the root has too many.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let text: String = names(root)?.into_iter().map(|name| name + "\n").collect();
    fs::write(root.join(RECORD), text).map_err(|e| format!("{RECORD}: {e}"))?;
    check(root)
}

/// Each public item with its kind: `struct store::Claim`.
fn names(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut doc = cargo::command(root, &DOC);
    let status = doc.env("RUSTDOCFLAGS", "-D warnings").status();
    if !status.map_err(|e| format!("cargo doc: {e}"))?.success() {
        return Err("cargo doc: has errors or warnings".to_owned());
    }
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let path = root.join(target).join("doc/seriatim/all.html");
    let page = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(read(&page))
}

/// Reads rustdoc's page of all items: `<li><a href="store/struct.Claim.html">store::Claim</a></li>`.
fn read(page: &str) -> BTreeSet<String> {
    let links = page.split("<li><a href=\"").skip(1);
    links
        .filter_map(|link| {
            let (file, rest) = link.split_once("\">")?;
            let name = rest.split("</a>").next()?;
            let kind = file.rsplit('/').next()?.split('.').next()?;
            if kind.starts_with('#') {
                return None; // a heading in the margin
            }
            Some(format!("{kind} {name}"))
        })
        .collect()
}

/// The names at the root: items, and modules that have items.
fn at_root(names: &BTreeSet<String>) -> BTreeSet<&str> {
    let paths = names.iter().filter_map(|name| name.split_once(' '));
    paths.filter_map(|(_, path)| path.split("::").next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_with_their_kinds_and_counted_once_at_the_root() {
        let page = "<li><a href=\"#structs\" title=\"Structs\">Structs</a></li>\
            <h3>Structs</h3><ul><li><a href=\"struct.Job.html\">Job</a></li>\
            <li><a href=\"store/struct.Claim.html\">store::Claim</a></li>\
            <li><a href=\"store/fn.plan.html\">store::plan</a></li></ul>";
        let names = read(page);
        assert_eq!(
            names.iter().map(String::as_str).collect::<Vec<_>>(),
            ["fn store::plan", "struct Job", "struct store::Claim"]
        );
        assert_eq!(at_root(&names).len(), 2);
    }
}
