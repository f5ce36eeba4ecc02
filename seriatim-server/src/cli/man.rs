//! `seriatim man`: the manual page, of the program or of one command.

use std::io::Write;

use clap::Args;
use clap_mangen::Man as Page;

use super::examples;
use crate::cli::output::{Failure, Result};

/// Files and variables of the program, besides those that flags name.
const FILES: [(&str, &str); 3] = [
    ("seriatim.toml", "The configuration. Default of --config."),
    ("seriatim.db", "The store. Default of --store."),
    ("http.audit_file", "Audit lines, if configured."),
];
const ENVIRONMENT: [(&str, &str); 6] = [
    ("SERIATIM_STORE", "The store, if --store is unset. Overrides the configuration."),
    ("SERIATIM_TOKEN", "A token of the HTTP API with role admin. At least 16 characters."),
    (
        "SERIATIM_LOG",
        "The log level of serve, if --log-level is unset. Overrides the configuration.",
    ),
    (
        "SERIATIM_SECTION__KEY",
        "Any key of the configuration, as SERIATIM_HTTP__LISTEN. Overrides the file.",
    ),
    ("NO_COLOR", "No colours, if set."),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "The collector of spans, in builds with the feature otlp."),
];
const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "Done."),
    (
        "1",
        "It failed, or named something that does not exist. doctor and check: a serious finding.",
    ),
    ("2", "The command line, a variable or the configuration is wrong. Nothing was done."),
    (
        "130",
        "push --file or an operation was interrupted. The message says how far it came, and for a file from which line to continue.",
    ),
];

#[derive(Args)]
pub(crate) struct Man {
    /// The command. Default: the whole program
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(self, mut program: clap::Command) -> Result<()> {
        // Its own section has the examples, and not the end of the help.
        program.build();
        let command = match &self.command {
            None => program,
            Some(name) => {
                let found = program.get_subcommands().find(|command| command.get_name() == name);
                let unknown =
                    || Failure::usage(format!("no command {name:?}: `seriatim help` lists them"));
                found.cloned().ok_or_else(unknown)?
            }
        };
        let examples = examples::of(command.get_name());
        let text = written(command.after_help(None::<&str>), &examples).map_err(Failure::failed)?;
        let _ = std::io::stdout().write_all(&text);
        Ok(())
    }
}

fn written(command: clap::Command, examples: &[(&str, &str)]) -> std::io::Result<Vec<u8>> {
    let has_commands = command.has_subcommands();
    let page = Page::new(command);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_commands {
        page.render_subcommands_section(&mut text)?;
    }
    section(&mut text, "EXAMPLES", examples)?;
    section(&mut text, "FILES", &FILES)?;
    section(&mut text, "ENVIRONMENT", &ENVIRONMENT)?;
    section(&mut text, "EXIT STATUS", &EXIT_STATUS)?;
    page.render_version_section(&mut text)?;
    Ok(text)
}

/// A section of terms, each with its description.
fn section(text: &mut Vec<u8>, title: &str, entries: &[(&str, &str)]) -> std::io::Result<()> {
    writeln!(text, ".SH \"{title}\"")?;
    for (term, said) in entries {
        writeln!(text, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(said))?;
    }
    Ok(())
}

/// As roff shows it unchanged. No entry begins with a dot.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}
