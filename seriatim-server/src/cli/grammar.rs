//! One grammar for all nouns: `seriatim NOUN VERB [ARGS]`.
//!
//! `lanes` and `morgue` take one queue, which may also precede the verb, as in earlier versions:
//! `seriatim lanes orders retry KEY` is `seriatim lanes retry orders KEY`. And a noun alone lists:
//! `seriatim queues` is `seriatim queues list`.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// Nouns that list if there is no verb.
const NOUNS: [&str; 9] =
    ["queues", "lanes", "jobs", "morgue", "nodes", "operations", "cron", "audit", "batches"];
/// Nouns that need a queue, which the parser expects before the verb.
const OF_A_QUEUE: [&str; 2] = ["lanes", "morgue"];
const LIST: &str = "list";

/// The arguments in the order that the parser of `program` expects.
pub(crate) fn normal(program: &Command, mut arguments: Vec<OsString>) -> Vec<OsString> {
    let word = |place: usize| arguments.get(place).and_then(|word| word.to_str());
    let (Some(noun), Some(verb)) = (word(1), word(2)) else { return arguments };
    let Some(command) = program.find_subcommand(noun).filter(|_| NOUNS.contains(&noun)) else {
        return arguments;
    };
    let has_queue = word(3).is_some_and(|word| !word.starts_with('-'));
    if verb == LIST && (has_queue || !OF_A_QUEUE.contains(&noun)) {
        arguments.remove(2);
    } else if has_queue && OF_A_QUEUE.contains(&noun) && command.find_subcommand(verb).is_some() {
        arguments.swap(2, 3);
    }
    arguments
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
        "--{option} stands before `{verb}`, where it would be an option of `{noun} list`: options of `{verb}` follow it"
    );
    let mut command = command.clone().bin_name(format!("seriatim {noun}"));
    Err(command.error(ErrorKind::ArgumentConflict, message))
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
            assert!(error.contains(&format!("options of `{verb}` follow it")), "{line}: {error}");
            assert!(error.contains("Usage: seriatim "), "{error}");
        }
        for line in
            ["batches --limit 3", "batches --json seal b", "batches --store sqlite:a seal b"]
        {
            assert!(checked(line).is_ok(), "{line}");
        }
    }
}
