//! Pushes jobs, and waits for their ends. Single pushes of concurrent callers go to the store in one call.

mod line;
mod slow;
mod waiting;

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::OnceCell;

use self::line::Line;
use crate::contract::batches::of_callback;
use crate::contract::{
    BatchView, Declaration, OpenBatch, Push, Pushed, SealBatch, SharedStore, Transaction,
    declare_each,
};
use crate::handler::codec::{Codec, encode};
use crate::model::{Error, ErrorKind, Job, Queue, Result};
use crate::observe::{self, Observer};

/// Pushes jobs. Cheap to clone; clones share calls of the store.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    store: SharedStore,
    observer: Option<Arc<dyn Observer>>,
    around: Around,
    /// Set once the store has the queues of `around`.
    declared: OnceCell<()>,
    line: Line,
}

type Middleware = dyn Fn(&mut Job) -> Result<()> + Send + Sync;
type Pushing = Pin<Box<dyn Future<Output = Result<Vec<Pushed>>> + Send>>;
type Wrap = dyn Fn(Vec<Job>, NextPush) -> Pushing + Send + Sync;

/// The rest of a push: the other wrappers, and the store.
pub struct NextPush {
    shared: Arc<Shared>,
    /// The place of the next one around it.
    place: usize,
}

impl NextPush {
    /// Continues with these jobs. If you do not call it, nothing is pushed.
    pub async fn run(self, jobs: Vec<Job>) -> Result<Vec<Pushed>> {
        match self.shared.around.wraps.get(self.place).cloned() {
            Some(wrap) => wrap(jobs, Self { place: self.place + 1, ..self }).await,
            None => self.shared.send(jobs).await,
        }
    }
}

/// The changes of the client to a job before the store gets it.
#[derive(Clone, Default)]
struct Around {
    middleware: Vec<Arc<Middleware>>,
    /// Around each call of the store, the first one outermost.
    wraps: Vec<Arc<Wrap>>,
    codec: Option<Arc<dyn Codec>>,
    /// The queues that the client knows.
    queues: Arc<[Queue]>,
}

impl Client {
    /// A client of `store`.
    pub fn new(store: SharedStore) -> Self {
        Self::build(store, None, Around::default())
    }

    /// A client that reports its pushes to `observer`.
    pub fn observed(store: SharedStore, observer: Arc<dyn Observer>) -> Self {
        Self::build(store, Some(observer), Around::default())
    }

    /// Runs `middleware` on every job before it is pushed, after the middleware added earlier. It may change the job
    /// (compute its key, score or time) or refuse it.
    ///
    /// ```
    /// # use seriatim::{Client, Error, Job, store::Memory};
    /// # let client = Client::new(std::sync::Arc::new(Memory::new()));
    /// client.middleware(|job: &mut Job| match job.key {
    ///     Some(_) => Ok(()),
    ///     None => Err(Error::invalid("key", "every job of this service has one")),
    /// })
    /// # ;
    /// ```
    #[must_use = "the client is changed, not its clones"]
    pub fn middleware(
        self,
        middleware: impl Fn(&mut Job) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let mut around = self.shared.around.clone();
        around.middleware.push(Arc::new(middleware));
        Self::build(self.shared.store.clone(), self.shared.observer.clone(), around)
    }

    /// Runs `wrap` around each call of the store: it gets the jobs as they are stored, and the answer or the error. It
    /// may add or remove jobs, if it returns one answer for each job that it got. The first one is the outermost.
    /// Single pushes of concurrent callers share a call. [`Client::push_in`] is not wrapped: its jobs are stored at the
    /// commit.
    ///
    /// ```
    /// # use seriatim::{Client, Job, store::{Memory, NextPush}};
    /// # let client = Client::new(std::sync::Arc::new(Memory::new()));
    /// client.around(|jobs: Vec<Job>, push: NextPush| async move {
    ///     let (began, count) = (std::time::Instant::now(), jobs.len());
    ///     let answer = push.run(jobs).await;
    ///     println!("{count} jobs in {:?}: {}", began.elapsed(), if answer.is_ok() { "stored" } else { "failed" });
    ///     answer
    /// })
    /// # ;
    /// ```
    #[must_use = "the client is changed, not its clones"]
    pub fn around<F, Fut>(self, wrap: F) -> Self
    where
        F: Fn(Vec<Job>, NextPush) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Pushed>>> + Send + 'static,
    {
        let mut around = self.shared.around.clone();
        around.wraps.push(Arc::new(move |jobs, next| Box::pin(wrap(jobs, next))));
        Self::build(self.shared.store.clone(), self.shared.observer.clone(), around)
    }

