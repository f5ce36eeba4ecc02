//! Errors of the HTTP API.

use schemars::JsonSchema;
use serde::Serialize;

/// A problem document (RFC 9457).
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Problem {
    pub(crate) r#type: &'static str,
    pub(crate) title: &'static str,
    pub(crate) status: u16,
    pub(crate) detail: String,
    /// The wrong field of the request
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// The wrong line of a stream, from 1
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    /// The line from which to send a stream again
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) go_on_from_line: Option<u64>,
    /// Jobs of a stream that were pushed before the error
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pushed: Option<u64>,
}
