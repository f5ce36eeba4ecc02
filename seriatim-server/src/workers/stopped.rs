//! What becomes of jobs that a call could not get to, as it was told to end.

use futures_util::FutureExt;
use std::time::Duration;

use seriatim::{Context, Outcome};

/// How jobs end that were given up, for this reason. What had ended before keeps its outcome.
pub(crate) fn given_up(context: &Context, why: &str) -> Outcome {
    // For a cancellation by a person alone nothing must end: the jobs are flagged, and end cancelled.
    let must_end = context.must_end().now_or_never().is_some();
    match context.time_left() {
        Some(Duration::ZERO) => {
            Outcome::Retry { error: format!("timed out: {why}").into(), retry_in: None }
        }
        _ if must_end => Outcome::Release,
        _ => Outcome::Retry { error: why.into(), retry_in: None },
    }
}