    /// Encodes payloads, after all middleware. The engines must decode with the same codec.
    #[must_use = "the client is changed, not its clones"]
    pub fn codec(self, codec: impl Codec) -> Self {
        let around = Around { codec: Some(Arc::new(codec)), ..self.shared.around.clone() };
        Self::build(self.shared.store.clone(), self.shared.observer.clone(), around)
    }

    /// Adds queues to those that the client knows; a later definition replaces an earlier one of the same name. It
    /// checks each job against them before it pushes, and declares them once, before its first push, if they do not
    /// exist or only an undeclared push created them. A queue that is declared keeps its settings, so what an engine
    /// declares at the same moment stands; if its mode differs, each push fails as `Conflict`.
    ///
    /// If a push names a queue that does not exist, it creates the queue: `exclusive` with a key, `parallel` without.
    ///
    /// ```
    /// # use seriatim::{Client, Job, Queue, store::Memory};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> seriatim::Result<()> {
    /// # let store = std::sync::Arc::new(Memory::new());
    /// let client = Client::new(store).queues([Queue::fifo("orders"), Queue::parallel("mails")]);
    /// client.push(Job::new("orders", "paid")?.key("order-42")).await?;
    /// // Every job of `orders` needs a key.
    /// assert_eq!(client.push(Job::new("orders", "paid")?).await.unwrap_err().field(), Some("key"));
    /// # Ok(()) }
    /// ```
    #[must_use = "the client is changed, not its clones"]
    pub fn queues(self, queues: impl IntoIterator<Item = Queue>) -> Self {
        let mut known = self.shared.around.queues.to_vec();
        for queue in queues {
            known.retain(|earlier| earlier.name != queue.name);
            known.push(queue);
        }
        let around = Around { queues: known.into(), ..self.shared.around.clone() };
        Self::build(self.shared.store.clone(), self.shared.observer.clone(), around)
    }

    /// Declares queues as an engine does when it starts: existing queues get the settings given here. Fails as
    /// `Conflict` if one cannot be converted.
    pub async fn declare(&self, queues: impl IntoIterator<Item = Queue>) -> Result<()> {
        let queues: Vec<Queue> = queues.into_iter().collect();
        let undeclared = declare_each(&*self.shared.store, &queues, false).await?;
        undeclared.into_iter().next().map_or(Ok(()), |first| Err(first.error))
    }

    fn build(store: SharedStore, observer: Option<Arc<dyn Observer>>, around: Around) -> Self {
        let (declared, line) = (OnceCell::new(), Line::default());
        Self { shared: Arc::new(Shared { store, observer, around, declared, line }) }
    }

    /// The store.
    pub fn store(&self) -> &SharedStore {
        &self.shared.store
    }

    /// Pushes a job. When this returns, the job is stored as durably as the store promises. After a transient error
    /// it may or may not be stored, so a repeat should carry an idempotency key.
    ///
    /// A lone caller pushes immediately. Callers that arrive while a push is under way go together in the next one
    /// and share its round trip (and commit). If one takes longer than 50 ms, as behind a transaction that has locked its
    /// key, the next one goes beside it, without jobs of its keys. Needs a tokio runtime, with time.
    pub async fn push(&self, mut job: Job) -> Result<Pushed> {
        self.shared.around.pass(&mut job)?;
        self.push_passed(job).await
    }

    /// Pushes a job that has passed the middleware.
    async fn push_passed(&self, job: Job) -> Result<Pushed> {
        job.validate()?;
        self.shared.declare().await?;
        self.shared.push_in_line(job).await
    }

    /// Pushes at most 10,000 jobs, all or none. Returns one answer for each job, in order.
    pub async fn push_all(&self, mut jobs: Vec<Job>) -> Result<Vec<Pushed>> {
        self.shared.prepare(&mut jobs).await?;
        self.shared.push(jobs).await
    }

    /// Pushes jobs within the caller's transaction. The jobs and their wake-up take effect at its commit, and
    /// vanish at a rollback. See [`Transaction`].
    pub async fn push_in(
        &self,
        transaction: &mut impl Transaction,
        mut jobs: Vec<Job>,
    ) -> Result<Vec<Pushed>> {
        self.shared.prepare(&mut jobs).await?;
        transaction.push(&*self.shared.store, Push { now: None, jobs }).await
    }

