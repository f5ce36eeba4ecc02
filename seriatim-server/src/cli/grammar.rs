//! One grammar for all nouns: `seriatim NOUN VERB [ARGS]`.
//!
//! `lanes` and `morgue` take one queue, which may also precede the verb, as in earlier versions:
//! `seriatim lanes orders retry KEY` is `seriatim lanes retry orders KEY`. A noun alone lists:
//! `seriatim queues` is `seriatim queues list`, and `seriatim jobs orders` lists the jobs of a queue, as
//! `seriatim lanes orders` its lanes, and `seriatim jobs ID` shows a job. Options that all commands have may come first.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use seriatim::{JobId, names};

/// Nouns that list if there is no verb.
const NOUNS: [&str; 9] =
    ["queues", "lanes", "jobs", "morgue", "nodes", "operations", "cron", "audit", "batches"];
/// Nouns that need a queue, which the parser expects before the verb.
const OF_A_QUEUE: [&str; 2] = ["lanes", "morgue"];
const LIST: &str = "list";
/// The noun that may have a queue.
const JOBS: &str = "jobs";
/// Options of all commands that work on a store.
const COMMON: [&str; 3] = ["--store", "--config", "--json"];

/// The arguments in the order that the parser of `program` expects.
pub(crate) fn normal(program: &Command, mut arguments: Vec<OsString>) -> Vec<OsString> {
    let behind = arguments.len().min(1);
    let common: Vec<OsString> =
        arguments.drain(behind..behind + common_words(&arguments[behind..])).collect();
    order(program, &mut arguments);
    let place = arguments.len().min(2);
    arguments.splice(place..place, common);
    arguments
}

/// How many words at the beginning are common options, with their values.
fn common_words(words: &[OsString]) -> usize {
    let mut count = 0;
    while let Some(word) = words.get(count).and_then(|word| word.to_str()) {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, v)| (name, Some(v)));
        if !COMMON.contains(&name) {
            break;
        }
        count += if name == "--json" || value.is_some() { 1 } else { 2 };
    }
    count.min(words.len())
}

/// Puts the words behind the noun in order.
fn order(program: &Command, arguments: &mut Vec<OsString>) {
    let word = |place: usize| arguments.get(place).and_then(|word| word.to_str());
    let is_name = |place| word(place).is_some_and(|word| !word.starts_with('-'));
    let (Some(noun), Some(verb)) = (word(1), word(2)) else { return };
    let Some(command) = program.find_subcommand(noun).filter(|_| NOUNS.contains(&noun)) else {
        return;
    };
    let (needs_queue, is_verb) =
        (OF_A_QUEUE.contains(&noun), verb == "help" || command.find_subcommand(verb).is_some());
    if verb == LIST && (is_name(3) || !needs_queue) {
        let jobs_of_queue = noun == JOBS && is_name(3);
        arguments.remove(2);
        if jobs_of_queue {
            arguments.insert(2, "--queue".into());
        }
    } else if needs_queue && is_name(3) && is_verb {
        arguments.swap(2, 3);
    } else if noun == JOBS && is_name(2) && !is_verb && !is_name(3) {
        let verb = if verb.parse::<JobId>().is_ok() { "show" } else { "--queue" };
        arguments.insert(2, verb.into());
    }
}

/// Refuses options of a list before a verb, which does not heed them, as in `seriatim jobs --queue a cancel ID`.
pub(crate) fn check(program: &Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((noun, of_noun)) = matches.subcommand().filter(|(noun, _)| NOUNS.contains(noun))
    else {
        return Ok(());
    };
    let (Some((verb, _)), Some(command)) = (of_noun.subcommand(), program.find_subcommand(noun))
    else {
        return Ok(());
    };
    let options = command.get_opts().filter(|option| !option.is_global_set());
    let mut said = options.filter(|option| {
        of_noun.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
    });
    let Some(option) = said.find_map(|option| option.get_long()) else { return Ok(()) };
    let message = format!(
        "--{option} comes before `{verb}`, where it is an option of `{noun} list`: put options of `{verb}` after it"
    );
    let mut command = command.clone().bin_name(format!("seriatim {noun}"));
    Err(command.error(ErrorKind::ArgumentConflict, message))
}

/// Suggests the option that was meant: clap finds none if two letters of a short one are swapped.
pub(crate) fn advised(
    program: &mut Command,
    arguments: &[OsString],
    mut error: clap::Error,
) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let name = unknown.trim_start_matches('-').to_owned();
    if error.kind() != ErrorKind::UnknownArgument || error.get(ContextKind::SuggestedArg).is_some()
    {
        return error;
    }
    program.build();
    let words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let command =
        words.fold(&*program, |command, word| command.find_subcommand(word).unwrap_or(command));
    let known = command.get_opts().filter_map(Arg::get_long);
    if let Some(meant) = names::closest(&name, known).map(|meant| format!("--{meant}")) {
        error.remove(ContextKind::Suggested);
        error.insert(ContextKind::SuggestedArg, ContextValue::String(meant));
    }
    error
}

