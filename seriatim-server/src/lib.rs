//! The one binary of Seriatim, thin over the library, and its HTTP API for services that mount it.

#![forbid(unsafe_code)]

mod app;
mod base;
mod bridges;
mod cli;
mod config;
mod faktory;
mod http;
mod journal;
mod protocol;
mod trace;
mod workers;

pub use http::{Dashboard, Person, dashboard, router};

/// The program `seriatim`, with the arguments of this process.
pub fn main() -> std::process::ExitCode {
    // First of all: programs that another one of this user left behind may be looking. `serve` needs it.
    let _ = workers::hide();
    cli::main()
}
