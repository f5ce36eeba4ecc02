//! Changes payloads on their way into the store and out of it.

use crate::handler::failure::Failure;
use crate::model::{Job, Payload, Result};

/// Transforms payloads, for example compresses or encrypts them. Clients encode with it, engines decode: give both
/// the same codec.
///
/// The stored form must still be one JSON document, so bytes must be text in it (for example Base64). Payloads merge
/// if their stored forms are equal. A codec that writes equal payloads differently each time, such as encryption with
/// a random nonce, prevents merging.
pub trait Codec: Send + Sync + 'static {
    /// The payload as the store gets it.
    fn encode(&self, payload: &Payload) -> Result<Payload>;

    /// The payload as the handler gets it. A job for which this fails is buried.
    fn decode(&self, stored: &Payload) -> Result<Payload, Failure>;
}

/// A job that the engine pushes, as a client with this codec pushes it.
pub(crate) fn encoded(codec: Option<&dyn Codec>, mut job: Job) -> Result<Job> {
    if let Some(codec) = codec {
        job.payload = codec.encode(&job.payload)?;
    }
    Ok(job)
}
