//! Changes payloads on their way into the store and out of it.

use crate::handler::failure::Failure;
use crate::model::payload::Digest;
use crate::model::{Job, Payload, Result};

/// Transforms payloads, for example compresses or encrypts them. Clients encode with it, engines decode: give both
/// the same codec.
///
/// The stored form must still be one JSON document, so bytes must be text in it (for example Base64).
///
/// Payloads merge if they were equal before the codec, even with a random nonce: see [`digest`](Self::digest). A job
/// that was edited, or pushed while its queue did not compare payloads, is compared by its stored form.
pub trait Codec: Send + Sync + 'static {
    /// The payload as the store gets it.
    fn encode(&self, payload: &Payload) -> Result<Payload>;

    /// The payload as the handler gets it. A job for which this fails is buried.
    fn decode(&self, stored: &Payload) -> Result<Payload, Failure>;

    /// The digest by which equal payloads are found. `plain` is that of the task and the payload before the codec.
    /// Equal input must give equal output. Return `plain`, or, if the codec encrypts, a keyed hash of it: a plain hash
    /// of a short secret can be guessed from the store.
    ///
    /// If the key of the digest changes, equal payloads from before and after do not merge, and a repeated
    /// [`open_batch`](crate::Client::open_batch) of an earlier batch is a `Conflict`.
    fn digest(&self, plain: Digest) -> Digest;
}

/// Gives a job its stored form. `may_merge`: whether its queue may compare payloads.
pub(crate) fn encode(codec: &dyn Codec, job: &mut Job, may_merge: bool) -> Result<()> {
    // Nothing merges without a key; a callback has its digest.
    if (may_merge && job.key.is_some()) || job.digest.is_some() {
        job.digest = Some(codec.digest(job.payload_digest()));
    }
    job.payload = codec.encode(&job.payload)?;
    Ok(())
}

/// A job that the engine pushes, as a client with this codec pushes it.
pub(crate) fn encoded(codec: Option<&dyn Codec>, mut job: Job) -> Result<Job> {
    if let Some(codec) = codec {
        encode(codec, &mut job, true)?;
    }
    Ok(job)
}
