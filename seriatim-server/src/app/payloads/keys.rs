//! The keys of encrypted payloads: the first one encrypts and makes the digests, all decrypt.

use chacha20poly1305::aead::{Aead, Generate, KeyInit, Payload as Sealed};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use seriatim::store::Digest;
use seriatim::{Error, ErrorKind};

use crate::base::setup_error::SetupError;
use crate::config::KeyConfig;

/// Keeps names and digests apart from whatever else is made of a key.
const NAME_CONTEXT: &str = "seriatim 2026 name of a payload key";
const DIGEST_CONTEXT: &str = "seriatim 2026 digests of encrypted payloads";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// Most keys.
const KEYS_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Keys(Vec<Named>);

struct Named {
    /// Names the key in stored payloads, and reveals nothing about it.
    name: String,
    cipher: XChaCha20Poly1305,
    digests: [u8; KEY_BYTES],
}

impl Keys {
    pub(super) fn read(configured: &[KeyConfig]) -> Result<Self, SetupError> {
        if configured.len() > KEYS_MAX {
            let message = format!("payloads.keys: at most {KEYS_MAX} keys");
            return Err(SetupError::invalid(message));
        }
        let mut keys: Vec<Named> = Vec::new();
        for (i, key) in configured.iter().enumerate() {
            let wrong = |why: String| SetupError::invalid(format!("payloads.keys[{i}]: {why}"));
            let key = Named::new(&key.text().map_err(wrong)?).map_err(wrong)?;
            if let Some(first) = keys.iter().position(|other| other.name == key.name) {
                return Err(wrong(format!("is the same key as payloads.keys[{first}]")));
            }
            keys.push(key);
        }
        Ok(Self(keys))
    }

    /// The name of the key that encrypts.
    pub(super) fn name(&self) -> Option<&str> {
        Some(&self.0.first()?.name)
    }

    /// Encrypts with the first key: nonce and text.
    pub(super) fn seal(&self, header: &str, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let nonce = XNonce::generate();
        let text = Sealed { msg: plain, aad: header.as_bytes() };
        let sealed = self.0.first().and_then(|key| key.cipher.encrypt(&nonce, text).ok());
        // Never stored as it is instead.
        let failed = || Error::new(ErrorKind::Internal, "the payload cannot be encrypted");
        Ok([nonce.as_slice(), &sealed.ok_or_else(failed)?].concat())
    }

    pub(super) fn open(&self, name: &str, header: &str, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let Some(key) = self.0.iter().find(|key| key.name == name) else {
            return Err(format!(
                "its payload is encrypted with key {name:?}, which is not among payloads.keys of this process: add it, then requeue the job"
            ));
        };
        const DAMAGED: &str = "its encrypted payload is damaged: it was changed in the store";
        let (nonce, text) = sealed.split_at_checked(NONCE_BYTES).ok_or(DAMAGED)?;
        let nonce = XNonce::try_from(nonce).map_err(|_| DAMAGED)?;
        let text = Sealed { msg: text, aad: header.as_bytes() };
        key.cipher.decrypt(&nonce, text).map_err(|_| DAMAGED.to_owned())
    }

    /// The digest by which equal payloads merge; it reveals nothing about them. Of the key that encrypts: so it changes
    /// once while a key replaces another, not when one is added behind it or an old one is removed.
    pub(super) fn digest(&self, digest: Digest) -> Digest {
        let Some(key) = self.0.first() else { return digest };
        let mut half = Digest::default();
        half.copy_from_slice(&blake3::keyed_hash(&key.digests, &digest).as_bytes()[..16]);
        half
    }
}

impl Named {
    fn new(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "is not a key: write {} hexadecimal digits, as `openssl rand -hex {KEY_BYTES}` prints them",
                2 * KEY_BYTES
            )
        };
        // The reader of hashes reads 32 bytes in hexadecimal digits.
        let bytes: [u8; KEY_BYTES] = *blake3::Hash::from_hex(text).map_err(|_| wrong())?.as_bytes();
        let name = blake3::Hash::from(blake3::derive_key(NAME_CONTEXT, &bytes)).to_hex();
        Ok(Self {
            name: name[..8].to_owned(),
            cipher: XChaCha20Poly1305::new(&Key::from(bytes)),
            digests: blake3::derive_key(DIGEST_CONTEXT, &bytes),
        })
    }
}
