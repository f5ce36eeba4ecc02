//! `seriatim export`: gives the jobs of a queue back to another system.

use clap::{Args, ValueEnum};

use super::args::Common;
use crate::bridges::export::{Export as Exports, Exported};
use crate::bridges::url;
use crate::cli::output::{Failure, Result, tell};
use crate::config::{BridgeConfig, Config};

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    common: Common,
    /// The queue, which must be paused
    queue: String,
    /// The other system
    #[arg(long, value_enum)]
    to: System,
    /// The bridge of the configuration to its Redis. Default: the only one
    #[arg(long, value_name = "NAME")]
    bridge: Option<String>,
    /// The queue in the other system for jobs that name none. Default: the same name
    #[arg(long = "as", value_name = "QUEUE")]
    named: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum System {
    Sidekiq,
}

impl Export {
    pub(crate) async fn run(self) -> Result<()> {
        let System::Sidekiq = self.to;
        let config = self.common.store.config()?;
        let bridge = self.bridge(&config)?;
        let url = url(bridge)?;
        let done = async |store: seriatim::SharedStore| {
            let (queue, to) = (self.queue.as_str().into(), self.named.clone());
            let to = to.unwrap_or_else(|| self.queue.clone());
            let export = Exports { store: &*store, bridge, url, queue, to };
            let refused = |refused: crate::bridges::export::Refused| {
                Failure::of_kind(refused.kind, refused.why)
            };
            export.run().await.map_err(refused)
        };
        let Exported { queue, schedule, retry, dead } = self.common.store.using(done).await?;
        let told = format!(
            "given back to Sidekiq: {queue} to their queue, {schedule} to schedule, {retry} to retry, {dead} to dead"
        );
        let document = serde_json::json!({ "queue": queue, "schedule": schedule, "retry": retry, "dead": dead });
        tell(self.common.json, &document, told);
        Ok(())
    }

    /// The bridge that it names, or the only one to Sidekiq: to Lowkiq nothing is given back.
    fn bridge<'a>(&self, config: &'a Config) -> Result<&'a BridgeConfig> {
        let all = config.bridges.iter().filter(|bridge| bridge.lowkiq().is_none());
        let all: Vec<&BridgeConfig> = all.collect();
        let names: Vec<&str> = all.iter().map(|bridge| bridge.name.as_str()).collect();
        match (&self.bridge, all.as_slice()) {
            (None, [only]) => Ok(only),
            (None, []) => Err(Failure::usage(
                "the configuration has no bridge to Sidekiq, which names its Redis: add [[bridges]]",
            )),
            (None, _) => {
                Err(Failure::usage(format!("name one with --bridge: {}", names.join(", "))))
            }
            (Some(name), all) => {
                let found = all.iter().find(|bridge| bridge.name == *name).copied();
                found.ok_or_else(|| {
                    let near = seriatim::names::did_you_mean(name, names.iter().copied());
                    Failure::missing(format!(
                        "the configuration has no bridge to Sidekiq {name:?}{near}"
                    ))
                })
            }
        }
    }
}
