//! How many more bytes a claim may return.

use crate::contract::Claim;
use crate::model::limits::CLAIM_JOB_BYTES;

/// The rest of [`Claim::bytes_max`].
#[derive(Debug)]
pub(in crate::stores) struct Room {
    left: usize,
    /// Whether a turn did not fit.
    pub is_full: bool,
}

impl Room {
    pub(in crate::stores) fn of(request: &Claim) -> Self {
        Self { left: request.bytes_max.unwrap_or(usize::MAX), is_full: false }
    }

    /// No limit but those of each turn.
    pub(in crate::stores) fn unlimited() -> Self {
        Self { left: usize::MAX, is_full: false }
    }

    /// Reserves the bytes of a turn with these payloads. False if they do not fit.
    pub(in crate::stores) fn take(&mut self, payloads: impl Iterator<Item = usize>) -> bool {
        let bytes = payloads.map(|bytes| bytes + CLAIM_JOB_BYTES).sum();
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => self.is_full = true,
        }
        !self.is_full
    }
}
