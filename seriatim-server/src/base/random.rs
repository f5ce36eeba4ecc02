//! Bytes that nobody can guess.

/// Some from the operating system. Fails with the reason if it has none.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], &'static str> {
    let mut bytes = [0; BYTES];
    let source = rustls::crypto::ring::default_provider().secure_random;
    match source.fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err("the operating system provides no random numbers"),
    }
}
