//! The span of a request that pushes.

use std::sync::Mutex;

use axum::http::StatusCode;
use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};
use seriatim::JobId;
use seriatim::store::{PushStatus, Pushed};

use super::attribute;
use super::span_context::{context_of, traceparent_of};

use crate::base::lock::lock;

/// A request that pushes; its span ends with it.
pub(crate) struct Sending {
    /// What the jobs carry.
    traceparent: Option<String>,
    span: Option<Mutex<Producing>>,
}

struct Producing {
    span: Span,
    jobs: i64,
    last: Option<JobId>,
}

impl Sending {
    pub(super) fn begin(tracer: &SdkTracer, queue: &str, context: Option<&str>) -> Self {
        let parent = match context.and_then(context_of) {
            Some(context) => Context::new().with_remote_span_context(context),
            None => Context::new(),
        };
        let attributes = vec![
            KeyValue::new(attribute::SYSTEM, attribute::SYSTEM_NAME),
            KeyValue::new(attribute::DESTINATION, queue.to_owned()),
            KeyValue::new(attribute::OPERATION_NAME, "push"),
            KeyValue::new(attribute::OPERATION_TYPE, "send"),
        ];
        let builder = tracer.span_builder(format!("push {queue}"));
        let builder = builder.with_kind(SpanKind::Producer).with_attributes(attributes);
        let span = tracer.build_with_context(builder, &parent);
        let traceparent = Some(traceparent_of(span.span_context()));
        Self { traceparent, span: Some(Mutex::new(Producing { span, jobs: 0, last: None })) }
    }

    /// Without a span.
    pub(super) fn unseen(context: Option<String>) -> Self {
        Self { traceparent: context, span: None }
    }

    /// The trace context of jobs that name none of their own.
    pub(crate) fn traceparent(&self) -> Option<String> {
        self.traceparent.clone()
    }

    /// The store has taken jobs of it.
    pub(crate) fn sent(&self, pushed: &[Pushed]) {
        self.tell(|it| {
            let taken = || pushed.iter().filter(|one| one.status != PushStatus::Throttled);
            it.jobs += taken().count() as i64;
            it.last = taken().next_back().map(|pushed| pushed.job_id);
        });
    }

    /// It was not carried out, or not all of it. The reason stays out: it may quote what was sent.
    pub(crate) fn failed(&self, status: StatusCode) {
        self.tell(|it| {
            it.span.set_status(Status::error(status.to_string()));
            it.span.set_attribute(KeyValue::new(attribute::ERROR_TYPE, status.as_str().to_owned()));
        });
    }

    fn tell(&self, what: impl FnOnce(&mut Producing)) {
        if let Some(span) = &self.span {
            what(&mut lock(span));
        }
    }
}

impl Drop for Producing {
    fn drop(&mut self) {
        let jobs = match (self.jobs, self.last) {
            (1, Some(id)) => KeyValue::new(attribute::MESSAGE_ID, id.to_string()),
            (jobs, _) => KeyValue::new(attribute::MESSAGE_COUNT, jobs),
        };
        self.span.set_attribute(jobs);
        self.span.end();
    }
}
