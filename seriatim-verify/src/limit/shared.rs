//! The common part of all limits.

use seriatim::{Error, ErrorKind};

/// Jobs in a batch: as many as in the engine's largest claim.
pub(super) const BATCH: usize = 1_000;

/// The error for a database error during the measurement.
pub(super) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, format!("the bare limit: {error}")).because(error)
}
