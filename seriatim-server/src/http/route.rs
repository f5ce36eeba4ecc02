//! An endpoint: its path, its roles, its request and its answer. The router and the documentation are made from
//! the same list.

use std::convert::Infallible;
use std::marker::PhantomData;

use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::JsonSchema;
use serde::Serialize;
use seriatim::store::{JobView, Page};

use super::audit::{Count, Named};
use super::input::JSON;
use super::limits::{JOB_BYTES, off_thread};
use super::schema::make;
use super::scope::Reach;
use super::signature::{Signature, Signed};
use super::{Access, Result, Shared};
use crate::protocol::document::{BulkDone, Done, Job, Jobs};

/// Where the operation is that does the rest of an answer.
pub(super) const OPERATIONS_PATH: &str = "/api/v1/operations";

/// The roles of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// Programs, which send a token with each request.
    Programs,
    /// People with browsers, who have logged in. Not a part of the documented API.
    People,
}

/// One endpoint.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) door: Door,
    pub(super) reach: Reach,
    pub(super) says: &'static str,
    pub(super) signature: Signature,
    /// The body may also be a stream of jobs, one per line.
    pub(super) streams: bool,
    /// The media type of the answer.
    pub(super) media: &'static str,
    /// Still answers while the node drains.
    pub(super) outlives_drain: bool,
    /// Called by programs all the time, and so not audited by default.
    pub(super) is_traffic: bool,
    /// It may answer that an operation does the rest.
    pub(super) goes_on: bool,
    pub(super) handler: MethodRouter<Shared, Infallible>,
}

macro_rules! method {
    ($name:ident $method:ident) => {
        pub(super) fn $name<H, T, M>(path: &'static str, access: Access, handler: H) -> Self
        where
            H: Handler<T, Shared> + Signed<M>,
            T: 'static,
        {
            let handler = on(MethodFilter::$method, handler);
            Self::new(Method::$method, path, access, H::signature(), handler)
        }
    };
}

macro_rules! people {
    ($name:ident $method:ident $says:literal) => {
        #[doc = $says]
        pub(super) fn $name<H, T>(path: &'static str, access: Access, handler: H) -> Self
        where
            H: Handler<T, Shared>,
            T: 'static,
        {
            let handler = on(MethodFilter::$method, handler);
            Self::of_people(Method::$method, path, access, handler)
        }
    };
}

impl Route {
    method!(get GET);
    method!(post POST);
    method!(put PUT);
    method!(delete DELETE);

    people!(page GET "A page.");
    people!(form POST "What a form of a page does.");

    /// Its handler keeps to the visitor's queues: pages show those.
    fn of_people(
        method: Method,
        path: &'static str,
        access: Access,
        handler: MethodRouter<Shared, Infallible>,
    ) -> Self {
        let signature = Signature::default();
        Self { door: Door::People, ..Self::new(method, path, access, signature, handler) }
            .keeps_scope()
    }

    fn new(
        method: Method,
        path: &'static str,
        access: Access,
        signature: Signature,
        handler: MethodRouter<Shared, Infallible>,
    ) -> Self {
        Self {
            method,
            path,
            access,
            door: Door::Programs,
            reach: Reach::of(path),
            says: "",
            signature,
            streams: false,
            media: JSON,
            outlives_drain: false,
            is_traffic: access == Access::Work,
            goes_on: false,
            handler,
        }
    }

    pub(super) fn says(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }

    /// For handlers that read the body themselves.
    pub(super) fn reads<T: JsonSchema>(mut self) -> Self {
        self.signature.body = Some(make::<T>());
        self
    }

    pub(super) fn streams(mut self) -> Self {
        self.streams = true;
        self
    }

    /// For handlers that write the answer themselves.
    pub(super) fn answers<T: JsonSchema>(mut self) -> Self {
        self.signature.answer = Some(make::<T>());
        self
    }

    pub(super) fn media(mut self, media: &'static str) -> Self {
        self.media = media;
        self.answers::<String>()
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

    pub(super) fn goes_on(mut self) -> Self {
        self.goes_on = true;
        self
    }

    pub(super) fn outlives_drain(mut self) -> Self {
        self.outlives_drain = true;
        self
    }
}

/// An answer: a JSON document of this type.
pub(super) struct Answer<T> {
    text: String,
    status: StatusCode,
    /// Where to see how it goes on.
    place: Option<HeaderValue>,
    count: Option<Count>,
    named: Option<Named>,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize + 'static> Answer<T> {
    pub(super) fn of(document: &T) -> Self {
        // Texts and numbers only: writing them cannot fail.
        let text = serde_json::to_string(document).unwrap_or_default();
        let (status, of) = (StatusCode::OK, PhantomData);
        Self { text, status, place: None, count: None, named: None, of }
    }

    /// Writes a document of about this many bytes where it delays no other request.
    pub(super) async fn written(
        bytes: usize,
        document: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self> {
        off_thread(bytes, move || Self::of(&document())).await
    }

    /// With the number for the audit log.
    pub(super) fn counting(self, count: u64) -> Self {
        Self { count: Some(Count(count)), ..self }
    }

    /// With what the audit log finds it by.
    pub(super) fn on(self, (name, value): (&'static str, String)) -> Self {
        Self { named: Some(Named(name, value)), ..self }
    }
}

impl Answer<Done> {
    pub(super) fn done(count: u64) -> Self {
        Self::of(&Done { count }).counting(count)
    }
}

impl Answer<BulkDone> {
    /// This is all.
    pub(super) fn bulk(count: u64) -> Self {
        Self::of(&BulkDone { count, more: false, operation: None }).counting(count)
    }

    /// There is more, which this operation does, if any does.
    pub(super) fn in_part(app: &Shared, count: u64, operation: Option<String>) -> Self {
        let place = operation.as_ref();
        let place = place.map(|id| format!("{}{OPERATIONS_PATH}/{id}", app.base_path));
        let place = place.and_then(|place| HeaderValue::from_str(&place).ok());
        let answer = Self::of(&BulkDone { count, more: true, operation }).counting(count);
        Self { status: StatusCode::ACCEPTED, place, ..answer }
    }
}

impl Answer<Job> {
    pub(super) async fn job(job: JobView) -> Result<Self> {
        Self::written(bytes_of(&job), move || job.into()).await
    }
}

impl Answer<Jobs> {
    pub(super) async fn jobs(page: Page<JobView>) -> Result<Self> {
        let bytes = page.rows.iter().map(bytes_of).sum();
        Self::written(bytes, move || page.into()).await
    }
}

impl<T> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let head = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
        let mut response = (self.status, head, self.text).into_response();
        self.place.and_then(|place| response.headers_mut().insert(header::LOCATION, place));
        self.count.and_then(|count| response.extensions_mut().insert(count));
        self.named.and_then(|named| response.extensions_mut().insert(named));
        response
    }
}

/// About as long as its document is.
pub(super) fn bytes_of(job: &JobView) -> usize {
    JOB_BYTES + job.bytes()
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
