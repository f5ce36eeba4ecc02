//! Workers: handlers with their settings. A worker erases the handler's types, so that the engine handles only one
//! type.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::handler::answer::Answer;
use crate::handler::batch::Batch;
use crate::handler::call::Call;
use crate::handler::context::Context;
use crate::handler::control::Undecodable;
use crate::handler::failure::{Failure, Interrupted};
use crate::handler::outcomes::Outcomes;
use crate::handler::retrying::{Failed, Retrying};
use crate::handler::shape::Handler;
use crate::model::Exhaustion;
use crate::model::limits::DELAY_MAX;

pub(crate) type Handling = Pin<Box<dyn Future<Output = Result<Outcomes, Failure>> + Send>>;

/// A handler without its types.
type Prepare = dyn Fn(&Arc<Call>) -> Prepared + Send + Sync;

/// A call that is ready to run.
pub(crate) struct Prepared {
    /// `None` if no job is left to hand over.
    pub(crate) handling: Option<Handling>,
    pub(crate) undecodable: Undecodable,
}

/// Handles the jobs of one queue, or of one of its tasks.
#[derive(Clone)]
pub struct Worker {
    pub(crate) queue: Arc<str>,
    pub(crate) task: Option<Arc<str>>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) weight: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) timeout_default: Option<Duration>,
    pub(crate) retrying: Retrying,
    pub(crate) prepare: Arc<Prepare>,
}

impl Worker {
    /// Handles a queue: `handler` is an async function or closure, with or without a [`Context`], or a struct that
    /// implements [`Perform`](crate::Perform). It may return any [`Answer`].
    ///
    /// A job whose payload cannot be read as the `T` of `Batch<T>` is buried immediately with an error that names the
    /// field, because a retry would not help; the call continues with the others. `Batch<Payload>` passes payloads as
    /// stored.
    ///
    /// ```
    /// # use seriatim::{Batch, Context, Engine, Failure, Worker, store::Memory};
    /// async fn send(mails: Batch<String>) -> Result<(), Failure> {
    ///     for address in mails.payloads() {
    ///         println!("to {address}");
    ///     }
    ///     Ok(())
    /// }
    ///
    /// # let builder = Engine::builder(std::sync::Arc::new(Memory::new()));
    /// builder.with(Worker::new("mail", send).concurrency(4))
    /// # ;
    /// ```
    pub fn new<Args, H>(queue: impl Into<Arc<str>>, handler: H) -> Self
    where
        H: Handler<Args>,
        H::Returned: Future<Output: Answer> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Self::erased(queue.into(), move |call| {
            let (batch, undecodable) = Batch::<H::Payload>::read(call);
            let handle = |batch| {
                let handling = handler.call(batch, Context::new(call.clone()));
                let handling: Handling = Box::pin(async { handling.await.into_result() });
                handling
            };
            let handling = (!batch.lanes().is_empty()).then(|| handle(batch));
            Prepared { handling, undecodable }
        })
    }

    /// Handles a queue with code that blocks or computes for a long time (files, a driver without `async`): a function
    /// or closure that is not async. It runs on one of the runtime's blocking threads, so that it does not delay
    /// others.
    ///
    /// Such a handler cannot be dropped. If it may run for long, it should check [`Context::is_cancelled`]: after its
    /// time limit or the loss of its lease, its jobs fail or are returned as usual, but it keeps running,
    /// concurrently with the next holder of the key.
    ///
    /// ```
    /// # use seriatim::{Batch, Engine, Worker, store::Memory};
    /// fn measure(reports: Batch<String>) -> std::io::Result<()> {
    ///     for path in reports.payloads() {
    ///         println!("{path}: {} bytes", std::fs::read(path)?.len());
    ///     }
    ///     Ok(())
    /// }
    ///
    /// # let builder = Engine::builder(std::sync::Arc::new(Memory::new()));
    /// builder.with(Worker::blocking("reports", measure))
    /// # ;
    /// ```
    pub fn blocking<Args, H>(queue: impl Into<Arc<str>>, handler: H) -> Self
    where
        Args: 'static,
        H: Handler<Args, Returned: Answer>,
    {
        let handler = Arc::new(handler);
        Self::new(queue, move |batch: Batch<H::Payload>, context: Context| {
            let handler = handler.clone();
            async move {
                let call = move || handler.call(batch, context).into_result();
                let done = tokio::task::spawn_blocking(call).await;
                done.unwrap_or_else(|error| match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ended before it started the handler.
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
        let retrying = Retrying::default();
        Self {
            queue,
            task: None,
            concurrency: None,
            weight: None,
            timeout: None,
            timeout_default: None,
            retrying,
            prepare,
        }
    }

    /// The same worker, with its calls made ready by `prepare`.
    pub(crate) fn prepared_by(
        self,
        prepare: impl Fn(&Arc<Call>) -> Prepared + Send + Sync + 'static,
    ) -> Self {
        Self { prepare: Arc::new(prepare), ..self }
    }

    /// Handles only the jobs of this task; a worker without a task handles all remaining jobs.
    ///
    /// Claims do not choose by task. Every node that works on a queue therefore needs a worker for each task, or one
    /// without a task. Otherwise the job fails there: the failure counts, it is retried with backoff, and at last
    /// buried. Give tasks that different services handle queues of their own, and deploy the nodes before you push a
    /// new task.
    #[must_use]
    pub fn task(mut self, task: impl Into<Arc<str>>) -> Self {
        self.task = Some(task.into());
        self
    }

    /// The most concurrent calls of this queue, at least 1, within the node's `concurrency`. If a queue has several
    /// workers, the largest value applies.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(calls.max(1));
        self
    }

    /// This process's share for the queue under [`Scheduler::Weighted`](crate::engine::Scheduler), instead of the
    /// queue's `weight`; 1 to 1,000. If a queue has several workers, the largest value applies.
    #[must_use]
    pub fn weight(mut self, share: u32) -> Self {
        self.weight = Some(share);
        self
    }

    /// The time limit of a call, instead of the queue's `timeout`: more than zero, and at most ten years (a longer one
    /// counts as that).
    #[must_use]
    pub fn timeout(mut self, length: Duration) -> Self {
        // With `Duration::MAX` the end would be later than a clock can show; so below.
        self.timeout = Some(length.min(DELAY_MAX));
        self
    }

    /// The time limit of a call if neither the worker, the queue nor one of its jobs has a `timeout`: more than zero,
    /// and at most ten years.
    #[must_use]
    pub fn timeout_default(mut self, length: Duration) -> Self {
        self.timeout_default = Some(length.min(DELAY_MAX));
        self
    }

    /// Computes the wait before a retry, from the count, the error and the jobs, instead of the queue's backoff. A
    /// job's own backoff and a handler's `retry_in` take precedence.
    #[must_use]
    pub fn backoff<F>(mut self, wait: F) -> Self
    where
        F: Fn(&Failed<'_>) -> Duration + Send + Sync + 'static,
    {
        self.retrying.wait = Some(Arc::new(wait));
        self
    }

    /// Retries after the first try, instead of the queue's `max_retries`; at most 1,000,000. A job's own limit takes
    /// precedence.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.retrying.max_retries = Some(retries);
        self
    }

    /// What happens when the retries are used up, instead of the queue's `exhausted`.
    #[must_use]
    pub fn exhausted(mut self, what: Exhaustion) -> Self {
        self.retrying.exhausted = Some(what);
        self
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
