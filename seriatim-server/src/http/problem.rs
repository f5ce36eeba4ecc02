//! Errors as RFC 9457 problem documents, with the field named.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use seriatim::store::{JobState, LaneState};
use seriatim::text::cut_middle;
use seriatim::{Error, ErrorKind, JobId};

use crate::app::error as app;
use crate::protocol::document::Problem as Document;

/// The media type of a problem document.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";
/// When to try again, if nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Longest value that a problem quotes, and longest field that it names, in bytes.
pub(super) const QUOTED_BYTES_MAX: usize = 100;
/// Longest detail, in bytes: the names of all fields of a job fit in.
const DETAIL_BYTES_MAX: usize = 4 << 10;

/// The words of a problem, which travel with its answer.
#[derive(Clone, Debug)]
pub(super) struct Told(pub(super) String);

/// The result of a request, or of a part of it.
pub(super) type Result<T, E = Problem> = std::result::Result<T, E>;

/// Why a request was not carried out.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    document: Box<Document>,
    /// What pages say instead of the explanation, which is for programs.
    on_pages: Option<String>,
    retry_after: Duration,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let document = Document {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: detail.into(),
            ..Document::default()
        };
        Self { status, document: Box::new(document), on_pages: None, retry_after: RETRY_AFTER }
    }

    /// A wrong value; `field` may be empty.
    pub(super) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail).about(field)
    }

    /// The explanation.
    pub(super) fn into_detail(self) -> String {
        self.document.detail
    }

    pub(super) fn missing(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Names the field that is wrong; none if empty.
    pub(super) fn about(mut self, field: impl Into<String>) -> Self {
        self.document.field = Some(field.into()).filter(|field| !field.is_empty());
        self
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

    /// The explanation for people with browsers.
    pub(super) fn on_pages(mut self, said: impl Into<String>) -> Self {
        self.on_pages = Some(said.into());
        self
    }

    /// When to try again.
    pub(super) fn after(mut self, wait: Duration) -> Self {
        self.retry_after = wait;
        self
    }

    /// The line of a stream that is wrong.
    pub(super) fn at_line(mut self, line: u64) -> Self {
        self.document.line = Some(line);
        self
    }

    /// The line from which to send a stream again.
    pub(super) fn go_on_from(mut self, line: u64) -> Self {
        self.document.go_on_from_line = Some(line);
        self
    }

    /// Jobs of a stream that were pushed before.
    pub(super) fn having_pushed(mut self, jobs: u64) -> Self {
        self.document.pushed = Some(jobs);
        self
    }

    /// Says that this job was pushed: what failed is the wait for its end. A 429 becomes a 503: clients repeat a 429
    /// always, and so would push the job twice.
    pub(super) fn of_job(mut self, id: JobId) -> Self {
        let why = &self.document.detail;
        let detail = format!("job {id} is pushed, but cannot be waited for: {why}");
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            return Self::unavailable(detail).after(self.retry_after);
        }
        self.document.detail = detail;
        self
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The field that is wrong.
    pub(super) fn field(&self) -> Option<&str> {
        self.document.field.as_deref()
    }

    /// Puts a name in front of the field: `results[3]` + `lane`.
    pub(super) fn inside(mut self, outer: &str) -> Self {
        self.document.field = Some(match self.document.field {
            None => outer.to_owned(),
            Some(inner) if inner.starts_with('[') => format!("{outer}{inner}"),
            Some(inner) => format!("{outer}.{inner}"),
        });
        self
    }

    fn of_kind(kind: ErrorKind, detail: String, field: &str) -> Self {
        let status = StatusCode::from_u16(app::status(kind));
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::warn!(kind = kind.as_str(), "a request failed: {detail}");
        }
        Self::new(status, detail).about(field)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        // The cause of what the client did wrong helps it; that of our own trouble is for the log.
        let detail = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Conflict | ErrorKind::NotFound => {
                let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})"));
                error.message().to_owned() + &cause.unwrap_or_default()
            }
            _ => error.message().to_owned(),
        };
        Self::of_kind(error.kind(), detail, error.field().unwrap_or_default())
    }
}

