//! Without the feature `otlp`: contexts are carried, and there are no spans.
// It has the shape of the module with spans.
#![allow(clippy::unnecessary_wraps, clippy::unused_async, clippy::unused_self)]

use std::sync::Arc;

use axum::http::StatusCode;
use seriatim::store::Pushed;
use seriatim::{
    EngineBuilder,
    store::{Turn, Verdict},
};

use crate::base::setup_error::SetupError;

/// The variables that ask for spans.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// See the module with spans.
#[derive(Clone, Default)]
pub(crate) struct Traces;

/// A request that pushes.
pub(crate) struct Sending(Option<String>);

impl Traces {
    /// Warns if spans are configured.
    pub(crate) fn start() -> Result<Self, SetupError> {
        Self::check()?.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(Self)
    }

    /// The warnings.
    pub(crate) fn check() -> Result<Vec<String>, SetupError> {
        let is_set = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let warning = |name: &&str| {
            format!("{name} is set, but this binary sends no traces: build it with --features otlp")
        };
        Ok(ENDPOINTS.iter().find(is_set).map(warning).into_iter().collect())
    }

    pub(crate) fn around(&self, engine: EngineBuilder) -> EngineBuilder {
        engine
    }

    pub(crate) fn ended(&self, _: &Turn, _: &Verdict) {}

    pub(crate) fn sending(&self, _: &str, context: Option<String>) -> Sending {
        Sending(context)
    }

    pub(crate) fn lost(&self) -> Option<u64> {
        None
    }

    pub(crate) async fn stop(&self) {}
}

impl Sending {
    pub(crate) fn traceparent(&self) -> Option<String> {
        self.0.clone()
    }

    pub(crate) fn sent(&self, _: &[Pushed]) {}

    pub(crate) fn failed(&self, _: StatusCode) {}
}

pub(crate) fn of_call() -> Option<Arc<str>> {
    None
}
