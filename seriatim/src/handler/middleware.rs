//! Middleware around every handler call of an engine.

use std::future::Future;
use std::sync::Arc;

use crate::handler::context::Context;
use crate::handler::failure::Failure;
use crate::handler::outcomes::Outcomes;
use crate::handler::worker::Handling;

/// A middleware without its types.
pub(crate) type Middleware = dyn Fn(Context, Next) -> Handling + Send + Sync;

/// The rest of a call: the inner middleware, and the handler.
pub struct Next(Handling);

impl Next {
    /// Runs it. If a middleware does not call this, the handler never runs; the middleware's answer counts anyway.
    pub async fn run(self) -> Result<Outcomes, Failure> {
        self.0.await
    }
}

pub(crate) fn erase<F, Fut>(middleware: F) -> Arc<Middleware>
where
    F: Fn(Context, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcomes, Failure>> + Send + 'static,
{
    Arc::new(move |context, next| Box::pin(middleware(context, next)))
}

/// The handler with all middleware around it, the first one outermost.
pub(crate) fn wrap(all: &[Arc<Middleware>], context: &Context, handler: Handling) -> Handling {
    let inward = all.iter().rev();
    inward.fold(handler, |inner, middleware| middleware(context.clone(), Next(inner)))
}
