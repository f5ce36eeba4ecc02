//! Workers that are other programs, or that come ready-made.

mod answer;
mod bucket;
mod call;
mod command;
mod ffmpeg;
mod files;
mod group;
mod hidden;
mod http;
mod launch;
mod leftovers;
mod lines;
mod messages;
mod on_file;
mod orphans;
mod periodic;
mod printed;
mod process;
mod program;
mod reload;
mod replicate;
mod roots;
mod rsync;
mod seats;
mod steps;
mod stopped;
mod supervisor;
mod target;
mod told;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;

use seriatim::{Batch, Mode, Payload, Periodic, Worker, engine::Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::base::setup_error::SetupError;
use crate::config::{
    Builtin, HttpSettings, Launch, PeriodicConfig, Replicate, WorkerConfig, WorkerKind,
};
use files::FileWorker;
use http::Webhook;
use printed::Printed;
use program::Programs;
use reload::{Paths, Watched};
use replicate::Replicator;
use seats::Seats;
use supervisor::Team;
use told::Told;

pub(crate) use group::{kill_all, leaders};
pub(crate) use hidden::hide;
pub(crate) use leftovers::end as end_leftovers;

/// The processes behind the workers of this node.
pub(crate) struct Workers {
    keepers: JoinSet<()>,
    /// Tasks that end with this.
    watchers: JoinSet<()>,
    /// Kept until the end: supervisors wait for them to change.
    versions: Vec<watch::Sender<u64>>,
    watched: Vec<Watched>,
    stop: watch::Sender<bool>,
    told: Told,
    /// The workers without a process that shows whether their programs can still start.
    programs: Vec<Programs>,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let (keepers, watchers) = (JoinSet::new(), JoinSet::new());
        let (stop, told) = (watch::Sender::new(false), Told::default());
        let (versions, watched, programs) = (Vec::new(), Vec::new(), Vec::new());
        Self { keepers, watchers, versions, watched, stop, told, programs }
    }

    /// A worker as configured; starts its processes, if it has any.
    pub(crate) fn worker(
        &mut self,
        config: &WorkerConfig,
        mode: Mode,
    ) -> Result<Worker, SetupError> {
        let queue = config.queue.as_str();
        let task: Option<Arc<str>> = config.task.as_deref().map(Arc::from);
        let kind = config.kind(mode)?;
        if !matches!(kind, WorkerKind::Process { .. }) {
            let launches = kind.programs();
            self.programs.push(Programs { queue: queue.into(), task: task.clone(), launches });
        }
        let mut worker = match kind {
            WorkerKind::Command(launch) => {
                let printed = Printed::new(queue.into(), None);
                self.watchers.spawn(printed.clone().keep_count());
                Worker::new(queue, move |batch, context| {
                    command::run(launch.clone(), printed.clone(), batch, context)
                })
            }
            WorkerKind::Process { launch, processes, watched } => {
                let per_process = config.concurrency.unwrap_or(1).max(1);
                let seats =
                    self.team((queue.into(), task), launch, processes, per_process, watched);
                let told = self.told.clone();
                let handler =
                    move |batch, context| call::run(seats.clone(), told.clone(), batch, context);
                Worker::new(queue, handler)
            }
            WorkerKind::Http(settings) => {
                let webhook = webhook(settings)?;
                Worker::new(queue, move |batch, context| webhook.clone().run(batch, context))
            }
            WorkerKind::Ffmpeg(worker) => of_files(queue, worker),
            WorkerKind::Replicate(settings) => of_files(queue, replicator(settings)?),
        };
        if let Some(task) = &config.task {
            worker = worker.task(task.as_str());
        }
        if let Some(calls) = config.most_calls() {
            worker = worker.concurrency(calls);
        }
        worker = with_own(worker, config);
        // That of an `http` worker is of one request, of which a call may take several.
        let own = config.timeout.filter(|_| config.builtin != Some(Builtin::Http));
        Ok(match (own, config.timeout_default()) {
            (_, None) => worker,
            (None, Some(length)) => worker.timeout_default(length),
            (Some(length), _) => worker.timeout(length),
        })
    }

    /// A periodic program as configured.
    pub(crate) fn periodic(&mut self, config: &PeriodicConfig) -> Periodic {
        let printed = Printed::new(config.name.as_str().into(), None);
        self.watchers.spawn(printed.clone().keep_count());
        periodic::periodic(config, printed)
    }

    fn team(
        &mut self,
        (queue, task): (Arc<str>, Option<Arc<str>>),
        launch: Launch,
        processes: usize,
        per_process: usize,
        named: Vec<PathBuf>,
    ) -> Arc<Seats> {
        let seats = Seats::new(per_process);
        let version = watch::Sender::new(0);
        // A program that is not there yet is watched too. A folder is not: it may be where the program writes.
        let words = launch.words.iter().filter(|word| !word.starts_with('-')).map(PathBuf::from);
        let paths = Paths { named, words: words.collect() };
        let (stop, changes) = (self.stop.subscribe(), version.subscribe());
        let (told, held) = (self.told.clone(), seats.clone());
        let team = Team { queue, task, launch, seats: held, told, version: changes, stop };
        for _ in 0..processes {
            self.keepers.spawn(supervisor::keep(team.clone()));
        }
        self.watched.push(Watched { paths, version: version.clone() });
        self.versions.push(version);
        seats
    }

    /// Reaps what the programs leave behind, if no other process does.
    pub(crate) fn reap_orphans(&mut self) -> Result<(), SetupError> {
        if orphans::are_ours() {
            let mut ended = signal(SignalKind::child())
                .map_err(|e| SetupError::failed(format!("cannot listen for signals: {e}")))?;
            self.watchers.spawn(async move { orphans::reap(&mut ended).await });
        }
        Ok(())
    }

    /// Reports troubles of workers through this engine, from now on.
    pub(crate) fn tell(&mut self, engine: Handle) {
        self.told.by(engine);
        let programs = std::mem::take(&mut self.programs);
        self.watchers.spawn(program::watch(programs, self.told.clone()));
    }

    /// Replaces all processes at each SIGHUP, and those of a program that has changed.
    pub(crate) fn reload_at(&mut self, mut hangup: Signal) {
        for programs in reload::by_file_system(std::mem::take(&mut self.watched)) {
            self.watchers.spawn(reload::watch(programs));
        }
        let versions = self.versions.clone();
        self.watchers.spawn(async move {
            while hangup.recv().await.is_some() {
                tracing::info!("SIGHUP: replacing all worker processes");
                versions.iter().for_each(|version| version.send_modify(|number| *number += 1));
            }
        });
    }

    /// Ends the processes and waits for that: by `shutdown`, and if that does not help, by signals.
    pub(crate) async fn stop(mut self) {
        self.watchers.shutdown().await;
        self.stop.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
    }
}

