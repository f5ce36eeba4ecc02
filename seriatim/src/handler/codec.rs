//! How payloads are changed on their way into the store and out of it.

use crate::handler::failure::Failure;
use crate::model::error::Result;
use crate::model::payload::Payload;

/// Compresses or encrypts payloads, or whatever else they need. Clients encode with it, engines
/// decode: give both the same.
///
/// What is stored is still one JSON document, so bytes stand in it as text (Base64, say). Payloads
/// merge when what is stored is equal: a codec that writes the same payload differently each time,
/// as encryption with a random nonce does, keeps them apart.
pub trait Codec: Send + Sync + 'static {
    /// The payload as it is stored.
    fn encode(&self, payload: &Payload) -> Result<Payload>;

    /// The payload as the handler gets it. Jobs of which this fails are buried.
    fn decode(&self, stored: &Payload) -> Result<Payload, Failure>;
}
