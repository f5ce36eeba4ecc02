//! The one binary of Seriatim, thin over the library, and its HTTP API for services that mount it.

#![forbid(unsafe_code)]

mod commands;
mod config;
mod figures;
mod http;
mod job_input;
mod journal;
mod outgoing;
mod output;
mod signals;
#[cfg(test)]
mod tests;
mod trace;
mod watch;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use commands::Command;
pub use http::router;
use output::Failure;

/// Background jobs that run in order where order matters and in parallel everywhere else.
#[derive(Parser)]
#[command(name = "seriatim", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The program `seriatim`, with the arguments of this process.
pub fn main() -> ExitCode {
    // First of all: programs that another one of this user left behind may be looking. `serve` needs it.
    let _ = workers::hide();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let json = asks_for_json(&arguments);
    run(arguments).unwrap_or_else(|failure| failure.report(json))
}

fn run(arguments: Vec<OsString>) -> Result<ExitCode, Failure> {
    // Before anything reads one: a value that is not UTF-8 would make the readers of others panic.
    config::environment()?;
    let json = asks_for_json(&arguments);
    let program = cli();
    let read = program.clone();
    let read = read.try_get_matches_from(commands::grammar::normal(&program, arguments.clone()));
    let read = read.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match read {
        Ok(read) => read,
        Err(error) if json && error.use_stderr() => return Err(misused(&error)),
        // Help and version too: they are written, and the process ends.
        Err(error) => error.exit(),
    };
    commands::deed::audit(&matches, &arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    runtime.block_on(cli.command.run()).map(|()| ExitCode::SUCCESS)
}

/// The program's commands and flags, with examples.
fn cli() -> clap::Command {
    commands::examples::add(Cli::command())
}

/// Whether `--json` stands among the arguments: known also when they cannot be understood.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// What clap says of wrong arguments, for programs.
fn misused(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let message = paragraphs.next().unwrap_or_default();
    let hint = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: "));
    let message = message.strip_prefix("error: ").unwrap_or(message);
    Failure::usage(message).with_hint(hint.map(str::to_owned))
}
