//! An endpoint: its path, who may, what it takes and answers. Router and documentation are made of
//! the same list, so that neither can name what the other does not.

use std::convert::Infallible;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::Value;
use seriatim::limits::PAGE_ROWS_MAX;
use seriatim::store::{JobView, Page};

use super::audit::Count;
use super::auth::Access;
use super::input::JSON;
use super::limits::{JOB_BYTES, off_thread};
use super::problem::Problem;
use super::schema::Schema;
use super::scope::Reach;
use super::state::Shared;
use crate::protocol::document;

/// One endpoint.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) reach: Reach,
    pub(super) says: &'static str,
    pub(super) query: Vec<Parameter>,
    pub(super) body: Option<Schema>,
    /// The body may also be a stream of these, one on a line.
    pub(super) streams: bool,
    pub(super) answer: Schema,
    /// The media type of the answer.
    pub(super) media: &'static str,
    /// Goes on while the node drains.
    pub(super) outlives_drain: bool,
    /// Programs call it all the time: it changes something, but is nothing that a person did.
    pub(super) is_traffic: bool,
    pub(super) handler: MethodRouter<Shared, Infallible>,
}

/// A parameter of the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) schema: Schema,
    pub(super) required: bool,
}

impl Route {
    pub(super) fn get<H, T>(path: &'static str, access: Access, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        Self::new(Method::GET, path, access, on(MethodFilter::GET, handler))
    }

    pub(super) fn post<H, T>(path: &'static str, access: Access, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        Self::new(Method::POST, path, access, on(MethodFilter::POST, handler))
    }

    pub(super) fn put<H, T>(path: &'static str, access: Access, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        Self::new(Method::PUT, path, access, on(MethodFilter::PUT, handler))
    }

    pub(super) fn delete<H, T>(path: &'static str, access: Access, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        Self::new(Method::DELETE, path, access, on(MethodFilter::DELETE, handler))
    }

    fn new(
        method: Method,
        path: &'static str,
        access: Access,
        handler: MethodRouter<Shared, Infallible>,
    ) -> Self {
        Self {
            method,
            path,
            access,
            reach: Reach::of(path),
            says: "",
            query: Vec::new(),
            body: None,
            streams: false,
            answer: Schema::any(),
            media: JSON,
            outlives_drain: false,
            is_traffic: access == Access::Work,
            handler,
        }
    }

    pub(super) fn says(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }

    pub(super) fn query(mut self, name: &'static str, schema: Schema, says: &'static str) -> Self {
        self.query.push(Parameter { name, says, schema, required: false });
        self
    }

    pub(super) fn needs(mut self, name: &'static str, schema: Schema, says: &'static str) -> Self {
        self.query.push(Parameter { name, says, schema, required: true });
        self
    }

    /// The parameters of a listing that comes in pages.
    pub(super) fn paged(self) -> Self {
        let limit = Schema::within(1, PAGE_ROWS_MAX as u64);
        self.query("limit", limit, "Most rows, up to 1000; by default 50").query(
            "after",
            Schema::text(),
            "Begin behind this: `next` of the page before",
        )
    }

    pub(super) fn body(mut self, schema: Schema) -> Self {
        self.body = Some(schema);
        self
    }

    pub(super) fn streams(mut self) -> Self {
        self.streams = true;
        self
    }

    pub(super) fn answers(mut self, schema: Schema) -> Self {
        self.answer = schema;
        self
    }

    pub(super) fn media(mut self, media: &'static str) -> Self {
        self.media = media;
        self
    }

    /// The handler itself keeps to the queues that a token is limited to.
    pub(super) fn keeps_scope(mut self) -> Self {
        self.reach = Reach::Handler;
        self
    }

    pub(super) fn traffic(mut self) -> Self {
        self.is_traffic = true;
        self
    }

    pub(super) fn outlives_drain(mut self) -> Self {
        self.outlives_drain = true;
        self
    }
}

/// A JSON document as the answer.
pub(super) struct Answer(pub(super) Value);

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let head = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
        let count = self.0.get("count").and_then(Value::as_u64).map(Count);
        let mut response = (StatusCode::OK, head, self.0.to_string()).into_response();
        count.and_then(|count| response.extensions_mut().insert(count));
        response
    }
}

/// A JSON document that was written where it may take a while.
pub(super) struct Written(String);

impl Written {
    /// The document of which `write` knows, about so many bytes.
    pub(super) async fn of<D: std::fmt::Display>(
        bytes: usize,
        write: impl FnOnce() -> D + Send + 'static,
    ) -> Result<Self, Problem> {
        off_thread(bytes, move || Self(write().to_string())).await
    }

    /// The document of a job.
    pub(super) async fn job(job: JobView) -> Result<Self, Problem> {
        Self::of(bytes_of(&job), move || document::job(&job).to_string()).await
    }

    /// The document of a page of jobs.
    pub(super) async fn jobs(page: Page<JobView>) -> Result<Self, Problem> {
        let bytes = page.rows.iter().map(bytes_of).sum();
        Self::of(bytes, move || document::page("jobs", &page, document::job).to_string()).await
    }
}

impl IntoResponse for Written {
    fn into_response(self) -> Response {
        let head = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
        (StatusCode::OK, head, self.0).into_response()
    }
}

/// About as long as its document is.
fn bytes_of(job: &JobView) -> usize {
    JOB_BYTES + job.payload.as_bytes().len() + job.progress.as_ref().map_or(0, |text| text.len())
}

/// The path pattern that a request met, for the counters.
#[derive(Clone, Copy)]
pub(super) struct Met(pub(super) &'static str);

/// The method as a word that outlives the request.
pub(super) fn method_word(request: &Request) -> &'static str {
    match *request.method() {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "OTHER",
    }
}
