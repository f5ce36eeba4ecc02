//! The exporter's requests, over the HTTP client of this program.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use crate::base::lock::lock;
use crate::base::outgoing::{self, with_causes};

// How long a request may take is the carrier's to say, for all its tries together.

/// How much of an answer is read: it contains at most the number of refused spans.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Why the last request failed, which the exporter does not report.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    pub(super) fn take(&self) -> Option<String> {
        lock(&self.0).take()
    }

    fn set(&self, why: Option<String>) {
        *lock(&self.0) = why;
    }
}

#[derive(Debug)]
pub(super) struct Wire {
    client: outgoing::Client,
    trouble: Trouble,
}

impl Wire {
    pub(super) fn new(is_https: bool, trouble: Trouble) -> Result<Self, String> {
        Ok(Self { client: outgoing::client(is_https)?, trouble })
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let answer = self.client.request(request.map(Full::new)).await;
        let (head, body) = answer.map_err(|error| with_causes(&error))?.into_parts();
        let text = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let text = text.map_err(|error| with_causes(&*error))?.to_bytes();
        Ok(Response::from_parts(head, text))
    }
}

#[async_trait]
impl HttpClient for Wire {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.exchange(request).await;
        self.trouble.set(answer.as_ref().err().cloned());
        Ok(answer?)
    }
}
