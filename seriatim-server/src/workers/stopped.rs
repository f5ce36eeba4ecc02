//! The outcome of jobs that a stopped call did not reach.

use futures_util::FutureExt;
use std::time::Duration;

use seriatim::{Context, Outcome};

/// How jobs end that were given up, for this reason. What had ended before keeps its outcome.
pub(crate) fn given_up(context: &Context, why: &str) -> Outcome {
    // After a cancellation nothing is needed: the jobs are flagged, and end cancelled.
    let must_end = must_end(context);
    match context.time_left() {
        Some(Duration::ZERO) => {
            Outcome::Retry { error: format!("timed out: {why}").into(), retry_in: None }
        }
        // Not asked to end: they end early because the node drains.
        _ if must_end || !context.is_cancelled() => Outcome::Release,
        _ => Outcome::Retry { error: why.into(), retry_in: None },
    }
}

/// Whether the call itself must end, and not only its jobs are cancelled.
pub(crate) fn must_end(context: &Context) -> bool {
    context.must_end().now_or_never().is_some()
}
