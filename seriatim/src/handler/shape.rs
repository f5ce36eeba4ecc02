//! The forms of handlers: a function or closure, with or without a context, or a struct.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::handler::answer::Answer;
use crate::handler::batch::Batch;
use crate::handler::context::Context;
use crate::handler::from_payload::FromPayload;

/// A handler: `Fn(Batch<T>)`, `Fn(Batch<T>, Context)`, or a struct that implements [`Perform`]. Implemented for all
/// of them; `Args` only distinguishes them.
pub trait Handler<Args>: Send + Sync + 'static {
    /// The type that payloads are read as.
    type Payload: FromPayload;
    /// The result of a call: for [`Worker::new`](crate::Worker::new) a future of an [`Answer`].
    type Returned;

    /// Handles a call.
    fn call(self: &Arc<Self>, batch: Batch<Self::Payload>, context: Context) -> Self::Returned;
}

impl<F, T, R> Handler<(T,)> for F
where
    F: Fn(Batch<T>) -> R + Send + Sync + 'static,
    T: FromPayload,
{
    type Payload = T;
    type Returned = R;

    fn call(self: &Arc<Self>, batch: Batch<T>, _: Context) -> R {
        self(batch)
    }
}

impl<F, T, R> Handler<(T, Context)> for F
where
    F: Fn(Batch<T>, Context) -> R + Send + Sync + 'static,
    T: FromPayload,
{
    type Payload = T;
    type Returned = R;

    fn call(self: &Arc<Self>, batch: Batch<T>, context: Context) -> R {
        self(batch, context)
    }
}

/// A handler with state that its calls share.
///
/// ```
/// # use seriatim::{Batch, Context, Engine, Failure, Perform, store::Memory};
/// struct Mailer { from: String }
///
/// impl Perform for Mailer {
///     type Payload = String;
///     type Answer = Result<(), Failure>;
///
///     async fn perform(&self, batch: Batch<String>, _: Context) -> Result<(), Failure> {
///         for address in batch.payloads() {
///             println!("from {} to {address}", self.from);
///         }
///         Ok(())
///     }
/// }
///
/// # let builder = Engine::builder(std::sync::Arc::new(Memory::new()));
/// builder.worker("mail", Mailer { from: "shop@example.org".into() })
/// # ;
/// ```
pub trait Perform: Send + Sync + 'static {
    /// The type that payloads are read as.
    type Payload: FromPayload;
    /// The result of a call, for example `Result<(), Failure>` or `anyhow::Result<Outcomes>`.
    type Answer: Answer;

    /// Handles a call.
    fn perform(
        &self,
        batch: Batch<Self::Payload>,
        context: Context,
    ) -> impl Future<Output = Self::Answer> + Send;
}

/// Marks handlers that implement [`Perform`].
#[derive(Debug)]
pub struct Performs;

impl<P: Perform> Handler<Performs> for P {
    type Payload = P::Payload;
    type Returned = Pin<Box<dyn Future<Output = P::Answer> + Send>>;

    fn call(self: &Arc<Self>, batch: Batch<P::Payload>, context: Context) -> Self::Returned {
        let performer = self.clone();
        Box::pin(async move { performer.perform(batch, context).await })
    }
}
