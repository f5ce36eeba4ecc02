//! What happened to jobs: lines of the journal.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use seriatim::{
    JobId,
    store::{NodeId, Token},
};

use crate::protocol::schema::Foreign;
use crate::protocol::value::Time;

/// One event of one job.
#[derive(Clone, Serialize, JsonSchema)]
#[allow(clippy::option_option)] // Absent, or null.
pub(crate) struct Event<'a> {
    pub(crate) at: Time,
    #[serde(rename = "event")]
    pub(crate) what: &'a str,
    #[schemars(with = "Foreign<JobId>")]
    pub(crate) job_id: JobId,
    pub(crate) queue: &'a str,
    /// Events of the journal leave out what is missing; those of the store have null
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null))]
    pub(crate) key: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Foreign<Token>>")]
    pub(crate) token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Foreign<NodeId>>")]
    pub(crate) node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = null))]
    pub(crate) error: Option<Option<&'a str>>,
}

/// A page of the journal, the latest events first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventPage {
    #[schemars(with = "Vec<Event<'static>>")]
    pub(crate) events: Vec<Value>,
    /// The `after` of the next page
    pub(crate) next: Option<String>,
}

/// The events of a job.
#[derive(Serialize, JsonSchema)]
pub(crate) struct JobEvents {
    #[schemars(with = "Foreign<JobId>")]
    pub(crate) job_id: JobId,
    /// Whether the events are from the journal; otherwise from the store, which knows less
    pub(crate) journal: bool,
    /// Oldest first
    #[schemars(with = "Vec<Event<'static>>")]
    pub(crate) events: Vec<Value>,
}
