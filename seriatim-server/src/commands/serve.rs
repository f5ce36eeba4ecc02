//! `seriatim serve`: runs workers on the queues of a store.

use std::collections::BTreeMap;
use std::io::LineWriter;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use seriatim::checker::Recorder;
use seriatim::{EngineBuilder, Mode, Observer, Queue, SharedStore, Splitter};

use super::args::StoreArg;
use crate::config::{Config, SplitterConfig, WorkerConfig};
use crate::http::{App, Listening, Metered, Server, Setup};
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
    /// Where the HTTP API listens; 127.0.0.1:7117 when nobody says
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
    /// Let everybody in who can reach an address beyond this machine, although no token is configured
    #[arg(long)]
    insecure: bool,
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
        let (store, meter) = Metered::wrap(seriatim::connect(&self.store.url_with(&config)).await?);
        let listening = match self.no_http {
            true => None,
            false => Some(Listening::start(&config.http, self.listen, self.insecure).await?),
        };
        let recorder = self.recorder(&config.declared()?)?;
        let mut workers = Workers::new();
        let engine =
            self.engine(&config, store.clone(), recorder.clone(), &mut workers)?.build()?;
        dump_when_asked(engine.handle())?;
        workers.reload_on_hangup()?;
        tracing::info!(
            store = store.capabilities().name,
            workers = config.workers.len(),
            "serving"
        );
        let server = listening.map(|listening| {
            let setup = Setup {
                guard: listening.guard.clone(),
                base_path: listening.base_path.clone(),
                environment: config.http.environment.clone(),
                observer: recorder,
            };
            listening.serve(App::new(store.clone(), meter, setup))
        });
        let app = server.as_ref().map(Server::app);
        let stop = told_to_stop()?;
        let summary = engine
            .run_until(async move {
                stop.await;
                app.inspect(|app| app.drain());
            })
            .await;
        workers.stop().await;
        if let Some(server) = server {
            server.stop().await;
        }
        let summary = summary?;
        store.close().await?;
        tracing::info!(?summary, "stopped");
        Ok(())
    }

    /// What records the history, where one is wanted.
    fn recorder(&self, declared: &[Queue]) -> Result<Option<Arc<dyn Observer>>, Failure> {
        let Some(path) = &self.history else { return Ok(None) };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let file = file
            .map_err(|e| Failure::failed(format!("{} cannot be written: {e}", path.display())))?;
        // Unbuffered by line: a killed process leaves at most one torn line.
        let recorder = Recorder::new(format!("pid-{}", std::process::id()), LineWriter::new(file));
        declared.iter().for_each(|queue| recorder.queue(queue));
        Ok(Some(Arc::new(recorder)))
    }

    fn engine(
        &self,
        config: &Config,
        store: SharedStore,
        recorder: Option<Arc<dyn Observer>>,
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
        if let Some(recorder) = recorder {
            engine = engine.observer(recorder);
        }
        let declared = config.declared()?;
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
