//! `seriatim serve`: runs workers on the queues of a store.

mod awaited;
mod dump;
mod notes;
mod signals;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use clap::Args;
use dump::dump_at;
use notes::Notes;
use seriatim::names::closest;
use seriatim::store::Trouble;
use seriatim::{
    Engine, EngineBuilder, Mode, Queue, SharedStore,
    engine::{Observer, Summary, TurnLog},
    store::Memory,
};
use seriatim_verify::checker::Recorder;
use signals::{listen, stop_requested};
use tokio::signal::unix::SignalKind;
use watch::Watch;

use super::args::StoreArg;
use super::deed;
use crate::app::failures::Failures;
use crate::app::payloads::{self, Readable};
use crate::base::text::{count, toml_key, without_password};
use crate::bridges::{self, Bridges};
use crate::cli::output::{Failure, Result, start_log};
use crate::config::{
    Config, HttpConfig, JOURNAL_BYTES, JOURNAL_RETENTION, JournalConfig, Launch, LogFilter,
    LogFormat, PeriodicConfig, WorkerConfig, log_of_variable,
};
use crate::faktory;
use crate::http::{App, Audit, Entrance, Listening, Metered, Server, Setup, unknown_queues};
use crate::journal::{Book, Journal, Limits};
use crate::trace::{self, Traces};
use crate::workers::{self, Workers};

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    store: StoreArg,
    /// Address of the HTTP API: HOST:PORT. Default: 127.0.0.1:7117
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Work only on these queues (comma-separated)
    #[arg(long, value_delimiter = ',')]
    queues: Vec<String>,
    /// Maximum concurrent handler calls
    #[arg(long)]
    concurrency: Option<usize>,
    /// Do not start the HTTP API and the dashboard
    #[arg(long)]
    no_http: bool,
    /// Listen beyond this machine without tokens: everyone who can connect gets full access
    #[arg(long)]
    insecure: bool,
    /// Exit if the program of a worker cannot be started, instead of warning
    #[arg(long)]
    strict: bool,
    /// Record all events in this file, for `seriatim check`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// The log format
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// Log level: off, error, warn, info, debug, trace, or levels by module as in info,seriatim=debug; overrides SERIATIM_LOG
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogFilter>,
}

