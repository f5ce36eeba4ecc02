//! The command line as a whole is valid, and its page documents all of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};

use super::{Cli, grammar};

const PAGE: &str = include_str!("../../../docs/cli.md");
/// Flags that are described once for all commands.
const EVERYWHERE: [&str; 5] = ["config", "store", "json", "help", "version"];

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

/// The sections of the page, by command.
fn sections() -> BTreeMap<&'static str, &'static str> {
    let sections = PAGE.split("\n## seriatim ").skip(1);
    sections.map(|section| section.split_once('\n').unwrap()).collect()
}

fn flags(command: &Command) -> Vec<String> {
    let flags = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let long = flags.filter_map(|argument| argument.get_long().map(str::to_owned));
    long.filter(|name| !EVERYWHERE.contains(&name.as_str())).collect()
}

/// Flags as they stand in a text.
fn named(text: &str) -> Vec<&str> {
    let rest = text.split("--").skip(1);
    rest.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
        &rest[..end]
    })
    .filter(|name| !name.is_empty() && !name.starts_with('-'))
    .collect()
}

#[test]
fn the_page_names_every_command_and_every_flag() {
    let (program, sections) = (Cli::command(), sections());
    let mut missing = Vec::new();
    for command in program.get_subcommands() {
        let name = command.get_name();
        let Some(section) = sections.get(name) else {
            missing.push(format!("a section on seriatim {name}"));
            continue;
        };
        let known = named(section);
        let actions: Vec<&Command> = command.get_subcommands().collect();
        for action in &actions {
            let line =
                ["", " Q"].map(|queue| format!("seriatim {name}{queue} {}", action.get_name()));
            if !line.iter().any(|line| section.contains(line.as_str())) {
                missing.push(line[0].clone());
            }
        }
        let flags = std::iter::once(command).chain(actions).flat_map(flags);
        missing.extend(
            flags.filter(|flag| !known.contains(&flag.as_str())).map(|f| format!("{name} --{f}")),
        );
    }
    assert_eq!(missing, [""; 0], "docs/cli.md lacks these");
}

#[test]
fn the_page_names_nothing_that_is_not_there() {
    let program = Cli::command();
    let with_actions = |command: &Command| {
        let actions = command.get_subcommands().flat_map(flags);
        flags(command).into_iter().chain(actions).collect::<Vec<_>>()
    };
    // A section also shows what other commands print and advise.
    let all: Vec<String> = program.get_subcommands().flat_map(with_actions).collect();
    for (name, section) in sections() {
        assert!(program.find_subcommand(name).is_some(), "there is no command {name}");
        for flag in named(section) {
            let known = EVERYWHERE.contains(&flag) || all.iter().any(|known| known == flag);
            assert!(known, "no command has --{flag}, which the section on {name} names");
        }
    }
}

/// The words of a command line, without quotes, up to `>` or `|`.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut quoted) = (String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            '>' | '|' if !quoted => break,
            c => word.push(c),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// The commands between backticks in the texts below a place, with the files that they are in.
fn quoted(place: &Path, found: &mut Vec<(String, String)>) {
    if place.is_dir() {
        fs::read_dir(place).unwrap().for_each(|entry| quoted(&entry.unwrap().path(), found));
        return;
    }
    let Ok(text) = fs::read_to_string(place) else { return };
    for line in text.lines() {
        // What is quoted stands at every second place.
        let commands =
            line.split('`').skip(1).step_by(2).filter(|text| text.starts_with("seriatim "));
        found.extend(commands.map(|command| (command.to_owned(), place.display().to_string())));
    }
}

/// The words of a command, with something that can be read in the place of `{queue}`, `ID` and the like.
fn filled(command: &str) -> Vec<String> {
    let word = |word: String| match word.trim_end_matches('…') {
        "{action}" | "ACTION" => "retry".to_owned(),
        "DURATION" => "10s".to_owned(),
        "TIME" => "2026-11-21T10:00:00Z".to_owned(),
        "N" => "4".to_owned(),
        "MODE" => "fifo".to_owned(),
        "ID" => "01a1fd59-5e2c-7000-8001-000000000001".to_owned(),
        word if word.starts_with('{') => "01a1fd59-5e2c-7000-8001-000000000001".to_owned(),
        word => word.to_owned(),
    };
    words(command).into_iter().map(word).collect()
}

#[test]
fn every_command_that_a_text_advises_is_one_that_the_program_understands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The grammar, and its earlier form.
    let explained = ["seriatim NOUN VERB [ARGS]", "seriatim lanes orders retry KEY"];
    let mut commands = Vec::new();
    for place in ["src", "../seriatim/src", "../docs", "../README.md", "../deploy"] {
        quoted(&root.join(place), &mut commands);
    }
    commands.retain(|(command, _)| !explained.contains(&command.as_str()));
    assert!(commands.len() > 100, "{}", commands.len());
    let (program, mut wrong) = (Cli::command(), Vec::new());
    for (command, file) in commands {
        let words = filled(&command);
        let noun = words.get(1).and_then(|noun| program.find_subcommand(noun));
        let is_verb =
            |at| noun.zip(words.get(at)).is_some_and(|(n, w)| n.find_subcommand(w).is_some());
        if is_verb(3) && !is_verb(2) {
            wrong.push(format!("{file}: {command}: the verb comes first"));
        }
        let words = words.iter().map(Into::into).collect();
        let read = program.clone().try_get_matches_from(grammar::normal(&program, words));
        match read.map_err(|error| error.kind()) {
            // A text may name a command without its arguments.
            Ok(_) | Err(ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelp) => {}
            Err(kind) => wrong.push(format!("{file}: {command}: {kind:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
