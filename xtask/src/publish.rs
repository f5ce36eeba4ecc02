//! `cargo xtask publish`: whether the crates can be published as they are. It publishes nothing.

use std::path::Path;

use crate::{cargo, step};

/// Packs them, and builds each from its package: what that lacks shows here.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let args = ["publish", "--workspace", "--dry-run", "--locked"];
    step::run("cargo publish --dry-run", &mut cargo::command(root, &args))
}
