//! One grammar for all nouns: `seriatim NOUN VERB [ARGS]`.
//!
//! `lanes` and `morgue` take one queue, which may also precede the verb, as in earlier versions:
//! `seriatim lanes orders retry KEY` is `seriatim lanes retry orders KEY`. And a noun alone lists:
//! `seriatim queues` is `seriatim queues list`.

use std::ffi::OsString;

use clap::Command;

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
}
