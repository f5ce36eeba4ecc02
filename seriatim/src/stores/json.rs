//! Values that databases store as JSON.

use serde::Serialize;

use crate::model::{Error, ErrorKind, Result};

/// The value as JSON text. `Internal` if it cannot be serialized.
pub(super) fn json<T: Serialize>(value: &T) -> Result<String> {
    let wrong = |e| Error::new(ErrorKind::Internal, "a value cannot be written as JSON").because(e);
    serde_json::to_string(value).map_err(wrong)
}
