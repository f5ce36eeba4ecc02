//! The command line as a whole is valid, and its page documents all of it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use clap::{Command, CommandFactory};

use super::Cli;

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
