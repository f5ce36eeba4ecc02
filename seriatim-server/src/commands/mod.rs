//! The commands, one file each.

pub(crate) mod act;
mod args;
mod audit;
mod awaited;
mod bench;
mod check;
mod completions;
mod config_check;
pub(crate) mod cron;
pub(crate) mod deed;
mod demo;
mod doctor;
pub(crate) mod examples;
pub(crate) mod find;
pub(crate) mod grammar;
pub(crate) mod job_pages;
pub(crate) mod jobs;
pub(crate) mod lane_jobs;
pub(crate) mod lane_pages;
pub(crate) mod lanes;
mod man;
mod migrate;
mod morgue;
pub(crate) mod nodes;
mod openapi;
mod push;
mod push_file;
pub(crate) mod queues;
mod range;
pub(crate) mod running;
mod serve;
pub(crate) mod stats;
mod top;
pub(crate) mod troubles;

#[cfg(test)]
pub(crate) use args::DEFAULT_STORE;

use clap::Subcommand;

use crate::output::Failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs order updates, out of order and in duplicate, through a real engine; ends with a proof
    Demo(demo::Demo),
    /// Runs workers on the queues of a store
    Serve(serve::Serve),
    /// Pushes jobs
    Push(push::Push),
    /// Shows the numbers of all queues
    Stats(stats::Stats),
    /// Shows queues, lanes and nodes, live
    Top(top::Top),
    /// Lists queues; shows, pauses, resumes one; acts on all its lanes
    Queues(queues::Queues),
    /// Lists the dead jobs of a queue; requeues, edits, deletes them
    Morgue(morgue::Morgue),
    /// Lists the lanes of a queue; shows, pauses, resumes, retries, deletes one
    Lanes(lanes::Lanes),
    /// Lists jobs; shows, cancels, reschedules, reassigns, retries, deletes one
    Jobs(jobs::Jobs),
    /// Lists nodes; shows, quiets, stops one
    Nodes(nodes::Nodes),
    /// Lists what is pushed by the clock, and when next
    Cron(cron::CronArgs),
    /// Checks the configuration
    Config(config_check::ConfigArgs),
    /// Says what is stuck, failing, slow or misconfigured, and what to do about it
    Doctor(doctor::Doctor),
    /// Creates or upgrades what a store keeps
    Migrate(migrate::Migrate),
    /// Prints the completions for a shell
    Completions(completions::Completions),
    /// Prints the OpenAPI document of the HTTP API
    Openapi(openapi::Openapi),
    /// Prints the manual page
    Man(man::Man),
    /// Measures a store: how fast jobs are pushed and drained
    Bench(bench::Bench),
    /// Judges recorded histories: overlaps, order, losses, duplicates
    Check(check::Check),
    /// Checks that an audit log is whole
    Audit(audit::Audit),
}

impl Command {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Demo(demo) => demo.run().await,
            Self::Serve(serve) => serve.run().await,
            Self::Push(push) => push.run().await,
            Self::Stats(stats) => stats.run().await,
            Self::Top(top) => top.run().await,
            Self::Queues(queues) => queues.run().await,
            Self::Morgue(morgue) => morgue.run().await,
            Self::Lanes(lanes) => lanes.run().await,
            Self::Jobs(jobs) => jobs.run().await,
            Self::Nodes(nodes) => nodes.run().await,
            Self::Cron(cron) => cron.run(),
            Self::Config(config) => config.run().await,
            Self::Doctor(doctor) => doctor.run().await,
            Self::Migrate(migrate) => migrate.run().await,
            Self::Completions(completions) => {
                completions.run();
                Ok(())
            }
            Self::Openapi(openapi::Openapi {}) => {
                openapi::Openapi::run();
                Ok(())
            }
            Self::Man(man) => man.run(),
            Self::Bench(bench) => bench.run().await,
            Self::Check(check) => check.run(),
            Self::Audit(audit) => audit.run(),
        }
    }
}

/// Reads a duration from the command line.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    seriatim::duration::parse(text).map_err(|e| e.message().to_owned())
}

/// Reads a time from the command line.
pub(crate) fn time(text: &str) -> Result<seriatim::Timestamp, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Ok(seriatim::Timestamp::from_secs_f64(seconds));
    }
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|_| "write a time as 2026-01-31T12:00:00Z or as Unix seconds".to_owned())?;
    Ok(seriatim::Timestamp::from_micros(time.as_microsecond()))
}
