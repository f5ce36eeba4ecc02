//! Calling cargo.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

/// The cargo that runs us, for work in `root`.
pub(crate) fn command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root).stdin(Stdio::null());
    command
}

/// Whether cargo has this subcommand (`fmt`, `clippy`, `nextest`, `deny`).
pub(crate) fn has(root: &Path, subcommand: &str) -> bool {
    command(root, &[subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
