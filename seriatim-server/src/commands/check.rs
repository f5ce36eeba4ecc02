//! `seriatim check`: judges recorded histories.

use std::path::PathBuf;

use clap::Args;
use seriatim::checker::check_files;

use crate::output::{Failure, say};

#[derive(Args)]
pub(crate) struct Check {
    /// Histories, as `serve --history` and `demo --history` write them; judged together
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let report = check_files(&self.logs).map_err(Failure::failed)?;
        if self.json {
            say(serde_json::to_string(&report).map_err(Failure::failed)?);
        } else {
            say(&report);
        }
        match report.is_clean() {
            true => Ok(()),
            false => Err(Failure::failed("the history breaks a promise, or is not complete")),
        }
    }
}
