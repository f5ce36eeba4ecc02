//! The settings of an engine before it starts.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{InboxDeed, Origin, SharedStore};
use crate::engine::claim::scheduler::Scheduler;
use crate::engine::claim::source::Source;
use crate::engine::claim::splitter::Splitter;
use crate::engine::core::{Core, Settings};
use crate::engine::hooks::Hooks;
use crate::engine::lifecycle::Engine;
use crate::engine::limits::{CANCEL_GRACE, PREFETCH_LANES_MAX};
use crate::engine::settle::exhausted;
use crate::engine::settle::turn_log::TurnLog;
use crate::engine::shield::Shielded;
use crate::engine::summary::Summary;
#[cfg(feature = "cron")]
use crate::engine::upkeep::cron::window_of;
use crate::engine::upkeep::periodic::Periodic;
use crate::handler::answer::Answer;
use crate::handler::codec::Codec;
use crate::handler::context::Context;
use crate::handler::exhausted::Exhausted;
use crate::handler::failure::Failure;
use crate::handler::middleware::{self, Next};
use crate::handler::outcomes::Outcomes;
use crate::handler::shape::Handler;
use crate::handler::worker::Worker;
use crate::model::limits::{DELAY_MAX, PERIODIC_MAX, WEIGHT_MAX};
use crate::model::{Error, Queue, Result, check_node_name, group_of_build, validate_queue_name};
use crate::observe::Observer;

/// The time between two heartbeats, unless the lease is short.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Most handler calls at once in one engine.
const CONCURRENCY_MAX: usize = 100_000;

/// Collects the queues, workers and settings of an engine; see [`Engine::builder`].
#[must_use = "an engine does nothing until it runs"]
pub struct EngineBuilder {
    store: SharedStore,
    settings: Settings,
    heartbeat: Option<Duration>,
    rescue_interval: Option<Duration>,
    queues: Vec<Queue>,
    workers: Vec<Worker>,
    observer: Option<Arc<dyn Observer>>,
    takeover: bool,
    hooks: Hooks,
}

impl EngineBuilder {
    pub(in crate::engine) fn new(store: SharedStore) -> Self {
        let settings = Settings {
            node_name: "node".into(),
            groups: Vec::new(),
            concurrency: 10,
            lease: Duration::from_secs(60),
            heartbeat: HEARTBEAT,
            prefetch_max: PREFETCH_LANES_MAX,
            poll_interval: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(30),
            cancel_grace: CANCEL_GRACE,
            rescue_interval: Duration::from_secs(10),
            scheduler: Scheduler::default(),
        };
        let (queues, workers) = (Vec::new(), Vec::new());
        Self {
            store,
            settings,
            heartbeat: None,
            rescue_interval: None,
            queues,
            workers,
            observer: None,
            takeover: true,
            hooks: Hooks::default(),
        }
    }

    /// Declares a queue; no worker is required.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Handles a queue; short for `with(Worker::new(queue, handler))`. See [`Worker::new`] for the possible handlers.
    pub fn worker<Args, H>(self, queue: impl Into<Arc<str>>, handler: H) -> Self
    where
        H: Handler<Args>,
        H::Returned: Future<Output: Answer> + Send + 'static,
    {
        self.with(Worker::new(queue, handler))
    }

    /// Adds a worker with its own settings.
    pub fn with(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// The configured name of this node, for jobs bound to it. Several nodes may share a name; each start also has a
    /// unique id.
    pub fn node_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.node_name = name.into();
        self
    }

