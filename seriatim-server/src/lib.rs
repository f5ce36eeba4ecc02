//! The one binary of Seriatim, thin over the library, and its HTTP API for services that mount it.

#![forbid(unsafe_code)]

mod app;
mod base;
mod cli;
mod config;
mod http;
mod journal;
mod protocol;
mod trace;
mod workers;

pub use cli::main;
pub use http::router;
