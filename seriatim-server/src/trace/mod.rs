//! W3C trace context: carried from the push through the job to the worker, and named in the log.
//!
//! With the feature `otlp` pushes and calls are spans besides, which go to a collector.

mod context;
#[cfg(not(feature = "otlp"))]
#[path = "none.rs"]
mod spans;
#[cfg(feature = "otlp")]
#[path = "otlp/mod.rs"]
mod spans;

pub(crate) use context::{id, id_of_turn, of_job, of_turn};
pub(crate) use spans::{Sending, Traces, of_call};
