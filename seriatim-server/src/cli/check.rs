//! `seriatim check`: checks recorded histories.

use std::path::PathBuf;

use clap::Args;
use seriatim_verify::checker::{Judgement, check_files};

use crate::cli::output::{Failure, Result, say};

const BROKEN: &str = "the history violates a guarantee";
const UNDECIDED: &str = "no violation was found, but the history is incomplete, so not everything could be checked \
     (docs/history.md describes a complete history)";
const STRANGERS: &str = "\"never pushed\" also counts jobs of programs that record no history, \
     or whose history is not among these files";

#[derive(Args)]
pub(crate) struct Check {
    /// Histories, written by `serve --history` or `demo --history`; checked together
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let report = check_files(&self.logs).map_err(Failure::failed)?;
        if self.json {
            say(serde_json::to_string(&report).map_err(Failure::failed)?);
        } else {
            say(&report);
        }
        match (report.is_clean(), report.is_unbroken()) {
            (true, _) => Ok(()),
            (false, true) => Err(Failure::failed(UNDECIDED)),
            (false, false) if report.violations(Judgement::Phantom) > 0 => {
                Err(Failure::failed(format!("{BROKEN}; {STRANGERS}")))
            }
            (false, false) => Err(Failure::failed(BROKEN)),
        }
    }
}