/// A checked configuration.
pub(super) struct Checked {
    /// Where the API would listen, and the names of its tokens.
    pub(super) address: String,
    pub(super) tokens: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// Refuses a configuration with which `serve` would not start; returns its warnings. Opens and creates
/// nothing.
pub(super) async fn check(config: &Config) -> Result<Checked> {
    rehearse(config, None)?;
    config.workers.iter().try_for_each(workers::check)?;
    let wrong = unstartable(config, |_| true);
    if config.node.strict && !wrong.is_empty() {
        return Err(Failure::usage(wrong.join("; ")));
    }
    log_of_variable()?;
    let untraced = Traces::check()?;
    payloads::forms(&config.payloads)?;
    bridges::check_variables(config)?;
    let entrance = Entrance::read(&config.http, None, false).await?;
    faktory::Entrance::read(&config.faktory, &config.http, false).await?;
    Ok(Checked {
        address: entrance.address,
        tokens: entrance.guard.tokens.into_iter().map(|token| token.name).collect(),
        warnings: [
            wrong,
            untraced,
            unknown_queues(config),
            uneven_limits(config),
            config.cron_slips().collect(),
        ]
        .concat(),
    })
}

/// Runs the engine until `stop`, and calls `ends` when it begins to stop, for whatever reason.
async fn works(
    engine: Engine,
    stop: impl Future<Output = ()> + Send + 'static,
    ends: impl FnOnce(),
) -> seriatim::Result<Summary> {
    // In a task of its own: a signal is heard also while the node stops for another reason.
    let (stop, handle) = (tokio::spawn(stop), engine.handle());
    let mut running = pin!(engine.run_until(stop));
    let ended = tokio::select! {
        summary = running.as_mut() => Some(summary),
        () = handle.stopping() => None,
    };
    ends();
    match ended {
        Some(summary) => summary,
        None => running.await,
    }
}

/// The queues whose workers have different limits: a claim names a queue, so the largest applies to each of them.
fn uneven_limits(config: &Config) -> Vec<String> {
    let mut limits = BTreeMap::<&str, BTreeSet<usize>>::new();
    for worker in &config.workers {
        let most = worker.most_calls().unwrap_or(usize::MAX);
        limits.entry(&worker.queue).or_default().insert(most);
    }
    let uneven = limits.into_iter().filter(|(_, limits)| limits.len() > 1);
    let told = uneven.filter_map(|(queue, limits)| {
        let largest = match *limits.last()? {
            usize::MAX => "that of the node".to_owned(),
            most => most.to_string(),
        };
        Some(format!(
            "the workers of queue {queue:?} have different limits of concurrent calls: the largest, {largest}, applies to \
             each of them; for a limit of its own, give a task a queue of its own"
        ))
    });
    told.collect()
}

/// The programs of those workers, and the periodic ones, that cannot be started, each with the reason.
fn unstartable(config: &Config, wants: impl Fn(&WorkerConfig) -> bool) -> Vec<String> {
    let reason = |about: &str, launch: &Launch| {
        let why = launch.why_not()?;
        Some(format!("the {about} cannot start: {}: {why}", launch.name()))
    };
    let of_worker = |worker: &WorkerConfig| {
        let about = Trouble::about_worker(&worker.queue, worker.task.as_deref());
        let programs = worker.kind(Mode::Parallel).map(|kind| kind.programs()).unwrap_or_default();
        programs.iter().find_map(|launch| reason(&about, launch))
    };
    let of_periodic =
        |entry: &PeriodicConfig| reason(&format!("periodic {:?}", entry.name), &entry.launch());
    let workers = config.workers.iter().filter(|worker| wants(worker)).filter_map(of_worker);
    workers.chain(config.periodic.iter().filter_map(of_periodic)).collect()
}

impl Serve {
    pub(crate) async fn run(self) -> Result<()> {
        workers::hide()?;
        let config = self.store.config()?;
        self.check_queues(&config)?;
        start_log(&config.log, self.log_format, self.log_level.clone())?;
        let (traces, journal) = (Traces::start()?, journal(&config.journal));
        let mut stop = Box::pin(stop_requested()?);
        // From now on: neither ends or stops a node that still waits for its store.
        let (reload, dump) = (listen(SignalKind::hangup())?, listen(dump::signal())?);
        let url = self.store.url_with(&config);
        let (queues, forms) = (config.declared()?, payloads::forms(&config.payloads)?);
        // Mistakes are reported before anything is created, awaited or listened to.
        rehearse(&config, self.concurrency)?;
        config.workers.iter().filter(|it| self.wants(&it.queue)).try_for_each(workers::check)?;
        self.check_programs(&config)?;
        bridges::check_variables(&config)?;
        let (listening, faktory) = self.listening(&config).await?;
        let waiting = listening.as_ref().map(Listening::wait).transpose()?;
        let (recorder, audit) = (self.recorder(&queues)?, audit(&config.http)?);
        let Some(store) = awaited::open(&url, &forms, &queues, stop.as_mut()).await? else {
            tracing::info!("stopped before the store answered");
            return Ok(());
        };
        if let Some(waiting) = waiting {
            waiting.end().await;
        }
        let (store, meter) = Metered::observed(store, journal.clone(), recorder.clone());
        let notes = Notes::keep(&store, &journal);
        let turn_log = turn_log(notes.failures.clone());
        let watch = Watch::new(meter.clone(), traces.clone(), recorder.clone());
        let mut workers = Workers::new();
        let engine = self.engine(&config, store.clone(), Arc::new(watch), &mut workers)?;
        let engine = traces.around(engine).turn_log(turn_log.clone()).build()?;
        dump_at(dump, engine.handle(), &config.workers);
        workers.tell(engine.handle());
        workers.reload_at(reload);
        workers.reap_orphans()?;
        self.log_start(&config, &url);
        let parts = Setup {
            environment: config.http.environment.clone(),
            zone: config.http.time_zone.clone(),
            dashboard: config.dashboard.clone(),
            observer: recorder,
            turn_log,
            node: Some(engine.handle()),
            journal,
            traces: traces.clone(),
            audit,
            queues,
            implied_max: config.http.implied_queues.map(|most| most.0),
            ..Setup::default()
        };
        let server = listening.map(|listening| {
            let (guard, base_path) = (listening.guard.clone(), listening.base_path.clone());
            let setup = Setup { guard, base_path, ..parts };
            listening.serve(App::over(store.clone(), meter, setup))
        });
        let app = server.as_ref().map(Server::app);
        let remote = app.clone();
        let bridges = Bridges::start(&config, &store)?;
        let stop_bridges = bridges.stopper();
        let faktory = faktory.zip(app.clone()).map(|(faktory, app)| faktory.serve(app));
        let summary = works(engine, stop, move || {
            app.inspect(|app| app.drain());
            stop_bridges();
        })
        .await;
        bridges.stop().await;
        workers.stop().await;
        stop_listening(faktory, server).await;
        notes.end(&store).await;
        traces.stop().await;
        let summary = summary?;
        store.close().await?;
        let remote = remote.map(|app| app.remote()).unwrap_or_default();
        tracing::info!("stopped: {}", in_words(&summary, &remote));
        Ok(())
    }

