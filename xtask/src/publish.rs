//! `cargo xtask publish`: whether the crates and the packages of the clients can be published as they are. It publishes
//! nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::files::{self, copy};
use crate::packages::runs;
use crate::{cargo, step};

const NODE: &str = "clients/node/";
const PYTHON: &str = "clients/python/";

/// Packs them, and builds each crate from its package: what that lacks shows here.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let args = ["publish", "--workspace", "--dry-run", "--locked"];
    step::run("cargo publish --dry-run", &mut cargo::command(root, &args))?;
    documentation(root)?;
    node(root)?;
    python(root)
}

/// As docs.rs makes it: with a nightly compiler, whose features this one has with a variable. That changes what some
/// dependencies are built to.
fn documentation(root: &Path) -> Result<(), String> {
    let args = ["doc", "--package", "seriatim", "--all-features", "--no-deps", "--locked"];
    let mut doc = cargo::command(root, &args);
    doc.args(["--target-dir", "target/docs.rs"]);
    doc.env("RUSTC_BOOTSTRAP", "1").env("RUSTDOCFLAGS", "--cfg docsrs");
    step::run("cargo doc, as docs.rs does it", &mut doc)
}

fn node(root: &Path) -> Result<(), String> {
    if !runs("npm", &["--version"]) {
        eprintln!("left out: the package for Node (npm is not installed)");
        return Ok(());
    }
    step::announce("npm pack --dry-run");
    let mut npm = Command::new("npm");
    let output = npm.args(["pack", "--dry-run", "--json"]).current_dir(root.join(NODE)).output();
    let output = output.map_err(|e| format!("npm: {e}"))?;
    let packed: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("npm: {e}"))?;
    let files = packed[0]["files"].as_array().into_iter().flatten();
    let files: Vec<&str> = files.filter_map(|file| file["path"].as_str()).collect();
    check(root, NODE, |path| files.contains(&path))
}

fn python(root: &Path) -> Result<(), String> {
    // In this order: setuptools brings a module that pip would take from elsewhere.
    if !runs("python3", &["-c", "import setuptools, wheel, pip"]) {
        eprintln!("left out: the package for Python (pip, setuptools and wheel are not installed)");
        return Ok(());
    }
    // It writes beside its source.
    let folder = root.join("target/python");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    for path in files::list(root)?.iter().filter(|path| path.starts_with(PYTHON)) {
        copy(&root.join(path), &folder.join(path))?;
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]);
    pip.args(["--wheel-dir", "wheels", PYTHON]).current_dir(&folder);
    step::run("pip wheel", &mut pip)?;
    let wheels = fs::read_dir(folder.join("wheels")).map_err(|e| format!("wheels: {e}"))?;
    let wheel = wheels.flatten().next().ok_or("pip made no wheel")?.path();
    let listed = Command::new("python3").args(["-m", "zipfile", "-l"]).arg(wheel).output();
    let listed = listed.map_err(|e| format!("python3: {e}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    // These become the description of the package.
    let described = ["README.md", "pyproject.toml"];
    let is_packed = |path: &str| names.iter().any(|name| name.ends_with(path));
    check(root, PYTHON, |path| described.contains(&path) || is_packed(path))
}

/// Refuses a package that lacks a file of its folder.
fn check(root: &Path, folder: &str, is_packed: impl Fn(&str) -> bool) -> Result<(), String> {
    let files = files::list(root)?;
    let paths = files.iter().filter_map(|path| path.strip_prefix(folder));
    let lost: Vec<&str> = paths.filter(|path| !is_packed(path)).collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(format!("{folder}: its package lacks {}", lost.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_packages_of_a_release_have_one_version() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let version = env!("CARGO_PKG_VERSION");
        for (file, line) in [
            (
                "Cargo.toml",
                format!("seriatim = {{ path = \"seriatim\", version = \"{version}\" }}"),
            ),
            (
                "Cargo.toml",
                format!(
                    "seriatim-verify = {{ path = \"seriatim-verify\", version = \"{version}\" }}"
                ),
            ),
            ("clients/python/pyproject.toml", format!("version = \"{version}\"")),
            ("clients/node/package.json", format!("  \"version\": \"{version}\",")),
        ] {
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(text.lines().any(|one| one == line), "{file} lacks the line {line}");
        }
    }
}
