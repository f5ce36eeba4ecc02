//! Workers: where user types end. A worker keeps an erased handler, so that the engine knows one
//! shape only.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::handler::batch::Batch;
use crate::handler::call::Call;
use crate::handler::context::Context;
use crate::handler::control::Undecodable;
use crate::handler::failure::{Failure, Interrupted};
use crate::handler::outcomes::Outcomes;
use crate::model::payload::Payload;

pub(crate) type Handling = Pin<Box<dyn Future<Output = Result<Outcomes, Failure>> + Send>>;
pub(crate) type Wait = dyn Fn(u32) -> Duration + Send + Sync;

/// A handler without its types.
type Prepare = dyn Fn(&Arc<Call>) -> Prepared + Send + Sync;

/// A call that is ready to run.
pub(crate) struct Prepared {
    /// None when no job is left to hand over.
    pub(crate) handling: Option<Handling>,
    pub(crate) undecodable: Undecodable,
}

/// A handler with a name and state of its own, where a closure would not do.
///
/// ```
/// # use seriatim::{Batch, Context, Engine, Failure, Memory, Outcomes, Perform, Worker};
/// struct Mailer { from: String }
///
/// impl Perform for Mailer {
///     type Payload = String;
///
///     async fn perform(&self, batch: Batch<String>, _: Context) -> Result<Outcomes, Failure> {
///         for address in batch.payloads() {
///             println!("from {} to {address}", self.from);
///         }
///         Ok(Outcomes::new())
///     }
/// }
///
/// # let builder = Engine::builder(std::sync::Arc::new(Memory::new()));
/// builder.with(Worker::of("mail", Mailer { from: "shop@example.org".into() }))
/// # ;
/// ```
pub trait Perform: Send + Sync + 'static {
    /// What the payloads are read as.
    type Payload: DeserializeOwned + Send + Sync + 'static;

    /// Handles a call. An `Err` fails every turn of it once.
    fn perform(
        &self,
        batch: Batch<Self::Payload>,
        call: Context,
    ) -> impl Future<Output = Result<Outcomes, Failure>> + Send;
}

/// What handles the jobs of one queue, or of one task of it.
#[derive(Clone)]
pub struct Worker {
    pub(crate) queue: Arc<str>,
    pub(crate) task: Option<Arc<str>>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) timeout_default: Option<Duration>,
    pub(crate) wait: Option<Arc<Wait>>,
    pub(crate) prepare: Arc<Prepare>,
}

impl Worker {
    /// A handler of payloads read as `T`. A payload that cannot be read is buried at once with an
    /// error that names the field, since no retry would help, and the rest of the call goes on
    /// without it. Its turn counts as failed.
    pub fn new<T, A, F, Fut>(queue: impl Into<Arc<str>>, handler: F) -> Self
    where
        T: DeserializeOwned + Send + Sync + 'static,
        A: Into<Outcomes> + 'static,
        F: Fn(Batch<T>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A, Failure>> + Send + 'static,
    {
        Self::erased(queue.into(), move |call| {
            let decoded = Batch::<T>::decoded(call);
            prepared(decoded, |batch| erase(handler(batch, Context::new(call.clone()))))
        })
    }

    /// A handler that is a type of its own.
    pub fn of<P: Perform>(queue: impl Into<Arc<str>>, performer: P) -> Self {
        let performer = Arc::new(performer);
        Self::new(queue, move |batch, call| {
            let performer = performer.clone();
            async move { performer.perform(batch, call).await }
        })
    }

    /// A handler of payloads as they are stored.
    pub fn raw<A, F, Fut>(queue: impl Into<Arc<str>>, handler: F) -> Self
    where
        A: Into<Outcomes> + 'static,
        F: Fn(Batch<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A, Failure>> + Send + 'static,
    {
        Self::erased(queue.into(), move |call| {
            prepared(Batch::raw(call), |batch| erase(handler(batch, Context::new(call.clone()))))
        })
    }

    /// A handler that computes for long, or blocks (files, a driver without `async`): it runs on one of
    /// the runtime's threads for such work, so that it keeps nothing else waiting.
    ///
    /// Such a handler cannot be dropped. One that may run for long should look at
    /// [`Context::is_cancelled`] now and then: when its time is up or its lease is lost, its job goes back
    /// or fails as any other, and it runs on beside whoever has the key then.
    ///
    /// ```
    /// # use seriatim::{Batch, Context, Engine, Memory, Worker};
    /// # let builder = Engine::builder(std::sync::Arc::new(Memory::new()));
    /// builder.with(Worker::blocking("reports", |batch: Batch<String>, _: Context| {
    ///     for path in batch.payloads() {
    ///         let size = std::fs::read(path)?.len();
    ///         println!("{path}: {size} bytes");
    ///     }
    ///     Ok(())
    /// }))
    /// # ;
    /// ```
    pub fn blocking<T, A, F>(queue: impl Into<Arc<str>>, handler: F) -> Self
    where
        T: DeserializeOwned + Send + Sync + 'static,
        A: Into<Outcomes> + Send + 'static,
        F: Fn(Batch<T>, Context) -> Result<A, Failure> + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        Self::new(queue, move |batch, call| {
            let handler = handler.clone();
            async move {
                let done = tokio::task::spawn_blocking(move || handler(batch, call)).await;
                done.unwrap_or_else(|error| match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ends, and has not begun it.
                    Err(_) => Err(Box::new(Interrupted)),
                })
            }
        })
    }

    fn erased(
        queue: Arc<str>,
        prepare: impl Fn(&Arc<Call>) -> Prepared + Send + Sync + 'static,
    ) -> Self {
        let prepare = Arc::new(prepare);
        let (task, concurrency, wait) = (None, None, None);
        Self { queue, task, concurrency, timeout: None, timeout_default: None, wait, prepare }
    }

    /// Handles only the jobs of this task; a worker without one handles all that are left.
    #[must_use]
    pub fn task(mut self, task: impl Into<Arc<str>>) -> Self {
        self.task = Some(task.into());
        self
    }

    /// Most calls of this queue at once, within the node's `concurrency`. Of several workers of a
    /// queue the largest counts.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(calls.max(1));
        self
    }

    /// How long a call may take, where it differs from the queue's `timeout`.
    #[must_use]
    pub fn timeout(mut self, length: Duration) -> Self {
        self.timeout = Some(length);
        self
    }

    /// How long a call may take if neither the worker, the queue nor one of its jobs has a `timeout`.
    #[must_use]
    pub fn timeout_default(mut self, length: Duration) -> Self {
        self.timeout_default = Some(length);
        self
    }

    /// Computes the wait before retry number `retry_count` (0 for the first), instead of the
    /// queue's backoff.
    #[must_use]
    pub fn backoff(mut self, wait: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        self.wait = Some(Arc::new(wait));
        self
    }
}

fn prepared<T>(
    (batch, undecodable): (Batch<T>, Undecodable),
    handle: impl FnOnce(Batch<T>) -> Handling,
) -> Prepared {
    let handling = (!batch.lanes().is_empty()).then(|| handle(batch));
    Prepared { handling, undecodable }
}

fn erase<A: Into<Outcomes> + 'static>(
    handling: impl Future<Output = Result<A, Failure>> + Send + 'static,
) -> Handling {
    Box::pin(async move { handling.await.map(Into::into) })
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
