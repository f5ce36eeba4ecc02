//! Commands that change a store are written to the audit log before they run, like actions of the HTTP API.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use serde::Serialize;
use seriatim::Timestamp;

use super::args::without_password;
use crate::app::chain::Chain;
use crate::base::text::one_line;
use crate::cli::output::Failure;
use crate::config::{Audited, Config};
use crate::protocol::value::Time;

/// Commands whose verbs may change a store.
const NOUNS: [&str; 6] = ["queues", "morgue", "lanes", "jobs", "nodes", "operations"];
/// Verbs that only read. All others change something.
const READS: [&str; 3] = ["list", "show", "preview"];
/// Longest command line in the audit log, in bytes.
const ASKED_BYTES_MAX: usize = 1_000;

/// The action of a command, as `lanes delete`; none if it only reads.
fn action(matches: &ArgMatches) -> Option<String> {
    let (noun, of) = matches.subcommand()?;
    if matches!(noun, "push" | "migrate" | "bench") {
        return Some(noun.to_owned());
    }
    let verb = of.subcommand_name().filter(|verb| !READS.contains(verb))?;
    NOUNS.contains(&noun).then(|| format!("{noun} {verb}"))
}

/// Writes a line of the audit log if the command changes something and the configuration has an audit log.
/// If that fails, the command does not run.
pub(crate) fn audit(matches: &ArgMatches, arguments: &[OsString]) -> Result<(), Failure> {
    let Some(action) = action(matches) else { return Ok(()) };
    let deepest =
        std::iter::successors(Some(matches), |of| of.subcommand().map(|(_, of)| of)).last();
    let file = deepest.and_then(|of| of.get_one::<PathBuf>("config"));
    let config = Config::read(file.map(PathBuf::as_path))?;
    if action == "push" && config.http.audit != Audited::All {
        return Ok(());
    }
    Book::of(&config).write(&action, &asked(&action, arguments))
}

/// The audit log of the command line.
#[derive(Clone, Default)]
pub(crate) struct Book(Option<PathBuf>);

impl Book {
    pub(crate) fn of(config: &Config) -> Self {
        Self(config.http.audit_file.clone())
    }

    /// Writes a line if there is an audit log. If that fails, the action must not run.
    pub(crate) fn write(&self, action: &str, asked: &str) -> Result<(), Failure> {
        let Some(path) = &self.0 else { return Ok(()) };
        let line = serde_json::to_string(&Line {
            at: Time(Timestamp::of_this_machine()),
            who: format!("user {}", rustix::process::getuid().as_raw()),
            role: "command line",
            from: format!("process {}", std::process::id()),
            action,
            asked,
        });
        let line = line.map_err(Failure::failed)?;
        let written = Chain::open(path).and_then(|mut chain| chain.append(&line));
        written.map_err(|error| {
            Failure::failed(format!(
                "nothing was done: cannot write the audit log {}: {error}",
                path.display()
            ))
        })
    }
}

#[derive(Serialize)]
struct Line<'a> {
    at: Time,
    who: String,
    role: &'a str,
    from: String,
    action: &'a str,
    asked: &'a str,
}

/// The command line, without passwords and payloads.
fn asked(action: &str, arguments: &[OsString]) -> String {
    if action == "push" {
        return String::new();
    }
    let shown = arguments.iter().skip(1).map(|one| {
        let one = one.to_string_lossy();
        match one.strip_prefix("--store=") {
            Some(url) => format!("--store={}", without_password(url)),
            None => without_password(&one),
        }
    });
    let mut line = one_line(&shown.collect::<Vec<_>>().join(" "));
    line.truncate(line.floor_char_boundary(ASKED_BYTES_MAX));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_verbs_but_those_that_read_are_deeds() {
        let program = crate::cli::program();
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let words = super::super::grammar::normal(&program, words);
            action(&program.clone().try_get_matches_from(words).unwrap_or_else(|e| panic!("{e}")))
        };
        assert_eq!(of("seriatim queues"), None);
        assert_eq!(of("seriatim lanes show orders k"), None);
        assert_eq!(of("seriatim doctor"), None);
        assert_eq!(of("seriatim queues pause orders").as_deref(), Some("queues pause"));
        assert_eq!(of("seriatim nodes release a").as_deref(), Some("nodes release"));
        for noun in program.get_subcommands().filter(|noun| noun.has_subcommands()) {
            let name = noun.get_name();
            // They touch no store.
            let known = NOUNS.contains(&name) || ["config", "audit", "cron", "man"].contains(&name);
            assert!(known, "{name}: add it to NOUNS if its verbs change a store");
        }
    }

    #[test]
    fn passwords_are_not_audited() {
        let line = [
            "seriatim",
            "lanes",
            "delete",
            "q",
            "k",
            "--store",
            "postgres://me:sesame@db/x",
            "--store=redis://:sesame@h/",
        ];
        let line: Vec<OsString> = line.iter().map(Into::into).collect();
        assert_eq!(
            asked("lanes delete", &line),
            "lanes delete q k --store postgres://db/x --store=redis://h/"
        );
    }
}
