//! How an engine is set up.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::batch::{Batch, Context, Outcomes};
use crate::observe::Observer;
use crate::payload::Payload;
use crate::queue::Queue;
use crate::store::SharedStore;
use crate::worker::{Registry, Worker};

/// What an engine is set to.
#[derive(Clone)]
pub(crate) struct Settings {
    pub name: Arc<str>,
    pub groups: Vec<Arc<str>>,
    pub concurrency: usize,
    pub prefetch_max: usize,
    pub poll_interval: Duration,
    pub heartbeat: Duration,
    pub lease: Duration,
    pub shutdown_timeout: Duration,
    pub observer: Option<Arc<dyn Observer>>,
}

/// Takes jobs from a store and runs workers on them.
///
/// ```no_run
/// # async fn example(store: seriatim::SharedStore) -> seriatim::Result<()> {
/// use seriatim::{Batch, Context, Engine, Queue};
/// #[derive(serde::Deserialize)]
/// struct OrderChanged { status: String }
///
/// Engine::builder(store)
///     .queue(Queue::accumulate("orders").batch_size(10).max_retries(5))
///     .worker("orders", |batch: Batch<OrderChanged>, _context: Context| async move {
///         for lane in batch.lanes() {
///             println!("{}: {} changes, oldest first", lane.key(), lane.payloads().len());
///         }
///         Ok::<_, std::io::Error>(())
///     })
///     .run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
///     .await?;
/// # Ok(()) }
/// ```
pub struct Engine {
    pub(crate) store: SharedStore,
    pub(crate) queues: Vec<Queue>,
    pub(crate) registry: Registry,
    pub(crate) settings: Settings,
}

/// Builds an [`Engine`].
pub type EngineBuilder = Engine;

impl Engine {
    /// An engine on `store`, with nothing to do yet.
    pub fn builder(store: SharedStore) -> Self {
        Self {
            store,
            queues: Vec::new(),
            registry: Registry::default(),
            settings: Settings {
                name: "node".into(),
                groups: Vec::new(),
                concurrency: 10,
                prefetch_max: 1_000,
                poll_interval: Duration::from_secs(1),
                heartbeat: Duration::from_secs(10),
                lease: Duration::from_secs(60),
                shutdown_timeout: Duration::from_secs(30),
                observer: None,
            },
        }
    }

    /// Declares a queue at the start.
    #[must_use]
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Registers the worker of a queue: called with lanes whose payloads are read as `T`.
    ///
    /// `Ok(())` means that all lanes are done; [`Outcomes`] says it lane by lane; an error fails
    /// every lane of the call once. A payload that cannot be read as `T` goes to the morgue, and
    /// the rest is handed over.
    #[must_use]
    pub fn worker<T, F, Fut, R, E>(mut self, queue: &str, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(Batch<T>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Outcomes>,
        E: Display,
    {
        self.registry.add(queue, None, Worker::typed(handler));
        self
    }

    /// Registers the worker of one task of a queue.
    #[must_use]
    pub fn task_worker<T, F, Fut, R, E>(mut self, queue: &str, task: &str, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(Batch<T>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Outcomes>,
        E: Display,
    {
        self.registry.add(queue, Some(task), Worker::typed(handler));
        self
    }

    /// Registers a worker that gets payloads as they are.
    #[must_use]
    pub fn raw_worker<F, Fut, R, E>(mut self, queue: &str, handler: F) -> Self
    where
        F: Fn(Batch<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Outcomes>,
        E: Display,
    {
        self.registry.add(queue, None, Worker::raw(handler));
        self
    }

    /// Registers a worker of one task that gets payloads as they are.
    #[must_use]
    pub fn raw_task_worker<F, Fut, R, E>(mut self, queue: &str, task: &str, handler: F) -> Self
    where
        F: Fn(Batch<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Outcomes>,
        E: Display,
    {
        self.registry.add(queue, Some(task), Worker::raw(handler));
        self
    }

    /// The configured name of this node, for jobs bound to one. Several processes may share it.
    #[must_use]
    pub fn node_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// A group that this node belongs to, for jobs bound to one.
    #[must_use]
    pub fn consumer_group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.settings.groups.push(group.into());
        self
    }

    /// Handler calls at once, whatever the number of queues; at least 1. Default 10.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.settings.concurrency = calls.max(1);
        self
    }

    /// Most lanes that are claimed ahead of the handlers; default 1,000. So many are claimed only
    /// when they are worked off in a moment.
    #[must_use]
    pub fn prefetch_max(mut self, lanes: usize) -> Self {
        self.settings.prefetch_max = lanes.clamp(1, crate::limits::CLAIM_LANES_MAX);
        self
    }

    /// Longest sleep when nothing is due and nothing wakes the engine; default 1 s.
    #[must_use]
    pub fn poll_interval(mut self, length: Duration) -> Self {
        self.settings.poll_interval = length;
        self
    }

    /// How often the node beats; default 10 s. The lease must be three times as long, and is made so.
    #[must_use]
    pub fn heartbeat(mut self, length: Duration) -> Self {
        self.settings.heartbeat = length.max(Duration::from_millis(10));
        self.settings.lease = self.settings.lease.max(self.settings.heartbeat * 3);
        self
    }

    /// How long claims stand without a heartbeat; default 60 s, at least three heartbeats.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.settings.lease = length.max(Duration::from_millis(30));
        self.settings.heartbeat = self.settings.heartbeat.min(self.settings.lease / 3);
        self
    }

    /// How long handlers may go on after a shutdown began; default 30 s.
    #[must_use]
    pub fn shutdown_timeout(mut self, length: Duration) -> Self {
        self.settings.shutdown_timeout = length;
        self
    }

    /// Somebody who watches.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.settings.observer = Some(observer);
        self
    }
}
