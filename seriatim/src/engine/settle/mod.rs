//! The settler: settles turns in the store, and logs how they ended.

pub(in crate::engine) mod ended;
pub(in crate::engine) mod exhausted;
mod going_on;
pub(in crate::engine) mod settler;
pub(in crate::engine) mod settles;
pub(in crate::engine) mod turn_log;
