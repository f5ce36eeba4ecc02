//! What payloads of Lowkiq become here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::value::RawValue;
use seriatim::Payload;
use sha2::Sha256;

use super::marshal;
use crate::base::setup_error::SetupError;
use crate::config::BridgeConfig;

/// What a signature is about: none of another kind or version fits.
const SIGNED: &str = "seriatim lowkiq 1";
/// The first byte of all that Marshal wrote, and of no JSON.
const MARSHAL: u8 = 4;
/// Shortest key of signatures, in bytes.
const KEY_BYTES_MIN: usize = 32;

#[derive(Clone)]
pub(super) enum Form {
    /// In an envelope, with a signature that a worker checks before it reads it.
    Signed(Box<Hmac<Sha256>>),
    /// As JSON, if it is plain data.
    Plain,
}

impl Form {
    /// The form of a bridge's payloads; none for Sidekiq's. An error if the key of its signatures is missing.
    pub(super) fn of(bridge: &BridgeConfig) -> Result<Option<Self>, SetupError> {
        let Some(lowkiq) = bridge.lowkiq() else { return Ok(None) };
        let Some(name) = lowkiq.mac_key_env else { return Ok(Some(Self::Plain)) };
        let key = std::env::var(name).unwrap_or_default();
        let wrong = |what: &str| {
            let bridge = &bridge.name;
            SetupError::invalid(format!(
                "bridge {bridge:?}: variable {name} {what}: it must hold the signing key, as `openssl rand -base64 32` prints one; give Ruby workers the same key"
            ))
        };
        match key.trim() {
            "" => Err(wrong("is not set, or is not text")),
            short if short.len() < KEY_BYTES_MIN => {
                Err(wrong(&format!("has {} bytes: at least {KEY_BYTES_MIN}", short.len())))
            }
            key => Self::signed(key.as_bytes()).map(Some).map_err(|error| wrong(&error)),
        }
    }

    pub(super) fn signed(key: &[u8]) -> Result<Self, String> {
        let mac = Hmac::new_from_slice(key).map_err(|error| error.to_string())?;
        Ok(Self::Signed(Box::new(mac)))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Signed(_) => "marshal",
            Self::Plain => "plain",
        }
    }

    /// The payload of an id of a queue. The error says why there is none.
    pub(super) fn payload(&self, queue: &str, id: &str, bytes: &[u8]) -> Result<Payload, String> {
        let text = match self {
            // Whoever writes JSON in Lowkiq's place needs no decoder.
            Self::Plain if bytes.first() != Some(&MARSHAL) => json(bytes)?,
            Self::Plain => marshal::to_json(bytes)?,
            Self::Signed(key) => {
                let mut mac = (**key).clone();
                for part in [SIGNED, queue, id] {
                    mac.update(part.as_bytes());
                    mac.update(&[0]);
                }
                mac.update(bytes);
                let mac = STANDARD.encode(mac.finalize().into_bytes());
                format!("{{\"$marshal\":\"{}\",\"mac\":\"{mac}\"}}", STANDARD.encode(bytes))
            }
        };
        Ok(Payload::from_bytes(text.into_bytes()))
    }
}

fn json(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is neither Marshal's nor UTF-8")?;
    let whole: &RawValue = serde_json::from_str(text)
        .map_err(|error| format!("is neither Marshal's nor JSON: {error}"))?;
    Ok(whole.get().to_owned())
}