/// With the endpoint that helps; pages say what is wrong, and have links.
impl From<app::Error> for Problem {
    fn from(error: app::Error) -> Self {
        use app::Error as E;
        let (field, detail) = match &error {
            E::NoQueue { .. } => {
                ("", format!("{error}: GET /api/v1/queues lists them; a push creates one"))
            }
            E::Claimed { .. } => {
                let advice = "cancel its jobs, release its claim, or retry when its turn has ended";
                ("", format!("{error}: {advice}"))
            }
            E::NoNode(_) => ("", format!("{error}: GET /api/v1/nodes lists them")),
            E::NotWaiting { queue, state: JobState::Dead, .. } => {
                ("", format!("{error}: requeue it with POST /api/v1/queues/{queue}/morgue/requeue"))
            }
            E::StandsStill { queue, key, lane, state } => {
                let action = if *state == LaneState::Paused { "resume" } else { "retry" };
                let which = match key {
                    Some(key) => {
                        let key: String = form_urlencoded::byte_serialize(key.as_bytes()).collect();
                        format!("key={key}")
                    }
                    None => format!("lane={lane}"),
                };
                let path = format!("/api/v1/queues/{queue}/lane/{action}?{which}");
                ("", format!("{error}: resume it with POST {path}"))
            }
            E::Cursor => ("after", "use `next` of the page before".to_owned()),
            E::Unranged { field } => (*field, "needs order=key, run_at or retry_count".to_owned()),
            E::Bound { field, why } => (*field, why.clone()),
            E::Unconfirmed { count, .. } => ("confirm", format!("{error}: add ?confirm={count}")),
            E::TooManyOperations { .. } => {
                ("", format!("{error} with POST /api/v1/operations/ID/stop"))
            }
            E::Store(_)
            | E::NoOperation(_)
            | E::NoJob { .. }
            | E::ForeignJob(_)
            | E::NoLane { .. }
            | E::NotClaimed
            | E::NoLaneFree { .. }
            | E::SeveralNodes { .. }
            | E::NotDead { .. }
            | E::NotWaiting { .. } => ("", error.to_string()),
        };
        match error {
            E::Store(error) => error.into(),
            E::Claimed { .. } | E::Cursor | E::Unranged { .. } | E::Bound { .. } => {
                Self::of_kind(error.kind(), detail, field)
            }
            error => Self::of_kind(error.kind(), detail, field).on_pages(error.to_string()),
        }
    }
}

/// A message in which no quoted value is long: it would come back as long as it was sent.
fn shortened(message: &str) -> String {
    let (mut told, mut rest) = (String::new(), message);
    while let Some(at) = rest.find(['"', '`']) {
        let (before, quoted) = rest.split_at(at + 1);
        let Some(length) = quoted_length(quoted, rest.as_bytes()[at]) else { break };
        told.push_str(before);
        told.push_str(&cut_middle(&quoted[..length], QUOTED_BYTES_MAX));
        told.push_str(&quoted[length..=length]);
        rest = &quoted[length + 1..];
    }
    told.push_str(rest);
    cut_middle(&told, DETAIL_BYTES_MAX).into_owned()
}

/// Up to the mark that ends it; that may be escaped between marks of the same kind as in Rust.
fn quoted_length(text: &str, mark: u8) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == mark && !is_escaped;
        is_escaped = mark == b'"' && byte == b'\\' && !is_escaped;
        ends
    })
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let document = &mut self.document;
        document.detail = shortened(&document.detail);
        document.field =
            document.field.take().map(|field| cut_middle(&field, QUOTED_BYTES_MAX).into_owned());
        // Texts and numbers only: writing them cannot fail.
        let text = serde_json::to_string(&self.document).unwrap_or_default();
        let mut response = (self.status, text).into_response();
        let told = self.on_pages.unwrap_or_else(|| self.document.detail.clone());
        response.extensions_mut().insert(Told(told));
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
    fn what_was_sent_comes_back_in_short() {
        let long = "x".repeat(900_000);
        for (message, kept) in [
            (
                format!("{:?} is not a duration: write 10s", long.clone() + "\"\\"),
                " is not a duration: write 10s",
            ),
            (format!("unknown field `{long}`, expected `a` or `b`"), ", expected `a` or `b`"),
            (format!("unknown field `a`b{long}`, expected `a`"), ", expected `a`"),
            (format!("nothing at {long}"), "nothing at x"),
        ] {
            let told = shortened(&message);
            assert!(told.contains(kept) && told.len() <= DETAIL_BYTES_MAX, "{told}");
        }
        let short = "queue \"orders\": a\\ `b`";
        assert_eq!(shortened(short), short);
    }

    #[test]
    fn clients_are_told_of_endpoints_and_not_of_commands() {
        let (queue, key) = ("orders", || "k".to_owned());
        let name = || queue.to_owned();
        let job = seriatim::JobId::new(seriatim::Timestamp::default(), 1, 0, 7);
        let (lane, state) = ("1-0-7".parse().unwrap(), LaneState::Held);
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
            app::Error::StandsStill { queue: queue.into(), key: Some(key()), lane, state },
            app::Error::Cursor,
            app::Error::Unranged { field: "from" },
            app::Error::Bound { field: "to", why: name() },
        ];
        for error in errors {
            let detail = Problem::from(error).document.detail;
            assert!(!detail.contains("`seriatim") && !detail.contains("--"), "{detail}");
        }
    }

    #[test]
    fn a_lane_that_stands_still_is_answered_with_the_request_that_resumes_it() {
        for (state, action) in [(LaneState::Paused, "resume"), (LaneState::Held, "retry")] {
            for (key, which) in [(Some("a&b c"), "key=a%26b+c"), (None, "lane=1-0-7")] {
                let (queue, key) = ("orders".into(), key.map(str::to_owned));
                let lane = "1-0-7".parse().unwrap();
                let problem = Problem::from(app::Error::StandsStill { queue, key, lane, state });
                let advice = format!("POST /api/v1/queues/orders/lane/{action}?{which}");
                assert!(problem.document.detail.ends_with(&advice), "{problem:?}");
            }
        }
    }
}