    /// Opens a batch: pushes may name it ([`Job::batch`]), also pushes by handlers of its own jobs. Once it is
    /// [sealed](Self::seal_batch) and its last job has ended, `callback` is pushed; it has the counts in
    /// [`TurnJob::ended_batch`](crate::store::TurnJob::ended_batch). Repeating it with the same callback changes
    /// nothing. Not all stores have batches: see [`Batches`](crate::store::Batches).
    ///
    /// ```
    /// # use seriatim::{Client, Job, store::Memory};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> seriatim::Result<()> {
    /// # let client = Client::new(std::sync::Arc::new(Memory::new()));
    /// client.open_batch("import-7", Job::new("reports", "import 7 is in")?).await?;
    /// for row in ["a", "b"] {
    ///     client.push(Job::new("rows", row)?.batch("import-7")).await?;
    /// }
    /// assert_eq!(client.seal_batch("import-7").await?.pending, 2);
    /// # Ok(()) }
    /// ```
    pub async fn open_batch(&self, id: impl Into<Arc<str>>, callback: Job) -> Result<BatchView> {
        let mut jobs = [callback];
        // Before a codec, which may write another text each time: a repeat has the same callback.
        jobs[0].digest = Some(jobs[0].payload_digest());
        self.shared.prepare(&mut jobs).await.map_err(of_callback)?;
        let [callback] = jobs;
        self.shared.store.open_batch(OpenBatch { now: None, id: id.into(), callback }).await
    }

    /// Seals a batch: it ends with the last of its jobs, or now if none is left.
    pub async fn seal_batch(&self, id: impl Into<Arc<str>>) -> Result<BatchView> {
        self.shared.store.seal_batch(SealBatch { now: None, id: id.into() }).await
    }

    /// The counts of a batch.
    pub async fn batch(&self, id: impl Into<Arc<str>>) -> Result<Option<BatchView>> {
        self.shared.store.batch(id.into()).await
    }
}

impl Around {
    fn pass(&self, job: &mut Job) -> Result<()> {
        for middleware in &self.middleware {
            middleware(job)?;
        }
        let known = self.queues.iter().find(|queue| queue.name == job.queue);
        if let Some(codec) = &self.codec {
            encode(&**codec, job, known.is_none_or(Queue::merges))?;
        }
        known.map_or(Ok(()), |queue| queue.check_key(job.key.is_some()))
    }
}

impl Shared {
    /// Takes the jobs of a batch through the wrappers of the client; declares its queues.
    async fn prepare(&self, jobs: &mut [Job]) -> Result<()> {
        for (place, job) in jobs.iter_mut().enumerate() {
            // The error names `jobs[7].key`, not `key`.
            let of_batch = |error: Error| error.in_field(format!("jobs[{place}]"));
            self.around.pass(job).map_err(of_batch)?;
        }
        self.declare().await
    }

    /// Declares the client's queues before its first push; concurrent pushes wait.
    async fn declare(&self) -> Result<()> {
        let queues = &self.around.queues;
        if queues.is_empty() || self.declared.initialized() {
            return Ok(());
        }
        let declare = || async {
            let undeclared = declare_each(&*self.store, queues, true).await?;
            // A declaration that waits until no job runs does not block pushes: the queue takes them now, and an
            // engine converts it later.
            let stuck = undeclared.into_iter().find(|one| one.fate != Declaration::Waits);
            stuck.map_or(Ok(()), |stuck| Err(stuck.error))
        };
        self.declared.get_or_try_init(declare).await.map(drop)
    }

    async fn push(self: &Arc<Self>, jobs: Vec<Job>) -> Result<Vec<Pushed>> {
        if self.around.wraps.is_empty() {
            return self.send(jobs).await;
        }
        let count = jobs.len();
        let answers = NextPush { shared: self.clone(), place: 0 }.run(jobs).await?;
        if answers.len() == count {
            return Ok(answers);
        }
        let told = format!("what is around the push answered {} of {count} jobs", answers.len());
        Err(Error::new(ErrorKind::Internal, told))
    }

    async fn send(&self, jobs: Vec<Job>) -> Result<Vec<Pushed>> {
        observe::push(&*self.store, self.observer.as_ref(), jobs).await
    }
}

/// The answer to a push of one job.
fn only(answer: Result<Vec<Pushed>>) -> Result<Pushed> {
    let pushed = answer.map_err(of_single)?;
    let missing = || Error::new(ErrorKind::Internal, "the store answered a push with nothing");
    pushed.first().copied().ok_or_else(missing)
}

/// An error of a batch of one names `key`, not `jobs[0].key`.
fn of_single(error: Error) -> Error {
    let Some(field) = error.field().and_then(|field| field.strip_prefix("jobs[0]")) else {
        return error;
    };
    let field = field.trim_start_matches('.').to_owned();
    let bare = Error::new(error.kind(), error.message().to_owned());
    if field.is_empty() { bare } else { bare.in_field(field) }
}
