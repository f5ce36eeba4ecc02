//! Used by all other parts; imports none of them.

pub(crate) mod glob;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod outgoing;
pub(crate) mod pointer;
pub(crate) mod random;
pub(crate) mod setup_error;
pub(crate) mod text;
pub(crate) mod time;
