//! `seriatim man`: the manual page, of the program or of one command.

use std::io::Write;

use clap::Args;
use clap_mangen::Man as Page;

use super::examples;
use crate::cli::output::Failure;

/// What the program reads and writes, beside what flags name.
const FILES: [(&str, &str); 3] = [
    ("seriatim.toml", "The configuration, in the current folder, unless --config names another."),
    ("seriatim.db", "The store, in the current folder, unless another is named."),
    ("journal.folder, http.audit_file", "What the configuration names for events and audit lines."),
];
const ENVIRONMENT: [(&str, &str); 6] = [
    ("SERIATIM_STORE", "The store, unless --store names one. Wins over the configuration."),
    ("SERIATIM_TOKEN", "A token of the HTTP API with role admin. At least 16 characters."),
    ("SERIATIM_LOG", "What serve logs, unless --log-level says. Wins over the configuration."),
    (
        "SERIATIM_SECTION__KEY",
        "Any key of the configuration, as SERIATIM_HTTP__LISTEN. Wins over the file.",
    ),
    ("NO_COLOR", "No colours, if set."),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "Where spans go, in builds with the feature otlp."),
];
const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "Done."),
    (
        "1",
        "It failed, or is about something that is not there. doctor and check: something serious was found.",
    ),
    ("2", "The command line, a variable or the configuration is wrong. Nothing was done."),
    ("130", "push --file was interrupted. It says what is pushed and where to go on."),
];

#[derive(Args)]
pub(crate) struct Man {
    /// The command. Default: the whole program
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(self, mut program: clap::Command) -> Result<(), Failure> {
        // Its own section has the examples, and not the end of the help.
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

/// A section of terms, each with what is to be said of it.
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
