//! `seriatim completions`: completions for a shell.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut program: clap::Command) {
        // Into memory first: the generator panics when its writer has gone away.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "seriatim", &mut script);
        let _ = std::io::stdout().write_all(&script);
    }
}
