//! `seriatim bridge`: what the bridges of all nodes moved; checks, pauses and repairs one.

use clap::{Args, Subcommand};
use seriatim::store::Store;
use seriatim::{ErrorKind, Timestamp};

use super::args::Common;
use super::deed::who;
use super::tones::source_state;
use crate::app::bridges::{self as known, Which};
use crate::base::text::count;
use crate::base::time::length;
use crate::bridges::check::check;
use crate::bridges::repair::{Decision, decide, give_back};
use crate::bridges::report::{Report, SourceReport};
use crate::bridges::{names, url};
use crate::cli::output::{Failure, Result, Table, hint, say, say_json, tell};
use crate::config::{BridgeConfig, Config};
use crate::protocol::document::{Bridge, BridgeSource, Bridges, Done};
use seriatim::names::did_you_mean;

#[derive(Args)]
pub(crate) struct BridgeArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Shows what each bridge moved, what is left, and what stands in the way
    Status {
        /// Only this bridge
        name: Option<String>,
    },
    /// Reports what a bridge would move and refuse, without writing anything. Exits with 1 if a job would be refused
    Check {
        /// Only this bridge of the configuration
        name: Option<String>,
    },
    /// Pauses a bridge, or one of its queues: nothing more is taken
    Pause {
        /// The bridge
        name: String,
        /// A queue of the other system, or `schedule`, `retry`, `dead`, `morgue:QUEUE`. Default: all
        #[arg(value_name = "QUEUE")]
        source: Option<String>,
        /// Reason, shown to others in the audit log and the dashboard
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Ends the pause of a bridge, or of one queue; queues that were paused on their own stay paused
    Resume {
        /// The bridge
        name: String,
        /// A queue of the other system, or `schedule`, `retry`, `dead`, `morgue:QUEUE`. Default: all
        #[arg(value_name = "QUEUE")]
        source: Option<String>,
    },
    /// Puts refused jobs back to the front of their queue
    Return {
        /// The bridge, as the configuration has it
        name: String,
        /// The queue of the other system, or `schedule`, `retry`, `dead`, `morgue:QUEUE`
        #[arg(value_name = "QUEUE")]
        source: String,
    },
    /// Decides about jobs in doubt: they left their queue long ago, and it is not known whether they are here
    Decide {
        /// The bridge, as the configuration has it
        name: String,
        /// The queue of the other system, or `schedule`, `retry`, `dead`, `morgue:QUEUE`
        #[arg(value_name = "QUEUE")]
        source: String,
        #[command(flatten)]
        decision: DecisionArg,
    },
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct DecisionArg {
    /// Push them: those that are here already may run twice
    #[arg(long)]
    again: bool,
    /// Drop them: any that are not already here are lost
    #[arg(long)]
    drop: bool,
}

impl BridgeArgs {
    pub(crate) async fn run(self) -> Result<()> {
        let Some(action) = &self.action else { return self.status(None).await };
        match action {
            Action::Status { name } => self.status(name.as_deref()).await,
            Action::Check { name } => self.check(name.as_deref()).await,
            Action::Pause { name, source, reason } => {
                let names = names(&self.common.store.config()?);
                let which = which(name, source.as_ref(), &names);
                let done = async |store: seriatim::SharedStore| {
                    Ok(known::pause(&*store, which, &who(), reason.as_deref()).await?)
                };
                let bridge = self.common.store.using(done).await?;
                let told =
                    format!("{} is paused: nothing more is taken", what(name, source.as_ref()));
                tell(self.common.json, &bridge, told);
                Ok(())
            }
            Action::Resume { name, source } => {
                let names = names(&self.common.store.config()?);
                let which = which(name, source.as_ref(), &names);
                let done =
                    async |store: seriatim::SharedStore| Ok(known::resume(&*store, which).await?);
                let bridge = self.common.store.using(done).await?;
                let still = bridge.sources.iter().filter(|source| source.paused.is_some());
                let still: Vec<&str> = still.map(|source| &*source.status.source).collect();
                let still = match still.is_empty() {
                    true => String::new(),
                    false => format!("; still paused: {}", still.join(", ")),
                };
                let told = format!("{} is resumed{still}", what(name, source.as_ref()));
                tell(self.common.json, &bridge, told);
                Ok(())
            }
            Action::Return { name, source } => {
                let config = self.common.store.config()?;
                let bridge = configured(&config, name)?;
                let url = url(bridge)?;
                let moved = async |store: seriatim::SharedStore| {
                    give_back(&*store, bridge, &url, source).await.map_err(Failure::failed)
                };
                let moved = self.common.store.using(moved).await?;
                self.counted(
                    &format!("{} went back to {source}", count(moved, "refused job")),
                    moved,
                );
                Ok(())
            }
            Action::Decide { name, source, decision } => {
                let config = self.common.store.config()?;
                let bridge = configured(&config, name)?;
                let (decision, done) = match decision.drop {
                    true => (Decision::Drop, "forgotten"),
                    false => (Decision::Again, "pushed by the next node that leads the queue"),
                };
                let url = url(bridge)?;
                // The store is only for its audit log.
                let decided = async |_| {
                    let decided = decide(bridge, &url, source, decision).await;
                    decided.map_err(Failure::failed)?.ok_or_else(|| {
                        let what =
                            if decision == Decision::Drop { "in doubt" } else { "in flight" };
                        Failure::conflict(format!("no job of {source:?} is {what}"))
                    })
                };
                let jobs = self.common.store.using(decided).await?;
                self.counted(&format!("{}: {done}", count(jobs, "job")), jobs);
                Ok(())
            }
        }
    }

    fn counted(&self, what: &str, jobs: u64) {
        tell(self.common.json, &Done { count: jobs }, what);
    }

    async fn status(&self, name: Option<&str>) -> Result<()> {
        let read = async |store: seriatim::SharedStore| {
            Ok((known::all(&*store as &dyn Store).await?, store.now().await?))
        };
        let (mut bridges, now) = self.common.store.using(read).await?;
        if let Some(name) = name {
            let near = did_you_mean(name, bridges.iter().map(|bridge| bridge.name.as_str()));
            bridges.retain(|bridge| bridge.name == name);
            if bridges.is_empty() {
                return Err(Failure::missing(format!("no node has a bridge {name:?}{near}")));
            }
        }
        if self.common.json {
            say_json(&Bridges { bridges });
        } else if bridges.is_empty() {
            say("no node has a bridge: add [[bridges]] to the configuration");
        } else {
            let sources: Vec<_> = (bridges.iter())
                .flat_map(|bridge| bridge.sources.iter().map(move |source| (bridge, source)))
                .collect();
            say(status_table(&sources, now));
        }
        Ok(())
    }

    async fn check(&self, name: Option<&str>) -> Result<()> {
        let config = self.common.store.config()?;
        let wanted: Vec<&BridgeConfig> = match name {
            Some(name) => vec![configured(&config, name)?],
            None => config.bridges.iter().collect(),
        };
        if wanted.is_empty() {
            return Err(Failure::usage("the configuration has no bridge: add [[bridges]]"));
        }
        let mut reports = Vec::new();
        for bridge in wanted {
            let report = check(bridge, &url(bridge)?).await;
            reports.push(report.map_err(|why| Failure::of_kind(ErrorKind::Unavailable, why))?);
        }
        let ready = reports.iter().all(|report| report.ready);
        if self.common.json {
            say_json(&serde_json::json!({ "ready": ready, "bridges": reports }));
        } else {
            reports.iter().for_each(show);
        }
        if ready { Ok(()) } else { Err(Failure::silent()) }
    }
}

fn which<'a>(
    bridge: &'a str,
    source: Option<&'a String>,
    configured: &'a [(String, Vec<String>)],
) -> Which<'a> {
    Which { bridge, source: source.map(String::as_str), configured }
}

