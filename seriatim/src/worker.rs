//! Workers: where user types end. A registration erases them, so that the engine knows one shape.

use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::batch::{Batch, Context, Outcomes};
use crate::id::{JobId, LaneId};
use crate::payload::Payload;

/// What an erased handler answers: outcomes or one error for the whole call, and the jobs that
/// could not be decoded.
pub(crate) struct Answer {
    pub outcomes: Result<Outcomes, String>,
    pub undecodable: Vec<(LaneId, JobId)>,
}

type Handling = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Handler = dyn Fn(Batch<Payload>, Context) -> Handling + Send + Sync;

/// A handler without its types.
#[derive(Clone)]
pub(crate) struct Worker(Arc<Handler>);

impl Worker {
    /// A handler of payloads as they are.
    pub(crate) fn raw<F, Fut, R, E>(handler: F) -> Self
    where
        F: Fn(Batch<Payload>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Outcomes>,
        E: Display,
    {
        Self(Arc::new(move |batch, context| {
            let handling = handler(batch, context);
            Box::pin(async move { answer(handling.await, Vec::new()) })
        }))
    }

    /// A handler of payloads read as `T`.
    pub(crate) fn typed<T, F, Fut, R, E>(handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(Batch<T>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Outcomes>,
        E: Display,
    {
        Self(Arc::new(move |batch, context| {
            let (batch, undecodable) = batch.decoded::<T>();
            if batch.lanes().is_empty() {
                let outcomes = Ok(Outcomes::new());
                return Box::pin(async move { Answer { outcomes, undecodable } });
            }
            let handling = handler(batch, context);
            Box::pin(async move { answer(handling.await, undecodable) })
        }))
    }

    pub(crate) fn call(&self, batch: Batch<Payload>, context: Context) -> Handling {
        (self.0)(batch, context)
    }
}

fn answer<R: Into<Outcomes>, E: Display>(
    result: Result<R, E>,
    undecodable: Vec<(LaneId, JobId)>,
) -> Answer {
    let outcomes = result.map(Into::into).map_err(|error| error.to_string());
    Answer { outcomes, undecodable }
}

/// The workers of an engine, by queue and task.
#[derive(Clone, Default)]
pub(crate) struct Registry(HashMap<String, HashMap<Option<String>, Worker>>);

impl Registry {
    pub(crate) fn add(&mut self, queue: &str, task: Option<&str>, worker: Worker) {
        self.0.entry(queue.to_owned()).or_default().insert(task.map(str::to_owned), worker);
    }

    /// The worker of a task; else the queue's worker for every task.
    pub(crate) fn find(&self, queue: &str, task: Option<&str>) -> Option<&Worker> {
        let tasks = self.0.get(queue)?;
        task.and_then(|task| tasks.get(&Some(task.to_owned()))).or_else(|| tasks.get(&None))
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