    /// Adds a consumer group of this node, for jobs bound to one.
    pub fn consumer_group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.settings.groups.push(group.into());
        self
    }

    /// The build of its program that this node runs: it takes jobs that ask for this build, and jobs that ask for none.
    pub fn build_of_program(self, build: impl AsRef<str>) -> Self {
        self.consumer_group(group_of_build(build.as_ref()))
    }

    /// Most concurrent handler calls, 1 to 100,000. Default: 10.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.settings.concurrency = calls;
        self
    }

    /// How long claims last without a heartbeat; at least three times [`Self::heartbeat`]. Default: 60 s.
    pub fn lease(mut self, length: Duration) -> Self {
        self.settings.lease = length;
        self
    }

    /// The time between two heartbeats. Default: 10 s, or a third of a shorter lease. If others declare one of its
    /// queues with a shorter lease, a third of that.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = Some(interval);
        self
    }

    /// Most lanes of a queue to claim ahead of free slots, at most 1,000. Default: 1,000. The engine claims this many
    /// only while jobs are short.
    pub fn prefetch_max(mut self, lanes: usize) -> Self {
        self.settings.prefetch_max = lanes.min(PREFETCH_LANES_MAX);
        self
    }

    /// How often an idle node asks the store without a wake-up; more than zero. Default: 1 s. On a store that loses no
    /// wake-up ([`Wakeups::certain`](crate::store::Wakeups::certain)): once a minute, if this is not longer.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// How long running calls may continue when the engine stops; then they are asked to stop. Default: 30 s.
    pub fn shutdown_timeout(mut self, length: Duration) -> Self {
        // With `Duration::MAX` the end would be later than a clock can show; so below.
        self.settings.shutdown_timeout = length.min(DELAY_MAX);
        self
    }

    /// How long a handler may take after it was asked to stop. Default: 5 s.
    pub fn cancel_grace(mut self, length: Duration) -> Self {
        self.settings.cancel_grace = length.min(DELAY_MAX);
        self
    }

    /// How often the engine looks for expired claims; more than zero. Default: the heartbeat interval.
    pub fn rescue_interval(mut self, interval: Duration) -> Self {
        self.rescue_interval = Some(interval.min(DELAY_MAX));
        self
    }

    /// The order in which queues are served. Default: [`Scheduler::Lag`].
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.settings.scheduler = scheduler;
        self
    }

    /// The queues that this node claims from first. Default: all alike.
    pub fn splitter(mut self, splitter: Splitter) -> Self {
        self.hooks.splitter = splitter;
        self
    }

    /// Reports all events to `observer`.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(Arc::new(Shielded(observer)));
        self
    }

    /// Logs the ends of turns with a shared log. Default: a log of this engine only.
    pub fn turn_log(mut self, log: Arc<TurnLog>) -> Self {
        self.hooks.turn_log = log;
        self
    }

    /// Runs around every handler call, inside the middleware added before: for logging, tracing, measuring, refusing.
    ///
    /// ```
    /// # use seriatim::{Context, Engine, Next, store::Memory};
    /// # let builder = Engine::builder(std::sync::Arc::new(Memory::new()));
    /// builder.middleware(|call: Context, next: Next| async move {
    ///     let began = std::time::Instant::now();
    ///     let answer = next.run().await;
    ///     println!("{}: {} lanes in {:?}", call.queue(), call.turns().len(), began.elapsed());
    ///     answer
    /// })
    /// # ;
    /// ```
    pub fn middleware<F, Fut>(mut self, middleware: F) -> Self
    where
        F: Fn(Context, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcomes, Failure>> + Send + 'static,
    {
        self.hooks.middleware.push(middleware::erase(middleware));
        self
    }

    /// Decodes the payloads that the clients encode.
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.hooks.codec = Some(Arc::new(codec));
        self
    }

    /// Formats the errors kept with jobs; the middle of texts longer than 4 KiB is cut out. Default: their `Display`.
    pub fn error_format(
        mut self,
        format: impl Fn(&Failure) -> String + Send + Sync + 'static,
    ) -> Self {
        self.hooks.format_error = Some(Arc::new(format));
        self
    }

    /// Pushes jobs on a schedule. Two entries of an engine cannot have the same name. Nodes that have an entry of the
    /// same name must define it alike.
    #[cfg(feature = "cron")]
    pub fn cron(mut self, cron: crate::cron::Cron) -> Self {
        self.hooks.crons.push(cron);
        self
    }

    /// Runs a closure repeatedly, independent of the queues.
    pub fn periodic(mut self, periodic: Periodic) -> Self {
        self.hooks.periodic.push(periodic);
        self
    }

    /// Whether claims of other nodes on this machine are taken over as soon as their process is gone, instead of when
    /// their lease expires. Default: yes, on Linux, where the system reports this. Switch it off if machines are copied
    /// while they run, for example from a snapshot: the copies would mistake each other's processes for their own.
    pub fn takeover(mut self, at_once: bool) -> Self {
        self.takeover = at_once;
        self
    }

    /// Declares that handlers of this engine start programs that may outlive its process. The hook must end the
    /// programs that another such engine left behind; it runs before that engine's claims are taken over. If it fails,
    /// these claims last until their lease expires.
    pub fn before_takeover<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Origin) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.hooks.before_takeover = Some(Arc::new(move |origin| Box::pin(hook(origin))));
        self
    }

    /// Makes the engine appear to run in this process.
    #[cfg(test)]
    pub(in crate::engine) fn origin(mut self, origin: Origin) -> Self {
        self.hooks.origin = Some(origin);
        self
    }

    /// Runs once before the node registers. If it fails, the engine does not start.
    pub fn on_start<F, Fut>(mut self, hook: F) -> Self
    where
        F: FnOnce() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.hooks.on_start.push(Box::new(move || Box::pin(hook())));
        self
    }

    /// Runs when a handler fails with [`Fatal`](crate::Fatal), or a task of the engine breaks. The engine then stops
    /// as on request, and its run returns an error of that kind. It also runs when the engine cannot start, with the
    /// error that the run returns.
    pub fn on_fatal(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.hooks.on_fatal = Some(Arc::new(hook));
        self
    }

    /// Runs after the engine has carried out an action (not a push) of a row of the store's inbox; with the reason if
    /// it could not. The row is deleted after that, so the hook may run again if the process dies meanwhile. See
    /// [`Inbox`](crate::store::Inbox).
    pub fn on_inbox_action<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(InboxDeed, Option<String>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let hook = move |deed, refused| -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(hook(deed, refused))
        };
        self.hooks.on_inbox_action = Some(Arc::new(hook));
        self
    }

    /// Runs for every job of the store that is buried or dropped when a turn ends, usually because its retries are used
    /// up: on this node, on others, at remote workers, and when the claim of a dead node is rescued. Jobs that an
    /// operator buries are not reported.
    ///
    /// Runs at least once, even if the process dies meanwhile: each call is a job of the queue `seriatim.exhausted`,
    /// which this engine declares and handles. All nodes of the store push to it while it is declared (they notice
    /// within 15 seconds), so they need the same [`codec`](Self::codec). Delete the queue when no engine has the hook
    /// any more. If the hook fails, it is retried like any handler, unless the job was requeued meanwhile: then the call
    /// ends. A turn is settled once the store has taken the calls about it. You can use a worker of that queue instead:
    /// its payloads are [`Exhausted`].
    pub fn on_retries_exhausted<F, Fut>(self, hook: F) -> Self
    where
        F: Fn(Exhausted) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.with(exhausted::worker(hook))
    }

    /// Checks everything, including the queues. Without workers the engine only maintains the store: it rescues
    /// claims of dead nodes, and sweeps. `Invalid` names the invalid field, such as `queues.orders.batch_size`.
    pub fn build(mut self) -> Result<Engine> {
        let own = self.queues.iter().filter_map(|queue| queue.lease);
        let shortest = own.chain([self.settings.lease]).min().unwrap_or(HEARTBEAT);
        self.settings.heartbeat = self.heartbeat.unwrap_or(HEARTBEAT.min(shortest / 3));
        self.settings.rescue_interval = self.rescue_interval.unwrap_or(self.settings.heartbeat);
        self.hear_of_exhausted();
        self.validate()?;
        self.set_origin();
        // In the order of their first workers; the `strict` scheduler follows it.
        let mut by_queue: Vec<(Arc<str>, Vec<Worker>)> = Vec::new();
        for worker in self.workers {
            match by_queue.iter_mut().find(|(name, _)| *name == worker.queue) {
                Some((_, workers)) => workers.push(worker),
                None => by_queue.push((worker.queue.clone(), vec![worker])),
            }
        }
        let sources = by_queue.into_iter().map(|(name, workers)| Source::new(name, workers));
        let core =
            Core::new(self.store, self.settings, sources.collect(), self.observer, self.hooks);
        Ok(Engine::new(core, self.queues))
    }

    /// If the engine has a worker for jobs about exhausted jobs, it declares their queue: then all nodes push them.
    fn hear_of_exhausted(&mut self) {
        let of_queue = |worker: &Worker| *worker.queue == *Exhausted::QUEUE;
        if !self.workers.iter().any(of_queue) {
            return;
        }
        self.hooks.exhausted = true;
        if !self.queues.iter().any(|queue| queue.name == Exhausted::QUEUE) {
            self.queues.push(exhausted::queue());
        }
        let guard = |worker| if of_queue(&worker) { exhausted::guarded(worker) } else { worker };
        self.workers = std::mem::take(&mut self.workers).into_iter().map(guard).collect();
    }

    fn set_origin(&mut self) {
        let hooks = &mut self.hooks;
        let own = || hooks.origin.take().or_else(Origin::of_this_process);
        let origin = self.takeover.then(own).flatten();
        let programs = hooks.before_takeover.is_some();
        hooks.origin = origin.map(|origin| Origin { programs, ..origin });
    }

    /// The queues with workers.
    #[cfg(feature = "testing")]
    pub(crate) fn worked_on(&self) -> Vec<Arc<str>> {
        let mut queues: Vec<Arc<str>> =
            self.workers.iter().map(|worker| worker.queue.clone()).collect();
        queues.sort();
        queues.dedup();
        queues
    }

    /// Builds the engine and runs it; see [`Engine::run_until`].
    pub async fn run_until(self, stop: impl Future + Send) -> Result<Summary> {
        self.build()?.run_until(stop).await
    }

    fn validate(&self) -> Result<()> {
        let settings = &self.settings;
        if !(1..=CONCURRENCY_MAX).contains(&settings.concurrency) {
            let message = format!("must be 1 to {CONCURRENCY_MAX}");
            return Err(Error::invalid("concurrency", message));
        }
        check_node_name(&settings.node_name)?;
        let intervals = [
            ("heartbeat", settings.heartbeat),
            ("poll_interval", settings.poll_interval),
            ("rescue_interval", settings.rescue_interval),
        ];
        if let Some((field, _)) = intervals.iter().find(|(_, interval)| interval.is_zero()) {
            return Err(Error::invalid(*field, "must be more than zero"));
        }
        self.validate_queues()?;
        self.validate_periodic()?;
        #[cfg(feature = "cron")]
        self.validate_crons()?;
        self.validate_leases()?;
        self.validate_workers()
    }

    fn validate_queues(&self) -> Result<()> {
        for (place, queue) in self.queues.iter().enumerate() {
            queue.validate().map_err(|e| e.in_field(format!("queues.{}", queue.name)))?;
            let same = self.queues[..place].iter().find(|other| other.name == queue.name);
            if same.is_some_and(|other| other != queue) {
                let message = "is declared twice, and not the same way";
                return Err(Error::invalid(format!("queues.{}", queue.name), message));
            }
        }
        Ok(())
    }

    #[cfg(feature = "cron")]
    fn validate_crons(&self) -> Result<()> {
        let crons = &self.hooks.crons;
        crons.iter().enumerate().try_for_each(|(place, cron)| {
            let field = || format!("cron.{}", cron.name());
            // They would share the idempotency key of a tick, so one of them would lose it.
            if crons[..place].iter().any(|other| other.name() == cron.name()) {
                let message = "is the name of two entries: give each a name of its own";
                return Err(Error::invalid(field(), message));
            }
            let queue = self.queues.iter().find(|queue| queue.name == cron.queue());
            let checked = cron.validate(queue).and_then(|()| window_of(cron, queue).map(drop));
            checked.map_err(|e| e.in_field(field()))
        })
    }

    fn validate_periodic(&self) -> Result<()> {
        let count = self.hooks.periodic.len();
        if count > PERIODIC_MAX {
            return Err(Error::invalid("periodic", format!("has {count}: at most {PERIODIC_MAX}")));
        }
        Ok(())
    }

    fn validate_leases(&self) -> Result<()> {
        let least = self.settings.heartbeat.saturating_mul(3);
        let own = self.queues.iter().filter_map(|queue| Some((queue.name.as_str(), queue.lease?)));
        let named = own.map(|(queue, lease)| (format!("queues.{queue}.lease"), lease));
        let nodes = ("lease".to_owned(), self.settings.lease);
        let too_long = self
            .queues
            .iter()
            .find(|queue| queue.lease.is_none() && self.settings.lease > queue.lease_max);
        if let Some(queue) = too_long {
            queue.check_lease(self.settings.lease)?;
        }
        match named.chain([nodes]).find(|(_, lease)| *lease < least) {
            Some((field, lease)) => {
                let [lease, least, heartbeat] =
                    [lease, least, self.settings.heartbeat].map(crate::model::duration::format);
                let message = format!(
                    "is {lease}: it must be at least {least}, three heartbeats of {heartbeat}"
                );
                Err(Error::invalid(field, message))
            }
            None => Ok(()),
        }
    }

    fn validate_workers(&self) -> Result<()> {
        for (place, worker) in self.workers.iter().enumerate() {
            validate_queue_name(&worker.queue)?;
            worker.retrying.validate()?;
            let limits = [("timeout", worker.timeout), ("timeout_default", worker.timeout_default)];
            if let Some((field, _)) =
                limits.iter().find(|(_, limit)| *limit == Some(Duration::ZERO))
            {
                return Err(Error::invalid(*field, "must be more than zero"));
            }
            if worker.task.as_deref() == Some("") {
                return Err(Error::invalid("task", "is empty: remove it, and the worker has all"));
            }
            if let Some(weight) = worker.weight.filter(|weight| !(1..=WEIGHT_MAX).contains(weight))
            {
                let range = format!("must be 1 to {WEIGHT_MAX}, not {weight}");
                return Err(Error::invalid("weight", range));
            }
            let same = |other: &&Worker| other.queue == worker.queue && other.task == worker.task;
            if self.workers[..place].iter().any(|other| same(&other)) {
                let message = match &worker.task {
                    Some(task) => format!("task {task:?} of queue {:?} has two", worker.queue),
                    None => format!("queue {:?} has two without a task", worker.queue),
                };
                return Err(Error::invalid("workers", message));
            }
        }
        Ok(())
    }
}
