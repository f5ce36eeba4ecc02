//! Payloads of jobs: a JSON document, or a codec's bytes.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::canonical::canonical;
use crate::model::error::{Error, Result};
use crate::model::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};

/// The body of a job: data, never evaluated. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Bytes);

impl Payload {
    /// The JSON of `value`. `Invalid` if it cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        serde_json::to_vec(value)
            .map(|text| Self(text.into()))
            .map_err(|e| Error::invalid("payload", "cannot be written as JSON").because(e))
    }

    /// A payload from JSON text: one JSON document, otherwise `Invalid`.
    pub fn from_json_text(text: &str) -> Result<Self> {
        let raw: &RawValue = serde_json::from_str(text)
            .map_err(|e| Error::invalid("payload", "is not a JSON document").because(e))?;
        Ok(Self(Bytes::copy_from_slice(raw.get().as_bytes())))
    }

    /// A payload from a parsed JSON document, without a copy.
    pub fn from_raw(document: Box<RawValue>) -> Self {
        Self(Box::<str>::from(document).into_boxed_bytes().into())
    }

    /// A payload from bytes as they are: from a codec or a store.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The stored bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The stored bytes, sharing the buffer.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Reads the JSON into `T`. The error names the field: `payload.lines[2].price: …`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        // Tracking the path costs time, so a payload is read again for it only after a failure.
        serde_json::from_slice(&self.0).map_err(|error| self.explain::<T>(error))
    }

    fn explain<T: DeserializeOwned>(&self, error: serde_json::Error) -> Error {
        let mut reader = serde_json::Deserializer::from_slice(&self.0);
        let field = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(traced) if traced.path().iter().next().is_some() => {
                // An index needs no dot: `[2]`; a name does.
                let path = traced.path().to_string();
                let dot = if path.starts_with('[') { "" } else { "." };
                format!("payload{dot}{path}")
            }
            _ => "payload".to_owned(),
        };
        Error::invalid(field, "cannot be decoded").because(error)
    }

    /// The JSON value; bytes that are not JSON become a string of their lossy UTF-8.
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.0)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.0).into_owned()))
    }

    /// Refuses a payload over [`PAYLOAD_BYTES_MAX`], and JSON deeper than [`PAYLOAD_DEPTH_MAX`].
    pub fn validate(&self) -> Result<()> {
        if self.0.len() <= PAYLOAD_BYTES_MAX {
            if !is_too_deep(&self.0) {
                return Ok(());
            }
            let message = format!("is nested more than {PAYLOAD_DEPTH_MAX} deep");
            return Err(Error::invalid("payload", message));
        }
        let message = format!(
            "has {} bytes; at most {PAYLOAD_BYTES_MAX} are taken (put large data elsewhere and push a reference)",
            self.0.len()
        );
        Err(Error::invalid("payload", message))
    }
}

/// Whether it is JSON that some workers cannot read. A codec's bytes may look like it at first.
fn is_too_deep(payload: &[u8]) -> bool {
    // Most payloads have fewer brackets at all, and it is cheap to count them.
    let mut opened = 0_usize;
    for &byte in payload {
        opened += usize::from(matches!(byte, b'[' | b'{'));
    }
    if opened <= PAYLOAD_DEPTH_MAX {
        return false;
    }
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for &byte in payload {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > PAYLOAD_DEPTH_MAX {
            return serde_json::from_slice::<IgnoredAny>(payload).is_ok();
        }
    }
    false
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Identifies equal payloads: half of a BLAKE3 hash of the task and the canonical payload.
pub type Digest = [u8; 16];

/// The digest of a job's task and payload. Canonical means: sorted object keys, no white space, the last of repeated
/// keys. Bytes that are not JSON are hashed as they are.
pub fn digest(task: Option<&str>, payload: &Payload) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(task.map_or(u64::MAX, |t| t.len() as u64)).to_le_bytes());
    hasher.update(task.unwrap_or("").as_bytes());
    match canonical(payload.as_bytes()) {
        Some(canonical) => hasher.update(&canonical),
        None => hasher.update(payload.as_bytes()),
    };
    let mut half = Digest::default();
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        format!(r#"{}"\"]"{}"#, "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn json_that_is_nested_deeper_than_the_limit_is_refused() {
        let checked = |text: &str| Payload::from_json_text(text).unwrap().validate();
        assert!(checked(&nested(PAYLOAD_DEPTH_MAX)).is_ok());
        for depth in [PAYLOAD_DEPTH_MAX + 1, 100_000] {
            let error = checked(&nested(depth)).unwrap_err();
            assert_eq!(error.field(), Some("payload"));
            assert!(error.message().contains("90 deep"), "{error}");
        }
        // Brackets in texts, and those that are closed, are not deep.
        let flat = format!(r#"["{}",{}1]"#, "[".repeat(1_000), "[],".repeat(1_000));
        assert!(checked(&flat).is_ok());
    }

    #[test]
    fn bytes_of_a_codec_are_not_judged_as_json() {
        assert!(Payload::from_bytes(vec![b'['; 1_000]).validate().is_ok());
    }
}
