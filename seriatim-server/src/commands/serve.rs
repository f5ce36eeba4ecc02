//! `seriatim serve`: runs workers on the queues of a store.

use std::collections::BTreeMap;
use std::io::LineWriter;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use seriatim::checker::Recorder;
use seriatim::{EngineBuilder, Mode, SharedStore, Splitter};

use super::args::StoreArg;
use crate::config::{Config, SplitterConfig, WorkerConfig};
use crate::output::{Failure, LogFormat, start_log};
use crate::signals::{dump_when_asked, told_to_stop};
use crate::workers::Workers;

#[derive(Args)]
pub(crate) struct Serve {
    /// The configuration; seriatim.toml when it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArg,
    /// Where the HTTP API listens (not there yet)
    #[arg(long, value_name = "ADDR")]
    listen: Option<std::net::SocketAddr>,
    /// Only these queues
    #[arg(long, value_delimiter = ',')]
    queues: Vec<String>,
    /// Handler calls at once
    #[arg(long)]
    concurrency: Option<usize>,
    /// No HTTP API
    #[arg(long)]
    no_http: bool,
    /// Record what happens, for `seriatim check`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// How the log is written
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, trace, or a filter as in info,seriatim=debug; wins over SERIATIM_LOG
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

impl Serve {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let config = Config::read(self.config.as_deref())?;
        let format = self.log_format.unwrap_or(config.log.format);
        start_log(format, self.log_level.as_deref(), config.log.level.as_deref())?;
        if !self.no_http && (self.listen.is_some() || config.http.listen.is_some()) {
            tracing::warn!("the HTTP API is not there yet: nothing listens");
        }
        let store = seriatim::connect(&self.store.url_with(&config)).await?;
        let mut workers = Workers::new();
        let engine = self.engine(&config, store.clone(), &mut workers)?.build()?;
        dump_when_asked(engine.handle())?;
        workers.reload_on_hangup()?;
        tracing::info!(
            store = store.capabilities().name,
            workers = config.workers.len(),
            "serving"
        );
        let summary = engine.run_until(told_to_stop()?).await?;
        workers.stop().await;
        store.close().await?;
        tracing::info!(?summary, "stopped");
        Ok(())
    }

    fn engine(
        &self,
        config: &Config,
        store: SharedStore,
        workers: &mut Workers,
    ) -> Result<EngineBuilder, Failure> {
        let node = &config.node;
        let mut engine = seriatim::Engine::builder(store);
        if let Some(name) = &node.id {
            engine = engine.node_name(name.as_str());
        }
        for group in &node.groups {
            engine = engine.consumer_group(group.as_str());
        }
        if let Some(scheduler) = node.scheduler {
            engine = engine.scheduler(scheduler);
        }
        if node.splitter == SplitterConfig::ByNode {
            engine = engine.splitter(Splitter::ByNode);
        }
        if let Some(calls) = self.concurrency.or(node.concurrency) {
            engine = engine.concurrency(calls);
        }
        if let Some(length) = node.poll_interval {
            engine = engine.poll_interval(length);
        }
        if let Some(length) = node.heartbeat {
            engine = engine.heartbeat(length);
        }
        if let Some(length) = node.lease {
            engine = engine.lease(length);
        }
        if let Some(length) = node.shutdown_timeout {
            engine = engine.shutdown_timeout(length);
        }
        let declared = config.declared()?;
        if let Some(path) = &self.history {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|e| {
                Failure::failed(format!("{} cannot be written: {e}", path.display()))
            })?;
            // Unbuffered by line: a killed process leaves at most one torn line.
            let recorder =
                Recorder::new(format!("pid-{}", std::process::id()), LineWriter::new(file));
            declared.iter().for_each(|queue| recorder.queue(queue));
            engine = engine.observer(Arc::new(recorder));
        }
        let modes: BTreeMap<String, Mode> =
            declared.iter().map(|queue| (queue.name.clone(), queue.mode)).collect();
        engine = declared.into_iter().fold(engine, EngineBuilder::queue);
        engine = config.cron_entries()?.into_iter().fold(engine, EngineBuilder::cron);
        let wanted =
            |worker: &&WorkerConfig| self.queues.is_empty() || self.queues.contains(&worker.queue);
        config.workers.iter().filter(wanted).try_fold(engine, |engine, worker| {
            let mode = modes.get(&worker.queue).copied().unwrap_or(Mode::Parallel);
            Ok(engine.with(workers.worker(worker, mode)?))
        })
    }
}
