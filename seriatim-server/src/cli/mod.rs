//! The commands, one file each.

mod advice;
mod args;
mod audit;
mod batches;
mod bench;
mod bridge;
mod causes;
mod check;
mod completions;
mod config_check;
mod cron;
mod deed;
mod demo;
mod doctor;
mod examples;
mod export;
mod grammar;
mod history;
mod import;
mod job_events;
mod job_filters;
mod jobs;
mod key;
mod lane_text;
mod lanes;
mod man;
mod migrate;
mod morgue;
mod nodes;
mod openapi;
mod operations;
pub(crate) mod output;
mod push;
mod push_file;
mod queue_limits;
mod queue_text;
mod queues;
mod scheduled;
mod search;
mod serve;
mod stats;
#[cfg(test)]
mod tests;
mod tones;
mod top;
mod troubles;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use output::{Failure, Result};

/// How long the end waits for threads that still work: one may wait for a network drive that hangs.
const THREADS_MAX: Duration = Duration::from_secs(5);

/// Background jobs that run in order where order matters and in parallel everywhere else.
#[derive(Parser)]
#[command(name = "seriatim", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs shuffled, duplicated order updates through an engine, kills a node, and checks the result
    Demo(demo::Demo),
    /// Runs workers on the queues of a store
    Serve(serve::Serve),
    /// Pushes jobs
    Push(push::Push),
    /// Shows the metrics of all queues
    Stats(stats::Stats),
    /// Shows queues, lanes and nodes, live
    Top(top::Top),
    /// Lists queues; shows, pauses, resumes, deletes one; acts on all its lanes
    Queues(queues::Queues),
    /// Lists the dead jobs of a queue; requeues, edits, deletes them
    Morgue(morgue::Morgue),
    /// Shows why the latest dead jobs died, in all queues, most frequent first
    Causes(causes::Causes),
    /// Lists the lanes of a queue; shows, pauses, resumes, retries, deletes one
    Lanes(lanes::Lanes),
    /// Shows a key in all queues: why it waits, what failed
    Key(key::Key),
    /// Finds keys by their beginning, and jobs by task, error or payload, in all queues
    Search(search::Search),
    /// Lists jobs; shows, cancels, reschedules, reassigns, retries, deletes one
    Jobs(jobs::Jobs),
    /// Lists lanes that are due later, in all queues, soonest first
    Scheduled(scheduled::Scheduled),
    /// Counts, starts and stops actions on many jobs or lanes; lists those that were started
    Operations(operations::Operations),
    /// Lists batches of jobs, and opens, seals and shows one
    Batches(batches::Batches),
    /// Lists nodes; shows, quiets, stops one
    Nodes(nodes::Nodes),
    /// Lists cron entries with their last and next times; runs, pauses and resumes one
    Cron(cron::CronArgs),
    /// Shows the bridges to other systems; checks, pauses and repairs one
    Bridge(bridge::BridgeArgs),
    /// Checks the configuration
    Config(config_check::ConfigArgs),
    /// Converts the settings of another system into a configuration on stdout
    Import(import::Import),
    /// Moves the jobs of a queue back to another system
    Export(export::Export),
    /// Finds what is stuck, failing, slow or misconfigured, and suggests what to do
    Doctor(doctor::Doctor),
    /// Creates or upgrades the schema of a store
    Migrate(migrate::Migrate),
    /// Prints the completions for a shell
    Completions(completions::Completions),
    /// Prints the OpenAPI document of the HTTP API
    Openapi(openapi::Openapi),
    /// Prints the manual page
    Man(man::Man),
    /// Measures a store: how fast jobs are pushed and drained
    Bench(bench::Bench),
    /// Checks recorded histories for overlaps, wrong order, losses and duplicates
    Check(check::Check),
    /// Lists who changed what; checks that an audit log is complete
    Audit(audit::Audit),
    /// Shows past metrics: by the minute for a day, by the hour for 30 days
    History(history::History),
}

impl Command {
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Demo(demo) => demo.run().await,
            Self::Serve(serve) => serve.run().await,
            Self::Push(push) => push.run().await,
            Self::Stats(stats) => stats.run().await,
            Self::Top(top) => top.run().await,
            Self::Queues(queues) => queues.run().await,
            Self::Morgue(morgue) => morgue.run().await,
            Self::Causes(causes) => causes.run().await,
            Self::Lanes(lanes) => lanes.run().await,
            Self::Key(key) => key.run().await,
            Self::Search(search) => search.run().await,
            Self::Jobs(jobs) => jobs.run().await,
            Self::Scheduled(scheduled) => scheduled.run().await,
            Self::Operations(operations) => operations.run().await,
            Self::Batches(batches) => batches.run().await,
            Self::Nodes(nodes) => nodes.run().await,
            Self::Cron(cron) => cron.run().await,
            Self::Bridge(bridge) => bridge.run().await,
            Self::Config(config) => config.run().await,
            Self::Import(import) => import.run(),
            Self::Export(export) => export.run().await,
            Self::Doctor(doctor) => doctor.run().await,
            Self::Migrate(migrate) => migrate.run().await,
            Self::Completions(completions) => {
                completions.run(program());
                Ok(())
            }
            Self::Openapi(openapi::Openapi {}) => {
                openapi::Openapi::run();
                Ok(())
            }
            Self::Man(man) => man.run(program()),
            Self::Bench(bench) => bench.run().await,
            Self::Check(check) => check.run(),
            Self::Audit(audit) => audit.run().await,
            Self::History(history) => history.run().await,
        }
    }
}

/// The program `seriatim`, with the arguments of this process.
pub(crate) fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let json = asks_for_json(&arguments);
    run(arguments).unwrap_or_else(|failure| failure.report(json))
}

fn run(arguments: Vec<OsString>) -> Result<ExitCode> {
    // Before anything reads one: a value that is not UTF-8 would make the readers of others panic.
    crate::config::environment()?;
    let json = asks_for_json(&arguments);
    let mut program = program();
    let read = program.clone();
    let read = read.try_get_matches_from(grammar::normal(&program, arguments.clone()));
    let read = read.and_then(|matches| {
        grammar::check(&program, &matches)?;
        Ok((Cli::from_arg_matches(&matches)?, matches))
    });
    let read = read.map_err(|error| grammar::advised(&mut program, &arguments, error));
    let (cli, matches) = match read {
        Ok(read) => read,
        Err(error) if json && error.use_stderr() => return Err(misused(&error)),
        // Help and version too: they are written, and the process ends.
        Err(error) => error.exit(),
    };
    deed::audit(&matches, &arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(cli.command.run()).map(|()| ExitCode::SUCCESS);
    runtime.shutdown_timeout(THREADS_MAX);
    ended
}

/// The program's commands and flags, with examples.
fn program() -> clap::Command {
    examples::add(grammar::with_lists(Cli::command()))
}

/// Whether the arguments contain `--json`, even if they cannot be parsed.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// Wrong arguments, as clap reports them, in JSON.
fn misused(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim);
    let message = paragraphs.next().unwrap_or_default();
    let hint = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: "));
    let message = message.strip_prefix("error: ").unwrap_or(message);
    Failure::usage(message).with_hint(hint.map(str::to_owned))
}