fn what(name: &str, source: Option<&String>) -> String {
    source.map_or_else(|| format!("bridge {name}"), |source| format!("{source} of bridge {name}"))
}

fn configured<'a>(config: &'a Config, name: &str) -> Result<&'a BridgeConfig> {
    config.bridges.iter().find(|bridge| bridge.name == name).ok_or_else(|| {
        let near = did_you_mean(name, config.bridges.iter().map(|bridge| bridge.name.as_str()));
        Failure::missing(format!("the configuration has no bridge {name:?}{near}"))
    })
}

fn status_table<'a>(
    sources: &'a [(&Bridge, &BridgeSource)],
    now: Timestamp,
) -> Table<'a, (&'a Bridge, &'a BridgeSource)> {
    Table::of(sources)
        .name("bridge", |(bridge, _)| &bridge.name)
        .name("source", |(_, source)| &source.status.source)
        .text("state", |(bridge, source)| source_state(bridge, source, now))
        .number("left", |(_, source)| source.status.length)
        .number("lag", |(_, source)| seconds(source.status.lag))
        .number("taken", |(_, source)| source.status.taken)
        .number("pushed", |(_, source)| source.status.pushed)
        .number("duplicate", |(_, source)| source.status.duplicates)
        .number("rejected", |(_, source)| source.status.rejected)
        .number("in flight", |(_, source)| source.status.in_flight)
        .name("node", |(_, source)| &source.status.node)
}

/// A length reported by the other system.
fn seconds(number: f64) -> String {
    length(std::time::Duration::try_from_secs_f64(number).unwrap_or_default())
}

fn show(report: &Report) {
    say(format!("bridge {}", report.bridge));
    let classes: Vec<_> = (report.sources.iter())
        .flat_map(|source| source.classes.iter().map(move |(class, of)| (source, class, of)))
        .collect();
    if !classes.is_empty() {
        say(Table::of(&classes)
            .name("source", |(source, ..)| &source.source)
            .name("class", |(_, class, _)| class)
            .name("queue here", |(.., of)| of.queue.as_deref().unwrap_or_default())
            .number("jobs", |(.., of)| of.jobs)
            .number("with key", |(.., of)| of.with_key)
            .number("refused", |(.., of)| of.refused)
            .text("why", |(.., of)| of.why.as_deref().unwrap_or_default()));
    }
    report.sources.iter().for_each(show_source);
    report.notes.iter().for_each(say);
    match report.consumers.as_deref() {
        None => say("cannot tell whether a Lowkiq server is running: stop it first"),
        Some([]) => say("no Sidekiq process is alive"),
        Some(living) => say(format!(
            "{} of Sidekiq alive: {}",
            count(living.len() as u64, "process").replace("processs", "processes"),
            living.join(", ")
        )),
    }
    if !report.ready {
        hint("the bridge would refuse some of it");
    }
}

fn show_source(source: &SourceReport) {
    let age = source.age.map(seconds);
    let age = age.map(|age| format!(", the oldest {age} old")).unwrap_or_default();
    let mut told = format!("{}: {}{age}", source.source, count(source.length, "job"));
    if source.read < source.length {
        told += &format!(", of which the oldest {} were read", source.read);
    }
    for (number, what) in [
        (source.in_flight, "in flight"),
        (source.rejected, "refused earlier"),
        (source.malformed, "malformed"),
    ] {
        if number > 0 {
            told += &format!(", {number} {what}");
        }
    }
    say(told);
    if let Some(held) = &source.held {
        say(format!("{}: {held}", source.source));
    }
}
