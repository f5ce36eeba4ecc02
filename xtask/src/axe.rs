//! axe-core, with which the tests look for barriers in the dashboard's pages. Its licence is MPL-2.0: it is fetched, and
//! neither stored in the repository nor a part of what is built.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::step;

const ARCHIVE: &str = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz";
const MEMBER: &str = "package/axe.min.js";
/// Of the script, as `sha256sum` writes it.
const SHA256: &str = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c";
/// Names the script for the tests.
pub(crate) const VARIABLE: &str = "SERIATIM_TEST_AXE";

/// The script, fetched unless it is there.
pub(crate) fn ensure(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/axe");
    let script = folder.join("axe-4.14.1.min.js");
    if is_right(&script)? {
        return Ok(script);
    }
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(wrong)?;
    let archive = folder.join("axe.tgz");
    let mut fetch = Command::new("curl");
    fetch.args(["-fsSL", "--retry", "3", "--max-time", "120", "-o"]).arg(&archive).arg(ARCHIVE);
    step::run("fetch axe-core", &mut fetch)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzOf").arg(&archive).arg(MEMBER).stderr(Stdio::inherit());
    let text = unpack.output().map_err(|error| format!("tar: {error}"))?.stdout;
    let mut file = fs::File::create(&script).map_err(wrong)?;
    file.write_all(&text).map_err(wrong)?;
    match is_right(&script)? {
        true => Ok(script),
        false => Err(format!("{ARCHIVE}: {MEMBER} is not the one with SHA-256 {SHA256}")),
    }
}

fn is_right(script: &Path) -> Result<bool, String> {
    if !script.exists() {
        return Ok(false);
    }
    let sum = Command::new("sha256sum").arg(script).output();
    let sum = sum.map_err(|error| format!("sha256sum: {error}"))?.stdout;
    Ok(String::from_utf8_lossy(&sum).starts_with(SHA256))
}
