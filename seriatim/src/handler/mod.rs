//! The interface to users' code: workers, the context of a call, batches, steps, outcomes, failures.

pub(crate) mod answer;
pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod codec;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod env;
pub(crate) mod exhausted;
pub(crate) mod failure;
pub(crate) mod from_payload;
pub(crate) mod middleware;
pub(crate) mod outcomes;
pub(crate) mod retrying;
pub(crate) mod shape;
pub(crate) mod steps;
pub(crate) mod worker;
