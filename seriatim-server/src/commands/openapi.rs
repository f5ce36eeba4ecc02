//! `seriatim openapi`: what the HTTP API is, for programs.

use clap::Args;

use crate::http;
use crate::output::say;

#[derive(Args)]
pub(crate) struct Openapi {}

impl Openapi {
    pub(crate) fn run() {
        say(format!("{:#}", http::openapi("")));
    }
}