    /// The sockets of the API and for clients of Faktory, as far as they are wanted.
    async fn listening(
        &self,
        config: &Config,
    ) -> Result<(Option<Listening>, Option<faktory::Listening>)> {
        if self.no_http {
            return match config.faktory.listen {
                None => Ok((None, None)),
                Some(_) => Err(Failure::usage(
                    "--no-http: clients of Faktory use the API: remove faktory.listen, or this flag",
                )),
            };
        }
        let entrance = Entrance::read(&config.http, self.listen.as_deref(), self.insecure).await?;
        let faktory = faktory::Entrance::read(&config.faktory, &config.http, self.insecure).await?;
        let listening = Listening::start(entrance)?;
        let faktory = faktory.map(faktory::Listening::start).transpose()?;
        Ok((Some(listening), faktory))
    }

    fn log_start(&self, config: &Config, url: &str) {
        if shows_password(url) {
            tracing::warn!(
                "the command line contains the store's password, readable for all users of this machine and for worker programs: put the URL into SERIATIM_STORE"
            );
        }
        let at_work = config.workers.iter().filter(|worker| self.wants(&worker.queue)).count();
        tracing::info!(store = without_password(url), workers = at_work, "serving");
        if at_work == 0 {
            tracing::warn!("{}", self.without_workers());
        }
        uneven_limits(config).iter().for_each(|told| tracing::warn!("{told}"));
        if !self.no_http {
            unknown_queues(config).iter().for_each(|told| tracing::warn!("{told}"));
        }
    }

    /// Whether this node works on the queue, according to `--queues`.
    fn wants(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|wanted| wanted == queue)
    }

    /// Warns about worker programs that cannot start; with `strict`, refuses them.
    fn check_programs(&self, config: &Config) -> Result<()> {
        let wrong = unstartable(config, |worker| self.wants(&worker.queue));
        if (self.strict || config.node.strict) && !wrong.is_empty() {
            let wrong = wrong.join("; ");
            return Err(Failure::failed(format!(
                "{wrong}; install the program, or correct its entry in the configuration"
            )));
        }
        for wrong in wrong {
            tracing::warn!(
                "{wrong}; its work waits until it can: install the program, or correct its entry in the configuration"
            );
        }
        Ok(())
    }

