//! The values that a handler may return.

use crate::handler::failure::Failure;
use crate::handler::outcomes::Outcomes;
use crate::model::Outcome;

/// A value that a handler may return: nothing, an [`Outcome`] for all lanes, [`Outcomes`] by lane, or a `Result` of one
/// of these. Its error may be any standard error, a string, `anyhow::Error` or `eyre::Report`.
///
/// An `Err` counts as one failure of each turn of the call: its jobs are retried after the queue's backoff.
pub trait Answer {
    /// How the lanes of the call end.
    fn into_result(self) -> Result<Outcomes, Failure>;
}

impl Answer for () {
    fn into_result(self) -> Result<Outcomes, Failure> {
        Ok(Outcomes::new())
    }
}

impl Answer for Outcome {
    fn into_result(self) -> Result<Outcomes, Failure> {
        Ok(Outcomes::all(self))
    }
}

impl Answer for Outcomes {
    fn into_result(self) -> Result<Outcomes, Failure> {
        Ok(self)
    }
}

impl<A: Answer, E: Into<Failure>> Answer for Result<A, E> {
    fn into_result(self) -> Result<Outcomes, Failure> {
        self.map_err(Into::into).and_then(Answer::into_result)
    }
}
