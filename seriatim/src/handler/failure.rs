//! Failures of handlers.

use std::error::Error as StdError;
use std::fmt;
use std::iter::successors;

/// Why a handler failed: any error, or a string (`Err("no such order".into())`). `?` converts standard errors,
/// `anyhow::Error` and `eyre::Report` into it.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// The error of this type in a failure: the failure itself, or one that it wraps.
pub(crate) fn cause<T: StdError + 'static>(failure: &Failure) -> Option<&T> {
    let outermost = &**failure as &(dyn StdError + 'static);
    successors(Some(outermost), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// A failure of the worker itself, not of the jobs: the jobs are returned uncounted, and this node takes no jobs of
/// the queue for 30 s.
///
/// An error that has it as its [source](StdError::source) counts too. An `anyhow::Error` or `eyre::Report` made
/// directly from it hides it, as does `#[error(transparent)]`: return it as a [`Failure`], or add a context.
#[derive(Debug)]
pub struct Unstartable(pub String);

impl fmt::Display for Unstartable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Unstartable {}

/// A failure after which this process cannot continue. The turns of the call fail as with any other failure, and the
/// engine stops as on request: see [`crate::EngineBuilder::on_fatal`].
///
/// An error that has it as its [source](StdError::source) counts too. An `anyhow::Error` or `eyre::Report` made
/// directly from it hides it, as does `#[error(transparent)]`: return it as a [`Failure`], or add a context.
///
/// ```
/// # use seriatim::{Batch, Fatal};
/// async fn read(files: Batch<String>) -> Result<(), Fatal> {
///     Err(Fatal("the data folder is gone".into()))
/// }
/// ```
#[derive(Debug)]
pub struct Fatal(pub String);

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Fatal {}

/// Ends a call between two steps because the node stops: its jobs are returned uncounted.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted between two steps: the node stops")
    }
}

impl StdError for Interrupted {}
