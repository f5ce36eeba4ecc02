//! The examples of each command, for its help and its manual page.

use clap::Command;

/// A command line, and its effect.
type Example = (&'static str, &'static str);

/// By command; a test parses each of them.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "demo",
        &[
            ("seriatim demo", "a checked run in a few seconds"),
            ("seriatim demo --keep", "a folder with sample problems, to see the dashboard"),
        ],
    ),
    (
        "serve",
        &[
            ("seriatim serve", "with seriatim.toml in this folder"),
            (
                "seriatim serve --config /etc/seriatim.toml --queues orders,mails",
                "only these queues",
            ),
            ("seriatim serve --log-level info,seriatim=debug", "with a line for each call"),
        ],
    ),
    (
        "push",
        &[
            ("seriatim push orders '{\"status\":\"paid\"}' --key order-42", "in order by key"),
            ("seriatim push mails '{\"to\":\"a@example.com\"}' --in 10m", "later"),
            ("seriatim push mails '{\"to\":\"a@example.com\"}' --group acme", "for a tenant"),
            ("seriatim push orders --file jobs.ndjson", "one JSON object on each line"),
            ("seriatim push orders --file jobs.ndjson --from-line 4001", "the rest of the file"),
        ],
    ),
    (
        "import",
        &[
            ("seriatim import dataloader .env > seriatim.toml", "its variables"),
            ("seriatim import sidekiq describe.json > seriatim.toml", "see docs/ruby.md"),
        ],
    ),
    ("stats", &[("seriatim stats", "a table"), ("seriatim stats --json", "for programs")]),
    ("top", &[("seriatim top", "live"), ("seriatim top --once", "one frame, as text")]),
    (
        "queues",
        &[
            ("seriatim queues list", "all of them"),
            ("seriatim queues show orders", "one in full"),
            ("seriatim queues pause orders", "no new claims"),
            ("seriatim queues limits orders --running 10 --rate 100/s", "of all nodes together"),
            (
                "seriatim queues limits orders --group acme --weight 3",
                "3 turns of a tenant for 1 of others",
            ),
            ("seriatim queues drain orders --yes", "delete the waiting jobs"),
            ("seriatim queues delete orders --yes", "the queue and all that is in it"),
        ],
    ),
    (
        "morgue",
        &[
            ("seriatim morgue list orders", "the dead jobs, the newest first"),
            ("seriatim morgue causes orders", "why they died"),
            ("seriatim morgue requeue orders --key order-42", "try those of a key again"),
            ("seriatim morgue requeue orders --all --rate 500/s", "try all again, slowly"),
            ("seriatim morgue delete orders --all --yes", "delete all of them"),
        ],
    ),
    (
        "causes",
        &[
            ("seriatim causes", "why jobs died, in all queues"),
            ("seriatim causes --task ship --since 2h", "those of a task in the last two hours"),
        ],
    ),
    (
        "search",
        &[
            ("seriatim search order-4", "keys with this beginning"),
            ("seriatim search 'queue:orders error:timed out'", "jobs by terms"),
        ],
    ),
    (
        "scheduled",
        &[
            ("seriatim scheduled", "what is due next, in all queues"),
            ("seriatim scheduled --queue orders --due-to 2026-12-01T00:00:00Z", "until then"),
        ],
    ),
    ("key", &[("seriatim key order-42", "in all queues: why it waits, what failed")]),
    (
        "lanes",
        &[
            ("seriatim lanes list orders --by retries", "those that fail most"),
            ("seriatim lanes show orders order-42", "the running and waiting jobs of a key"),
            ("seriatim lanes retry orders order-42", "make it due now"),
            ("seriatim lanes release orders order-42", "take it from a hanging worker"),
        ],
    ),
    (
        "jobs",
        &[
            ("seriatim jobs list --queue orders --state queued", "those that wait"),
            ("seriatim jobs show 01a1fd59-5e2c-7000-8001-000000000001", "one in full"),
            (
                "seriatim jobs cancel 01a1fd59-5e2c-7000-8001-000000000001",
                "so that it does not run",
            ),
        ],
    ),
    (
        "operations",
        &[
            ("seriatim operations preview requeue orders --error timeout", "how many, and which"),
            ("seriatim operations start requeue orders --error timeout", "do it, in steps"),
            ("seriatim operations start pause orders --prefix shop-7-", "the keys of one shop"),
            ("seriatim operations start requeue --all-queues --error timeout", "after an outage"),
            ("seriatim operations list", "all, with their progress"),
        ],
    ),
    (
        "batches",
        &[
            ("seriatim batches open import-7 reports", "at its end, push to reports"),
            ("seriatim push rows '{}' --batch import-7", "one of its jobs"),
            ("seriatim batches seal import-7", "all its jobs are pushed"),
            ("seriatim batches show import-7", "how many are left"),
            ("seriatim batches list --live", "unfinished ones"),
        ],
    ),
    (
        "nodes",
        &[
            ("seriatim nodes list", "who works, and on what"),
            ("seriatim nodes quiet a", "node a takes no new work"),
            ("seriatim nodes release remote:w1", "take all that worker w1 has claimed"),
        ],
    ),
    (
        "cron",
        &[
            ("seriatim cron list", "what is due when, and on which nodes"),
            ("seriatim cron pause nightly --reason deploy", "no node pushes its ticks"),
            ("seriatim cron run nightly", "push its job now"),
        ],
    ),
    (
        "bridge",
        &[
            (
                "seriatim bridge check",
                "what would move where, and what would be refused; writes nothing",
            ),
            ("seriatim bridge pause shop critical --reason deploy", "take no more from one queue"),
            ("seriatim bridge status", "what was moved, and what is left"),
        ],
    ),
    (
        "export",
        &[("seriatim export orders --to sidekiq", "all jobs of the paused queue, in all states")],
    ),
    ("config", &[("seriatim config check", "check seriatim.toml")]),
    ("doctor", &[("seriatim doctor", "findings, and what to do about each")]),
    ("history", &[("seriatim history --queue orders --span 24h", "its last day, by the minute")]),
    (
        "audit",
        &[
            ("seriatim audit --queue orders --since 1d", "who changed what"),
            ("seriatim audit verify audit.ndjson", "whether a line was changed or removed"),
            ("seriatim audit verify audit.1.ndjson audit.ndjson", "one log that was rotated"),
        ],
    ),
    ("migrate", &[("seriatim migrate --store postgres://db/jobs", "before a new version starts")]),
    (
        "completions",
        &[(
            "seriatim completions bash > ~/.local/share/bash-completion/completions/seriatim",
            "for bash",
        )],
    ),
    ("openapi", &[("seriatim openapi > openapi.json", "for a generator of clients")]),
    ("man", &[("seriatim man push | man -l -", "the page of one command")]),
    ("bench", &[("seriatim bench --store sqlite:/tmp/bench.db --jobs 10000", "a short one")]),
    (
        "check",
        &[
            ("seriatim serve --history history.ndjson", "record a history"),
            ("seriatim check history.ndjson", "check it"),
        ],
    ),
];

