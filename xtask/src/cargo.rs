//! Runs cargo.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

/// Variables that cargo sets for a program about its package.
const OUR_PACKAGE: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];

/// A command of the cargo that runs this program, in `root`.
pub(crate) fn command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root).stdin(Stdio::null());
    // Some build scripts (`ring`'s) run again if these differ from those of a build by hand, and half of the
    // dependencies would be rebuilt.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| OUR_PACKAGE.iter().any(|ours| name.starts_with(ours))) {
            command.env_remove(name);
        }
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn a_build_that_we_start_is_told_nothing_of_our_own_package() {
        let command = super::command(Path::new("."), &["build"]);
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            let hidden = command.get_envs().any(|(key, value)| key == name && value.is_none());
            assert!(hidden, "{name}");
        }
    }
}
