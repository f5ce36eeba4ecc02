//! `cargo xtask deny`: checks licences, advisories and sources of the dependencies.

use std::path::Path;

use crate::{cargo, step};

const INSTALL: &str = "cargo-deny is not installed: cargo install --locked cargo-deny";

/// Checks all dependencies against `deny.toml`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    if !cargo::has(root, "deny") {
        return Err(INSTALL.to_owned());
    }
    step::run("cargo deny", &mut cargo::command(root, &["deny", "--all-features", "check"]))
}
