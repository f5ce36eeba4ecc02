//! `seriatim openapi`: the OpenAPI document of the HTTP API.

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
