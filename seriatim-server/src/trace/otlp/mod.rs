//! Spans of pushes and of handler calls, sent to a collector by OTLP.
//!
//! Names and attributes are those of OpenTelemetry's conventions for messaging. Keys and payloads
//! are in no span: they may be private.

mod attribute;
mod calls;
mod outbox;
mod sending;
mod settings;
mod span_context;
mod wire;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use seriatim::{
    EngineBuilder,
    store::{Turn, Verdict},
};

use crate::base::lock::lock;
use crate::base::setup_error::SetupError;
use calls::{Calls, LINKS_MAX};
use outbox::{Outbox, Post};
use settings::Settings;

pub(crate) use calls::of_call;
pub(crate) use sending::Sending;

/// How long the end of the process waits for the last spans to be taken.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// What the service is called by default.
const SERVICE_NAME: &str = "seriatim";

/// Traces pushes and calls, if configured. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Traces(Option<Arc<Exporting>>);

struct Exporting {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    calls: Calls,
    post: Mutex<Option<Post>>,
    lost: outbox::Lost,
}

fn settings() -> Result<Option<Settings>, SetupError> {
    let variable = |name: &str| std::env::var(name).ok();
    Settings::read(&variable).map_err(SetupError::invalid)
}

impl Traces {
    /// The configuration of the standard variables; none without a collector.
    pub(crate) fn start() -> Result<Self, SetupError> {
        let Some(settings) = settings()? else { return Ok(Self::default()) };
        settings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let resource = resource(settings.service_name.clone());
        let (outbox, post) = outbox::open(&settings, &resource).map_err(SetupError::failed)?;
        tracing::info!("traces go to {}", settings::shown(&settings.endpoint));
        Ok(Self(Some(Arc::new(Exporting::new(settings, resource, outbox, post)))))
    }

    /// Refuses variables with which there would be no start; returns the warnings about others.
    pub(crate) fn check() -> Result<Vec<String>, SetupError> {
        let Some(settings) = settings()? else { return Ok(Vec::new()) };
        outbox::check(&settings).map_err(SetupError::invalid)?;
        Ok(settings.warnings)
    }

    /// Makes a span of each handler call of an engine.
    pub(crate) fn around(&self, engine: EngineBuilder) -> EngineBuilder {
        let Some(exporting) = self.0.clone() else { return engine };
        engine.middleware(move |call, next| {
            let exporting = exporting.clone();
            async move {
                let context = exporting.calls.begin(&exporting.tracer, call.turns());
                calls::within(context, next.run()).await
            }
        })
    }

    /// The handler of a turn has ended.
    pub(crate) fn ended(&self, turn: &Turn, verdict: &Verdict) {
        if let Some(exporting) = &self.0 {
            exporting.calls.ended(turn, verdict);
        }
    }

    /// A request begins to push, in the trace context that it came with.
    pub(crate) fn sending(&self, queue: &str, context: Option<String>) -> Sending {
        match &self.0 {
            Some(exporting) => Sending::begin(&exporting.tracer, queue, context.as_deref()),
            None => Sending::unseen(context),
        }
    }

    /// How many spans were lost so far; none where none are made.
    pub(crate) fn lost(&self) -> Option<u64> {
        Some(self.0.as_ref()?.lost.load(Ordering::Relaxed))
    }

    /// Sends what is left, and then no more.
    pub(crate) async fn stop(&self) {
        let Some(exporting) = &self.0 else { return };
        exporting.calls.end();
        // It only closes the outbox, which cannot fail.
        let _ = exporting.provider.shutdown();
        let post = lock(&exporting.post).take();
        let Some(mut post) = post else { return };
        if tokio::time::timeout(FLUSH_MAX, &mut post).await.is_err() {
            post.abort();
            let limit = seriatim::duration::format(FLUSH_MAX);
            tracing::warn!("the collector did not accept the last traces within {limit}");
        }
    }
}

impl Exporting {
    fn new(settings: Settings, resource: Resource, outbox: Outbox, post: Post) -> Self {
        let lost = outbox.lost.clone();
        let provider = SdkTracerProvider::builder()
            .with_max_links_per_span(LINKS_MAX as u32)
            .with_sampler(settings.sampler)
            .with_resource(resource)
            .with_span_processor(outbox)
            .build();
        let scope = InstrumentationScope::builder("seriatim").with_version(VERSION).build();
        let tracer = provider.tracer_with_scope(scope);
        Self { tracer, provider, calls: Calls::default(), post: Mutex::new(Some(post)), lost }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The attributes of this process: ours, overridden by the variables.
fn resource(service_name: Option<String>) -> Resource {
    let builder = Resource::builder_empty()
        .with_service_name(SERVICE_NAME)
        .with_attribute(KeyValue::new("service.version", VERSION))
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match service_name {
        Some(name) => builder.with_service_name(name).build(),
        None => builder.build(),
    }
}
