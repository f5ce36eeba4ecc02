//! `cargo xtask lowkiq`: the tests of Lowkiq's bridge and workers with the gem itself, which Debian does not package. Its licence
//! is LGPL: it is fetched, and neither stored in the repository nor a part of what is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, cargo, packages, step};

const SOURCE: &str = "https://github.com/bia-technologies/lowkiq";
/// The last of each minor version that a bridge understands.
const VERSIONS: [&str; 3] = ["1.0.6", "1.1.0", "1.2.2"];
/// Names the folder `lib` of the gem for the tests.
const VARIABLE: &str = "LOWKIQ_LIB";
const TESTS: [&str; 6] = [
    "nextest",
    "run",
    "--workspace",
    "--all-features",
    "-E",
    "test(lowkiq) & package(seriatim-server)",
];

pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    packages::ensure()?;
    for version in VERSIONS {
        let lib = ensure(root, version)?;
        let name = format!("the tests with Lowkiq {version}");
        step::run(&name, cargo::command(root, &TESTS).env(VARIABLE, lib))?;
    }
    Ok(())
}

/// The source of a version, fetched unless it is there.
fn ensure(root: &Path, version: &str) -> Result<PathBuf, String> {
    let folder = root.join("target/lowkiq").join(version);
    if !folder.exists() {
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--depth", "1", "--branch", version, SOURCE]).arg(&folder);
        step::run(&format!("fetch Lowkiq {version}"), &mut clone)?;
    }
    Ok(folder.join("lib"))
}
