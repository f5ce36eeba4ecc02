//! The one binary of Seriatim, thin over the library, and its HTTP API for services that mount it.

mod commands;
mod config;
mod failures;
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
mod workers;

use std::process::ExitCode;

use clap::Parser;

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
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::failed(format!("cannot start: {error}")).report(),
    };
    match runtime.block_on(cli.command.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
