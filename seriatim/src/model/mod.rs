//! Jobs, queues, lanes and turns, and the rules for them. Pure: no I/O.

pub(crate) mod batch;
pub(crate) mod build;
pub(crate) mod canonical;
pub(crate) mod clock;
pub(crate) mod cursor;
pub mod duration;
pub(crate) mod error;
pub(crate) mod flow;
pub(crate) mod held;
pub(crate) mod id;
pub(crate) mod job;
pub mod limits;
pub mod names;
mod numbers;
pub(crate) mod past;
pub(crate) mod payload;
pub(crate) mod queue;
pub(crate) mod rate;
pub(crate) mod report;
pub(crate) mod result;
pub(crate) mod retry;
pub(crate) mod settle;
pub mod text;
pub(crate) mod turn;
pub(crate) mod window;