    /// Refuses undefined names in `--queues`: a mistyped queue would have no workers.
    fn check_queues(&self, config: &Config) -> Result<()> {
        let unknown = |name: &&String| !config.queues.contains_key(*name);
        let Some(name) = self.queues.iter().find(unknown) else { return Ok(()) };
        let known: Vec<&str> = config.queues.keys().map(String::as_str).collect();
        let advice = match (closest(name, known.iter().copied()), known.is_empty()) {
            (Some(known), _) => format!("did you mean {known:?}?"),
            (None, false) => format!("it has {}", known.join(", ")),
            (None, true) => format!(
                "add [queues.{}] with a mode and [[workers]] with queue = {name:?} to seriatim.toml, or name the file with --config",
                toml_key(name)
            ),
        };
        Err(Failure::usage(format!(
            "--queues {name}: the configuration has no [queues] entry of this name; {advice}"
        )))
    }

    /// What a node without workers does, and how to change it.
    fn without_workers(&self) -> String {
        let idle = if self.queues.is_empty() {
            "the configuration has no [[workers]]".to_owned()
        } else {
            format!("no [[workers]] entry is for --queues {}", self.queues.join(","))
        };
        let does = if self.no_http {
            "it only does maintenance (expired leases, retention, cron)"
        } else {
            "it serves the HTTP API, also to remote workers, and does maintenance"
        };
        format!(
            "{idle}: this node runs no jobs, {does}; to run jobs add [queues.NAME] with a mode and [[workers]] with queue and command to seriatim.toml"
        )
    }

    /// The recorder of the history, if configured.
    fn recorder(&self, declared: &[Queue]) -> Result<Option<Arc<dyn Observer>>> {
        let Some(path) = &self.history else { return Ok(None) };
        let file = appended(path)
            .map_err(|e| Failure::failed(format!("{} cannot be written: {e}", path.display())))?;
        // Unbuffered: a killed process leaves at most one torn line.
        let recorder = Recorder::new(format!("pid-{}", std::process::id()), file);
        declared.iter().for_each(|queue| recorder.queue(queue));
        Ok(Some(Arc::new(recorder)))
    }

    /// The engine with its workers.
    fn engine(
        &self,
        config: &Config,
        store: SharedStore,
        watch: Arc<Watch>,
        workers: &mut Workers,
    ) -> Result<EngineBuilder> {
        let (book, kept) = (deed::Book::of(config), store.clone());
        let engine = plan(config, self.concurrency, store)?.observer(watch);
        let engine = engine.on_inbox_action(move |deed, refused| {
            book.clone().of_sql(kept.clone(), deed, refused.is_some())
        });
        // Of its workers something may live on when this process is killed.
        let engine = engine.before_takeover(|origin| async move {
            workers::end_leftovers(origin).await.map_err(Into::into)
        });
        let modes: BTreeMap<String, Mode> =
            config.declared()?.into_iter().map(|queue| (queue.name, queue.mode)).collect();
        let periodic = config.periodic.iter().map(|entry| workers.periodic(entry));
        let engine = periodic.fold(engine, EngineBuilder::periodic);
        let wanted = |worker: &&WorkerConfig| self.wants(&worker.queue);
        config.workers.iter().filter(wanted).try_fold(engine, |engine, worker| {
            let mode = modes.get(&worker.queue).copied().unwrap_or(Mode::Parallel);
            Ok(engine.with(workers.worker(worker, mode)?))
        })
    }
}

