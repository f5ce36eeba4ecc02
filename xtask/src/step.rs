//! Runs one of several commands, with its name printed above its output.

use std::process::Command;

/// Prints `name` as a heading.
pub(crate) fn announce(name: &str) {
    eprintln!("\n── {name}");
}

/// Runs `command` under its `name`.
pub(crate) fn run(name: &str, command: &mut Command) -> Result<(), String> {
    announce(name);
    let status = command.status().map_err(|e| format!("{name}: cannot start: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// The failures of several steps as one.
pub(crate) fn list(failures: &[String]) -> String {
    format!("\nfailed:\n  {}", failures.join("\n  "))
}
