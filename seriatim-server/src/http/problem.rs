//! Errors as RFC 9457 problem documents, with the field named.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use seriatim::store::{JobState, LaneState};
use seriatim::{Error, ErrorKind};

use crate::app::error as app;

/// What a problem document is called in `Content-Type`.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";
/// After what another try is worth it, where nothing else is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a request was not carried out.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    field: Option<String>,
    more: Map<String, Value>,
    retry_after: Duration,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            field: None,
            more: Map::new(),
            retry_after: RETRY_AFTER,
        }
    }

    /// A wrong value; `field` is empty where none is to blame.
    pub(super) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let field = Some(field.into()).filter(|field| !field.is_empty());
        Self { field, ..Self::new(StatusCode::BAD_REQUEST, detail) }
    }

    pub(super) fn missing(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Names the field that is wrong.
    pub(super) fn about(self, field: &str) -> Self {
        Self { field: Some(field.to_owned()), ..self }
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(super) fn too_large(bytes_max: usize) -> Self {
        let detail = format!("the body is larger than {bytes_max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    pub(super) fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// Another try is worth it after so long.
    pub(super) fn after(mut self, wait: Duration) -> Self {
        self.retry_after = wait;
        self
    }

    /// Says more, under a name of its own.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The field that is wrong.
    #[cfg(test)]
    pub(super) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// Puts a name in front of the field: `results[3]` + `lane`.
    pub(super) fn inside(mut self, outer: &str) -> Self {
        self.field = Some(match self.field {
            None => outer.to_owned(),
            Some(inner) if inner.starts_with('[') => format!("{outer}{inner}"),
            Some(inner) => format!("{outer}.{inner}"),
        });
        self
    }

    fn of_kind(kind: ErrorKind, detail: String, field: Option<String>) -> Self {
        let status = match kind {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict | ErrorKind::NodeGone => StatusCode::CONFLICT,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::ReadOnly => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            tracing::warn!(kind = kind.as_str(), "a request failed: {detail}");
        }
        Self { field, ..Self::new(status, detail) }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let field = error.field().map(str::to_owned);
        // The cause of what the client did wrong helps it; that of our own trouble is for the log.
        let detail = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Conflict | ErrorKind::NotFound => {
                let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})"));
                error.message().to_owned() + &cause.unwrap_or_default()
            }
            _ => error.message().to_owned(),
        };
        Self::of_kind(error.kind(), detail, field)
    }
}

/// With the endpoint that helps.
impl From<app::Error> for Problem {
    fn from(error: app::Error) -> Self {
        use app::Error as E;
        let (field, detail) = match &error {
            E::NoQueue { .. } => {
                ("", format!("{error}: GET /api/v1/queues lists them; a push creates one"))
            }
            E::Claimed { .. } => {
                let advice =
                    "cancel its jobs, release its claim, or repeat this when its turn has ended";
                ("", format!("{error}: {advice}"))
            }
            E::NoNode(_) => ("", format!("{error}: GET /api/v1/nodes lists them")),
            E::NotWaiting { queue, state: JobState::Dead, .. } => {
                ("", format!("{error}: POST /api/v1/queues/{queue}/morgue/requeue sends it back"))
            }
            E::StandsStill { queue, state, .. } => {
                let action = if *state == LaneState::Paused { "resume" } else { "retry" };
                let path = format!("/api/v1/queues/{queue}/lane/{action}");
                ("", format!("{error}: POST {path} lets it go on"))
            }
            E::Cursor => ("after", "write what `next` of the page before says".to_owned()),
            E::Unranged { field } => (*field, "needs order=key, run_at or retry_count".to_owned()),
            E::Bound { field, why } => (*field, why.clone()),
            E::Store(_)
            | E::NoJob { .. }
            | E::ForeignJob(_)
            | E::NoLane { .. }
            | E::NotClaimed
            | E::NoLaneFree { .. }
            | E::SeveralNodes { .. }
            | E::NotWaiting { .. } => ("", error.to_string()),
        };
        let field = Some(field.to_owned()).filter(|field| !field.is_empty());
        match error {
            E::Store(error) => error.into(),
            error => Self::of_kind(error.kind(), detail, field),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut document = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Value::Object(fields) = &mut document {
            fields.extend(self.field.map(|field| ("field".to_owned(), field.into())));
            fields.extend(self.more);
        }
        let mut response = (self.status, document.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                let seconds = self.retry_after.as_secs_f64().ceil() as u64;
                headers.insert(header::RETRY_AFTER, seconds.into());
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_of_endpoints_and_not_of_commands() {
        let (queue, key) = ("orders", || "k".to_owned());
        let name = || queue.to_owned();
        let job = seriatim::JobId::new(seriatim::Timestamp::default(), 1, 0, 7);
        let errors = [
            app::Error::NoQueue { name: name(), near: String::new() },
            app::Error::ForeignJob(job),
            app::Error::NoLane { queue: name(), key: key() },
            app::Error::NoNode(name()),
            app::Error::Claimed { key: key() },
            app::Error::NotClaimed,
            app::Error::NoLaneFree { queue: name() },
            app::Error::SeveralNodes { name: name(), ids: vec![key(), name()] },
            app::Error::NotWaiting { job, queue: queue.into(), state: JobState::Dead },
            app::Error::StandsStill { queue: queue.into(), key: key(), state: LaneState::Held },
            app::Error::Cursor,
            app::Error::Unranged { field: "from" },
            app::Error::Bound { field: "to", why: name() },
        ];
        for error in errors {
            let detail = Problem::from(error).detail;
            assert!(!detail.contains("`seriatim") && !detail.contains("--"), "{detail}");
        }
    }
}