/// Names `list` in the help of the nouns.
pub(crate) fn with_lists(program: Command) -> Command {
    NOUNS.iter().fold(program, |program, noun| {
        let list = Command::new(LIST).about("Lists them (the default)");
        program.mut_subcommand(noun, |command| command.subcommand(list.display_order(0)))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_noun_takes_its_verb_first_and_the_earlier_forms_mean_the_same() {
        let program = crate::cli::Cli::command();
        let cases = [
            ("lanes retry orders k1 k2", "lanes orders retry k1 k2"),
            ("lanes orders retry k1 k2", "lanes orders retry k1 k2"),
            ("lanes list orders --by key", "lanes orders --by key"),
            ("lanes orders --json", "lanes orders --json"),
            ("morgue requeue mails --all", "morgue mails requeue --all"),
            ("morgue mails delete --all --yes", "morgue mails delete --all --yes"),
            ("queues list --json", "queues --json"),
            ("queues pause list", "queues pause list"),
            ("jobs list --queue a", "jobs --queue a"),
            ("jobs list a --json", "jobs --queue a --json"),
            ("jobs a", "jobs --queue a"),
            (
                "jobs 01a22072-1bcd-7000-8001-000000000001",
                "jobs show 01a22072-1bcd-7000-8001-000000000001",
            ),
            ("jobs a --state dead", "jobs --queue a --state dead"),
            ("jobs --state dead", "jobs --state dead"),
            ("--store sqlite:a jobs list", "jobs --store sqlite:a"),
            ("--store=sqlite:a --json jobs a", "jobs --store=sqlite:a --json --queue a"),
            ("--json lanes retry orders k", "lanes --json orders retry k"),
            ("--config a push b 1", "push --config a b 1"),
            ("nodes list", "nodes"),
            ("cron list", "cron"),
            ("batches list --live", "batches --live"),
            ("audit list --queue a", "audit --queue a"),
            ("push list 1", "push list 1"),
            ("lanes retry --help", "lanes retry --help"),
            ("lanes", "lanes"),
        ];
        for (said, meant) in cases {
            let arguments = |line: &str| -> Vec<OsString> {
                std::iter::once("seriatim").chain(line.split(' ')).map(OsString::from).collect()
            };
            let found = normal(&program, arguments(said));
            assert_eq!(found, arguments(meant), "{said}");
            let reads = !["lanes", "lanes retry --help"].contains(&said);
            assert_eq!(program.clone().try_get_matches_from(found).is_ok(), reads, "{said}");
        }
    }

    #[test]
    fn an_option_with_two_letters_swapped_is_suggested() {
        let mut program = with_lists(crate::cli::Cli::command());
        let mut refused = |line: &str| {
            let words = std::iter::once("seriatim").chain(line.split(' ')).map(OsString::from);
            let words: Vec<OsString> = words.collect();
            let error = program.clone().try_get_matches_from(&words).unwrap_err();
            advised(&mut program, &words, error).to_string()
        };
        let error = refused("push orders 1 --kye k");
        assert!(error.contains("'--key'") && !error.contains("'-- --kye'"), "{error}");
        assert!(refused("queues pause q --raeson r").contains("'--reason'"));
        assert!(!refused("push orders 1 --xylophone x").contains("similar"));
    }

    #[test]
    fn options_of_a_list_before_a_verb_are_refused() {
        let program = with_lists(crate::cli::Cli::command());
        let checked = |line: &str| {
            let words = std::iter::once("seriatim").chain(line.split(' ')).map(OsString::from);
            let read = program.clone().try_get_matches_from(normal(&program, words.collect()));
            check(&program, &read.unwrap_or_else(|error| panic!("{line}: {error}")))
        };
        for line in
            ["batches --limit 3 seal b", "batches --live show b", "lanes --by key orders retry k"]
        {
            let error = checked(line).unwrap_err().to_string();
            let verb = line.split(' ').nth_back(1).unwrap();
            assert!(
                error.contains(&format!("put options of `{verb}` after it")),
                "{line}: {error}"
            );
            assert!(error.contains("Usage: seriatim "), "{error}");
        }
        for line in
            ["batches --limit 3", "batches --json seal b", "batches --store sqlite:a seal b"]
        {
            assert!(checked(line).is_ok(), "{line}");
        }
    }
}
