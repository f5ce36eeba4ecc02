//! `seriatim openapi`: what the HTTP API is, for programs.

use clap::Args;

use crate::cli::output::say;
use crate::http;

#[derive(Args)]
pub(crate) struct Openapi {}

impl Openapi {
    pub(crate) fn run() {
        say(format!("{:#}", http::api_document("")));
    }
}
