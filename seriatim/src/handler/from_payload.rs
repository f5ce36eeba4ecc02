//! What handlers read payloads as.

use serde::de::DeserializeOwned;

use crate::model::error::Result;
use crate::model::payload::Payload;

/// What a payload can be read as: any type that serde reads, or [`Payload`] for the bytes as stored.
pub trait FromPayload: Sized + Send + Sync + 'static {
    /// Reads it. The error names the field that cannot be read.
    fn from_payload(payload: &Payload) -> Result<Self>;
}

impl<T: DeserializeOwned + Send + Sync + 'static> FromPayload for T {
    fn from_payload(payload: &Payload) -> Result<Self> {
        payload.decode()
    }
}

impl FromPayload for Payload {
    fn from_payload(payload: &Payload) -> Result<Self> {
        Ok(payload.clone())
    }
}
