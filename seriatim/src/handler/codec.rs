//! Changes payloads on their way into the store and out of it.

use crate::handler::failure::Failure;
use crate::model::payload::Digest;
use crate::model::{Job, Payload, Result};

/// Transforms payloads, for example compresses or encrypts them. Clients encode with it, engines decode: give both
/// the same codec.
///
/// The stored form must still be one JSON document, so bytes must be text in it (for example Base64). Payloads merge
/// if they are equal before the codec, whatever it writes: also with encryption by a random nonce. See
/// [`digest`](Self::digest).
pub trait Codec: Send + Sync + 'static {
    /// The payload as the store gets it.
    fn encode(&self, payload: &Payload) -> Result<Payload>;

    /// The payload as the handler gets it. A job for which this fails is buried.
    fn decode(&self, stored: &Payload) -> Result<Payload, Failure>;

    /// The digest by which the store finds equal payloads, 16 bytes, from the `plain` one of the job's task and its
    /// payload before the codec. It must be the same each time. Default: `plain`.
    ///
    /// A plain hash of a short secret can be guessed from the store: a codec that encrypts overrides it with a keyed
    /// hash of `plain`. While clients use different keys, their equal payloads do not merge.
    fn digest(&self, plain: Digest) -> Digest {
        plain
    }
}

/// Gives a job its stored form.
pub(crate) fn encode(codec: &dyn Codec, job: &mut Job) -> Result<()> {
    // Nothing merges without a key; a callback has its digest.
    if job.key.is_some() || job.digest.is_some() {
        job.digest = Some(codec.digest(job.payload_digest()));
    }
    job.payload = codec.encode(&job.payload)?;
    Ok(())
}

/// A job that the engine pushes, as a client with this codec pushes it.
pub(crate) fn encoded(codec: Option<&dyn Codec>, mut job: Job) -> Result<Job> {
    if let Some(codec) = codec {
        encode(codec, &mut job)?;
    }
    Ok(job)
}