/// Adds them to the help of the commands.
pub(crate) fn add(program: Command) -> Command {
    EXAMPLES.iter().fold(program, |program, (name, examples)| {
        program.mut_subcommand(name, |command| command.after_help(written(examples)))
    })
}

fn written(examples: &[Example]) -> String {
    let wide = examples.iter().map(|(line, _)| line.chars().count()).max().unwrap_or_default();
    let lines = examples.iter().map(|(line, what)| format!("  {line:<wide$}  # {what}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// The examples of a command; for the program itself, the first steps.
pub(super) fn of(name: &str) -> Vec<Example> {
    let own = EXAMPLES.iter().find(|(command, _)| *command == name);
    let begin = || EXAMPLES.iter().filter_map(|(_, examples)| examples.first().copied());
    own.map_or_else(|| begin().collect(), |(_, examples)| examples.to_vec())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::tests::words;

    #[test]
    fn every_command_has_examples_and_the_program_understands_each() {
        let program = add(crate::cli::Cli::command());
        for command in program.get_subcommands() {
            let examples = of(command.get_name());
            assert!(EXAMPLES.iter().any(|(name, _)| *name == command.get_name()), "{command}");
            let help = command.clone().render_help().to_string();
            for (line, _) in examples {
                assert!(help.contains(line), "{line}: {help}");
                let words = words(line).into_iter().map(Into::into).collect();
                let words = super::super::grammar::normal(&program, words);
                let read = program.clone().try_get_matches_from(words);
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }

    #[test]
    fn every_command_that_looks_at_a_store_takes_the_same_two_flags() {
        // They know neither a store nor a configuration.
        let without = ["demo", "check", "completions", "import", "openapi", "man"];
        let mut program = add(crate::cli::Cli::command());
        program.build();
        for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
            let takes = |flag: &str| command.get_arguments().any(|a| a.get_long() == Some(flag));
            let wanted = !without.contains(&command.get_name());
            for flag in ["config", "store"] {
                assert_eq!(takes(flag), wanted, "{} --{flag}", command.get_name());
            }
        }
    }
}
