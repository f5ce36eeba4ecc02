//! `seriatim export`: gives the jobs of a queue back to another system.

use clap::{Args, ValueEnum};

use super::args::Common;
use crate::bridges::export::{Export as Exports, Exported};
use crate::bridges::url;
use crate::cli::output::{Failure, say, say_json};
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
    /// The queue there of jobs that name none. Default: the same name
    #[arg(long = "as", value_name = "QUEUE")]
    named: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum System {
    Sidekiq,
}

impl Export {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let System::Sidekiq = self.to;
        let config = self.common.store.config()?;
        let bridge = self.bridge(&config)?;
        if bridge.lowkiq().is_some() {
            let name = &bridge.name;
            return Err(Failure::usage(format!(
                "bridge {name:?} is one to Lowkiq: nothing can be given back there; name one to Sidekiq with --bridge"
            )));
        }
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
        if self.common.json {
            let document = serde_json::json!({ "queue": queue, "schedule": schedule, "retry": retry, "dead": dead });
            say_json(&document);
        } else {
            say(format!(
                "given back to Sidekiq: {queue} to their queue, {schedule} to schedule, {retry} to retry, {dead} to dead"
            ));
        }
        Ok(())
    }

    fn bridge<'a>(&self, config: &'a Config) -> Result<&'a BridgeConfig, Failure> {
        let names: Vec<&str> = config.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
        match (&self.bridge, config.bridges.as_slice()) {
            (None, [only]) => Ok(only),
            (None, []) => Err(Failure::usage(
                "the configuration has no bridge, which names Sidekiq's Redis: add [[bridges]]",
            )),
            (None, _) => {
                Err(Failure::usage(format!("name one with --bridge: {}", names.join(", "))))
            }
            (Some(name), all) => all.iter().find(|bridge| bridge.name == *name).ok_or_else(|| {
                let near = seriatim::names::did_you_mean(name, names.iter().copied());
                Failure::missing(format!("the configuration has no bridge {name:?}{near}"))
            }),
        }
    }
}
