//! `seriatim man`: the manual page, of the program or of one command.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;

use crate::Cli;
use crate::output::Failure;

#[derive(Args)]
pub(crate) struct Man {
    /// The command; the whole program when none is named
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut program = Cli::command();
        program.build();
        let command = match &self.command {
            None => program,
            Some(name) => {
                let found = program.get_subcommands().find(|command| command.get_name() == name);
                let unknown = || {
                    Failure::usage(format!(
                        "there is no command {name:?}: `seriatim help` lists them"
                    ))
                };
                found.cloned().ok_or_else(unknown)?
            }
        };
        let mut text = Vec::new();
        Page::new(command).render(&mut text).map_err(Failure::failed)?;
        let _ = std::io::stdout().write_all(&text);
        Ok(())
    }
}
