//! `cargo xtask screenshots`: pictures of the dashboard for the documentation, taken by the test that looks at them.

use std::fs;
use std::path::Path;

use crate::{cargo, step};

/// Where the pictures go.
const FOLDER: &str = "docs/images";
/// Names the folder for the test.
const VARIABLE: &str = "SERIATIM_WRITE_IMAGES";

/// Takes the pictures again. Those of other widths are in the folder for temporary files, to look at.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let args = [
        "test",
        "-p",
        "seriatim-server",
        "--all-features",
        "--test",
        "cli",
        "pictures_of_the_dashboard",
    ];
    let mut command = cargo::command(root, &args);
    step::run("pictures of the dashboard", command.env(VARIABLE, folder))
}
