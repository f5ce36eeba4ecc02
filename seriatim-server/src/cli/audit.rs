//! `seriatim audit verify`: checks that an audit log is complete.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::app::chain::verify;
use crate::base::text::count;
use crate::cli::output::{Failure, say, say_json};

#[derive(Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Checks that no line was changed, removed or inserted
    Verify {
        /// Audit logs, oldest first: each must continue the one before
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The hash of the last line before the first file, as printed by an earlier check
        #[arg(long, value_name = "HASH")]
        after: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Whole {
    lines: u64,
    first: Option<String>,
    last: Option<String>,
}

impl Audit {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Action::Verify { files, after, json } = self.action;
        let (mut lines, mut first, mut last) = (0, None, after);
        for path in files {
            let unreadable =
                |error| Failure::failed(format!("{} cannot be read: {error}", path.display()));
            let file = File::open(&path).map_err(unreadable)?;
            let seen = verify(BufReader::new(file), last).map_err(unreadable)?;
            if let Some((line, what)) = seen.broken {
                let path = path.display();
                return Err(Failure::failed(format!("{path}, line {line}: it {what}")));
            }
            lines += seen.lines;
            first = first.or(seen.first);
            last = seen.last;
        }
        if json {
            say_json(&Whole { lines, first, last });
            return Ok(());
        }
        say(format!("{}: each follows the one before", count(lines, "line")));
        if let (Some(first), Some(last)) = (first, last) {
            say(format!("the first follows {first}\nthe last is {last}"));
        }
        Ok(())
    }
}