/// A history to go on with. A line that a killed process has torn is ended first.
fn appended(path: &Path) -> std::io::Result<File> {
    // Keys and payloads are for its owner alone.
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    if length > 0 {
        let mut last = [0];
        File::open(path)?.read_exact_at(&mut last, length - 1)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

/// Whether the command line, which all users can see, contains a URL with a password.
fn shows_password(url: &str) -> bool {
    let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let mut words = std::env::args_os();
    user.is_some_and(|(user, _)| user.contains(':'))
        && words.any(|word| word.to_string_lossy().contains(url))
}

/// Refuses what the engine would, before there is a store.
fn rehearse(config: &Config, concurrency: Option<usize>) -> Result<()> {
    let engine = plan(config, concurrency, Arc::new(Memory::new()))?;
    let periodic = config.periodic.iter().map(workers::rehearsed_periodic);
    let engine = periodic.fold(engine, EngineBuilder::periodic);
    let workers = config.workers.iter().map(workers::rehearsed);
    workers.fold(engine, EngineBuilder::with).build()?;
    Ok(())
}

/// The engine of the configuration and the flags, without its workers.
fn plan(config: &Config, concurrency: Option<usize>, store: SharedStore) -> Result<EngineBuilder> {
    let node = &config.node;
    let mut engine = seriatim::Engine::builder(store).codec(Readable);
    engine = given(engine, node.id.as_deref(), EngineBuilder::node_name);
    for group in &node.consumer_groups {
        engine = engine.consumer_group(group.as_str());
    }
    engine = given(engine, node.build.as_deref(), EngineBuilder::build_of_program);
    engine = given(engine, node.scheduler, EngineBuilder::scheduler);
    engine = engine.splitter(node.splitter.over(config.queues.keys()));
    engine = given(engine, concurrency.or(node.concurrency), EngineBuilder::concurrency);
    engine = given(engine, node.poll_interval, EngineBuilder::poll_interval);
    engine = given(engine, node.heartbeat, EngineBuilder::heartbeat);
    engine = given(engine, node.lease, EngineBuilder::lease);
    engine = given(engine, node.shutdown_timeout, EngineBuilder::shutdown_timeout);
    engine = given(engine, node.takeover, EngineBuilder::takeover);
    engine = config.declared()?.into_iter().fold(engine, EngineBuilder::queue);
    Ok(config.cron_entries()?.into_iter().fold(engine, EngineBuilder::cron))
}

/// With this setting, if the configuration has it.
fn given<T>(
    engine: EngineBuilder,
    setting: Option<T>,
    set: impl FnOnce(EngineBuilder, T) -> EngineBuilder,
) -> EngineBuilder {
    match setting {
        Some(setting) => set(engine, setting),
        None => engine,
    }
}

/// The API last: what is in progress elsewhere may need it.
async fn stop_listening(faktory: Option<faktory::Server>, server: Option<Server>) {
    if let Some(faktory) = faktory {
        faktory.stop().await;
    }
    if let Some(server) = server {
        server.stop().await;
    }
}

/// The log of turns, which reports failures.
fn turn_log(failures: Arc<Failures>) -> Arc<TurnLog> {
    let log = TurnLog::default().with_trace_id(trace::id_of_turn);
    Arc::new(log.with_listener(move |failed| failures.add(failed)))
}

/// The journal that the configuration asks for.
fn journal(config: &JournalConfig) -> Arc<Journal> {
    let bytes_max = config.bytes_max.unwrap_or(JOURNAL_BYTES);
    let limits = Limits::new(config.retention.unwrap_or(JOURNAL_RETENTION), bytes_max);
    let book = config.enabled.then(|| Book::new(limits));
    Arc::new(Journal::new(book, config.queues.clone()))
}

fn audit(config: &HttpConfig) -> Result<Audit> {
    Audit::open(config.audit, config.audit_file.as_deref()).map_err(|error| {
        let file = config.audit_file.as_deref().unwrap_or(Path::new("")).display();
        Failure::failed(format!("http.audit_file: cannot write to {file}: {error}"))
    })
}

/// What a node did, from its start to its end, and what remote workers did by it.
fn in_words(own: &Summary, remote: &Summary) -> String {
    let mut words = format!("{}: {}", count(own.calls, "call"), turns_in_words(own));
    if *remote != Summary::default() {
        words += &format!("; remote workers: {}", turns_in_words(remote));
    }
    if own.rescued > 0 {
        words +=
            &format!("; took over {} from other nodes, as crashes", count(own.rescued, "turn"));
    }
    words
}

fn turns_in_words(of: &Summary) -> String {
    let mut words = format!(
        "{} processed; turns: {} done, {} failed",
        count(of.processed, "job"),
        of.done,
        of.failed
    );
    let more = [
        (of.put_off, "put off or given back"),
        (of.cancelled, "cancelled or expired"),
        (of.stale, "refused: another node had taken them over"),
        (of.unsettled, "not settled: they run again when their leases expire"),
    ];
    for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
        words += &format!(", {number} {what}");
    }
    words
}
