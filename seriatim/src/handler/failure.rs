//! How a handler fails.

use std::error::Error as StdError;
use std::fmt;

/// Why a handler failed: any error, or a text (`Err("no such order".into())`). `?` turns standard errors,
/// `anyhow::Error` and `eyre::Report` into it.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// A failure of the worker itself and not of the jobs: they go back uncounted, and the worker
/// takes no more of them for a while.
#[derive(Debug)]
pub struct Unstartable(pub String);

impl fmt::Display for Unstartable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Unstartable {}

/// A failure after which this process cannot go on. The turns of the call fail as with any other,
/// and the engine stops as when it is asked to: see [`crate::EngineBuilder::on_fatal`].
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

/// Ends a call between two steps, because the node stops: it goes back uncounted.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted between two steps: the node stops")
    }
}

impl StdError for Interrupted {}
