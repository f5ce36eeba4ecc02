//! Bridges: jobs of Sidekiq and Lowkiq move into this store while both run.

mod batch;
pub(crate) mod check;
mod consumers;
mod element;
pub(crate) mod export;
mod fault;
mod form;
#[cfg(test)]
mod fuzz;
mod ids;
mod ledger;
mod link;
mod marshal;
#[cfg(test)]
mod marshal_tests;
mod member;
mod morgue;
mod mover;
pub(crate) mod repair;
pub(crate) mod report;
mod returned;
mod route;
mod sets;
mod signal;
mod source;
mod still;
mod survey;
#[cfg(test)]
mod tests;
mod twins;

use std::sync::Arc;

use seriatim::SharedStore;
use seriatim::store::NodeId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep, timeout};

use crate::app::bridges::{Pauses, pauses};
use crate::base::setup_error::SetupError;
use crate::config::{BridgeConfig, Config};
use batch::Batch;
use element::Element;
use fault::Fault;
use link::{Call, Link};
use mover::{Bridge, Mover};
use route::{ByQueue, Reason, Refusal, Routes};
use source::{DEAD, Keys, Source};

/// How often a node looks who paused a bridge.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a stop waits for the batches under way. What is left is in flight, and is pushed by the next node.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// The bridges of a node, at work.
pub(crate) struct Bridges {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// The URL of a bridge's Redis.
pub(crate) fn url(bridge: &BridgeConfig) -> Result<String, SetupError> {
    std::env::var(&bridge.url_env).map_err(|_| {
        let (name, variable) = (&bridge.name, &bridge.url_env);
        SetupError::invalid(format!(
            "bridge {name:?}: variable {variable} is not set, or is not text: set it to the URL of its Redis, as in redis://host:6379/0"
        ))
    })
}

/// Refuses bridges whose Redis is not named, or that lack a key.
pub(crate) fn check_variables(config: &Config) -> Result<(), SetupError> {
    config.bridges.iter().try_for_each(|bridge| url(bridge).and(route::of_bridge(bridge)).map(drop))
}

/// The bridges of a configuration, with the names of their sources.
pub(crate) fn names(config: &Config) -> Vec<(String, Vec<String>)> {
    let sources = |bridge: &BridgeConfig| Source::of(bridge).iter().map(Source::name).collect();
    config.bridges.iter().map(|bridge| (bridge.name.clone(), sources(bridge))).collect()
}

impl Bridges {
    /// Begins to move jobs.
    pub(crate) fn start(config: &Config, store: &SharedStore) -> Result<Self, SetupError> {
        let shown = shown(config);
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let node = NodeId::from(format!("bridges-{:032x}", fastrand::u128(..)).as_str());
        for bridge in &config.bridges {
            let (told, pauses) = watch::channel(None);
            tasks.spawn(look(store.clone(), bridge.name.clone(), told));
            let routes = route::of_bridge(bridge)?;
            let marks: Vec<&str> = routes.values().map(|routes| routes.mark.as_str()).collect();
            let shared = Arc::new(Bridge {
                name: bridge.name.clone(),
                url: url(bridge)?,
                keys: Keys::of(bridge),
                sets: bridge.sets(),
                mark: blake3::hash(marks.concat().as_bytes()).to_hex()[..16].to_owned(),
                routes,
                store: store.clone(),
                node: node.clone(),
                shown: shown.clone(),
                pauses,
                stopping: stopping.clone(),
            });
            for source in Source::of(bridge) {
                tasks.spawn(Mover::new(shared.clone(), source).run());
            }
        }
        Ok(Self { stop, tasks })
    }

    /// The signal to end. From then on nothing new is taken.
    pub(crate) fn stopper(&self) -> impl FnOnce() + Send + 'static {
        let stop = self.stop.clone();
        move || {
            stop.send_replace(true);
        }
    }

    /// Ends the moves under way.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = timeout(STOP_WITHIN, async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "a bridge ended");
                }
            }
        });
        if ended.await.is_err() {
            tracing::warn!(
                "a bridge was stopped with jobs in flight: the next node that leads it pushes them"
            );
        }
    }
}

/// How people call this process.
fn shown(config: &Config) -> String {
    let name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{} (process {})", config.node.id.clone().unwrap_or_else(name), std::process::id())
}

/// Tells the movers of a bridge what is paused, until all have ended.
async fn look(store: SharedStore, bridge: String, told: watch::Sender<Option<Pauses>>) {
    loop {
        match pauses(&*store, &bridge).await {
            Ok(pauses) => {
                let news = Some(pauses);
                told.send_if_modified(|known| {
                    let is_news = *known != news;
                    *known = news;
                    is_news
                });
            }
            Err(error) => tracing::debug!(%error, bridge, "cannot look who paused a bridge"),
        }
        tokio::select! {
            () = told.closed() => return,
            () = sleep(LOOK_EVERY) => {}
        }
    }
}
