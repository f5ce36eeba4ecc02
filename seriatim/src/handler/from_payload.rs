//! Payload types of handlers.

use serde::de::DeserializeOwned;

use crate::model::{Payload, Result};

/// A type that payloads can be read as: any type that serde can deserialize, or [`Payload`] for the stored bytes.
pub trait FromPayload: Sized + Send + Sync + 'static {
    /// Reads the payload. The error names the field that cannot be read.
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
