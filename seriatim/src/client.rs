//! The producer's side. Concurrent single pushes are gathered into common batches.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::limits::{PUSH_BYTES_MAX, PUSH_JOBS_MAX};
use crate::store::{Push, Pushed, SharedStore};

/// Most single pushes that wait to be gathered; more wait to wait.
const WAITING_MAX: usize = 4_096;
/// Most single pushes in one batch.
const GATHER_MAX: usize = 1_000;

type Waiting = (Job, oneshot::Sender<Result<Pushed>>);

/// Pushes jobs. Cheap to clone; clones gather together.
#[derive(Clone)]
pub struct Client {
    store: SharedStore,
    single: Arc<std::sync::OnceLock<mpsc::Sender<Waiting>>>,
}

impl Client {
    /// A client of `store`.
    pub fn new(store: SharedStore) -> Self {
        Self { store, single: Arc::default() }
    }

    /// Pushes a job. When it returns, the job is stored as durably as the store promises.
    ///
    /// Pushes that arrive while a batch is under way go together in the next one: a single caller
    /// waits for one round trip, and many callers share it. Needs a tokio runtime.
    pub async fn push(&self, job: Job) -> Result<Pushed> {
        job.validate()?;
        let (answer, answered) = oneshot::channel();
        let single = self.single.get_or_init(|| {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            tokio::spawn(gather(self.store.clone(), receiver));
            sender
        });
        let gone = || Error::new(ErrorKind::Unavailable, "the runtime of this client has ended");
        single.send((job, answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// Pushes a batch: all of it or none. The answer has one entry for each job, in order.
    pub async fn push_all(&self, jobs: Vec<Job>) -> Result<Vec<Pushed>> {
        self.store.push(Push { now: None, jobs }).await
    }

    /// The store.
    pub fn store(&self) -> &SharedStore {
        &self.store
    }
}

async fn gather(store: SharedStore, mut waiting: mpsc::Receiver<Waiting>) {
    let mut gathered = Vec::new();
    let mut put_off: Option<Waiting> = None;
    loop {
        gathered.extend(put_off.take());
        if gathered.is_empty() && waiting.recv_many(&mut gathered, GATHER_MAX).await == 0 {
            return;
        }
        while gathered.len() < GATHER_MAX
            && let Ok(next) = waiting.try_recv()
        {
            gathered.push(next);
        }
        let mut bytes = 0;
        let fits = gathered.iter().take(PUSH_JOBS_MAX).take_while(|(job, _)| {
            bytes += job.payload.as_bytes().len();
            bytes <= PUSH_BYTES_MAX
        });
        let rest = gathered.split_off(fits.count().max(1));
        push_together(&store, gathered).await;
        gathered = rest;
    }
}

/// Pushes jobs of several callers. An error of one is not the others': they are tried one by one.
async fn push_together(store: &SharedStore, waiting: Vec<Waiting>) {
    let (jobs, answers): (Vec<Job>, Vec<_>) = waiting.into_iter().unzip();
    let alone = jobs.len() == 1;
    let retry = if alone { Vec::new() } else { jobs.clone() };
    match store.push(Push { now: None, jobs }).await {
        Ok(pushed) => {
            for (answer, pushed) in answers.into_iter().zip(pushed) {
                let _ = answer.send(Ok(pushed));
            }
        }
        Err(error) if alone || !is_of_one_job(error.kind()) => {
            for answer in answers {
                let _ = answer.send(Err(Error::new(error.kind(), error.to_string())));
            }
        }
        // One job was refused, and with it the batch: each is tried by itself and told its own error.
        Err(_) => {
            for (job, answer) in retry.into_iter().zip(answers) {
                let pushed = store.push(Push { now: None, jobs: vec![job] }).await;
                let _ = answer.send(pushed.map(|pushed| pushed[0]));
            }
        }
    }
}

/// Whether an error is about a job of the batch; another may have left the batch stored or not.
fn is_of_one_job(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Invalid | ErrorKind::Conflict)
}