/// The worker without its program: to check its settings with those of the others.
pub(crate) fn rehearsed(config: &WorkerConfig) -> Worker {
    let worker = Worker::new(config.queue.as_str(), |_: Batch<Payload>| async {});
    let worker = match &config.task {
        Some(task) => worker.task(task.as_str()),
        None => worker,
    };
    with_own(worker, config)
}

/// Refuses a worker that this machine cannot have, before there is anything else.
pub(crate) fn check(config: &WorkerConfig) -> Result<(), SetupError> {
    // The mode of its queue decides how it sends, not where to.
    match config.kind(Mode::Parallel)? {
        WorkerKind::Http(settings) => webhook(settings).map(drop),
        WorkerKind::Replicate(settings) => replicator(settings).map(drop),
        _ => Ok(()),
    }
}

fn webhook(settings: HttpSettings) -> Result<Arc<Webhook>, SetupError> {
    Webhook::new(settings).map_err(|why| SetupError::invalid(format!("builtin = \"http\": {why}")))
}

fn replicator(settings: Replicate) -> Result<Replicator, SetupError> {
    let invalid = |why| SetupError::invalid(format!("builtin = \"replicate\": {why}"));
    Replicator::new(settings).map_err(invalid)
}

/// The periodic program without it, in the same way as [`rehearsed`].
pub(crate) fn rehearsed_periodic(config: &PeriodicConfig) -> Periodic {
    Periodic::new(config.name.as_str(), config.pause.unwrap_or_default(), |_| async { Ok(()) })
}

/// The worker with what it sets instead of its queue.
fn with_own(mut worker: Worker, config: &WorkerConfig) -> Worker {
    if let Some(share) = config.weight {
        worker = worker.weight(share);
    }
    if let Some(retries) = config.max_retries {
        worker = worker.max_retries(retries);
    }
    if let Some(what) = config.exhausted {
        worker = worker.exhausted(what);
    }
    match config.backoff {
        Some(backoff) => {
            worker.backoff(move |failed| backoff.wait(failed.retry_count(), fastrand::f64()))
        }
        None => worker,
    }
}

fn of_files<W: FileWorker + Send + Sync + 'static>(queue: &str, worker: W) -> Worker {
    let worker = Arc::new(worker);
    Worker::new(queue, move |batch, context| files::run(worker.clone(), batch, context))
}
