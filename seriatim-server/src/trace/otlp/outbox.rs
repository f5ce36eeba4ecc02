//! Spans on their way to the collector. Work never waits for it: what does not fit is dropped and
//! counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::settings::Settings;
use super::wire::{Trouble, Wire};

use crate::base::lock::lock;

/// Most waiting spans; above this, new ones are dropped.
const SPANS_WAITING_MAX: usize = 4_096;
const SPANS_PER_REQUEST_MAX: usize = 512;
/// How long a span may wait for others to go with it.
const LINGER: Duration = Duration::from_secs(1);

/// How many spans were made and not taken by the collector.
pub(super) type Lost = Arc<AtomicU64>;
/// The task that sends.
pub(super) type Post = JoinHandle<()>;

/// Where spans go when they end.
#[derive(Debug)]
pub(super) struct Outbox {
    /// None once it is closed.
    spans: Mutex<Option<mpsc::Sender<SpanData>>>,
    pub(super) lost: Lost,
}

/// Opens an outbox, and starts what empties it.
pub(super) fn open(settings: &Settings, resource: &Resource) -> Result<(Outbox, Post), String> {
    let trouble = Trouble::default();
    let wire = wire(settings, trouble.clone())?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(wire)
        .with_endpoint(settings.endpoint.to_string())
        .with_timeout(settings.timeout)
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
    let mut exporter = exporter.build().map_err(|e| format!("cannot send traces: {e}"))?;
    exporter.set_resource(resource);
    let (outbox, waiting) = Outbox::new(SPANS_WAITING_MAX);
    let (lost, timeout) = (outbox.lost.clone(), settings.timeout);
    let carrier = Carrier { exporter, timeout, trouble, lost, away_since: None };
    Ok((outbox, tokio::spawn(carrier.run(waiting))))
}

/// Whether one could be opened on this machine.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    wire(settings, Trouble::default()).map(drop)
}

fn wire(settings: &Settings, trouble: Trouble) -> Result<Wire, String> {
    Wire::new(settings.endpoint.scheme_str() == Some("https"), trouble)
}

impl Outbox {
    pub(super) fn new(spans_max: usize) -> (Self, mpsc::Receiver<SpanData>) {
        let (spans, waiting) = mpsc::channel(spans_max);
        (Self { spans: Mutex::new(Some(spans)), lost: Lost::default() }, waiting)
    }
}

impl SpanProcessor for Outbox {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let spans = lock(&self.spans);
        if spans.as_ref().is_none_or(|spans| spans.try_send(span).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Unused: the rest is sent when it is closed.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        // Without a sender the carrier ends when it has sent what waits.
        lock(&self.spans).take();
        Ok(())
    }
}

/// Takes spans to the collector.
struct Carrier {
    exporter: SpanExporter,
    /// How long the sending of one batch may take, all its tries together.
    timeout: Duration,
    trouble: Trouble,
    lost: Lost,
    /// How many spans were lost before the collector went away, while it is.
    away_since: Option<u64>,
}

impl Carrier {
    async fn run(mut self, mut waiting: mpsc::Receiver<SpanData>) {
        loop {
            let mut spans = Vec::new();
            if waiting.recv_many(&mut spans, SPANS_PER_REQUEST_MAX).await == 0 {
                return;
            }
            let end = Instant::now() + LINGER;
            while let Some(room @ 1..) = SPANS_PER_REQUEST_MAX.checked_sub(spans.len()) {
                match timeout_at(end, waiting.recv_many(&mut spans, room)).await {
                    Ok(1..) => {}
                    // It is closed, or the time is over.
                    Ok(0) | Err(_) => break,
                }
            }
            self.send(spans).await;
        }
    }

    /// One line in the log when the collector goes away, and one when it is back.
    async fn send(&mut self, spans: Vec<SpanData>) {
        let count = spans.len() as u64;
        let sent = match timeout(self.timeout, self.exporter.export(spans)).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {}", seriatim::duration::format(self.timeout))),
        };
        match (sent, self.away_since) {
            (Ok(()), None) => {}
            (Ok(()), Some(before)) => {
                self.away_since = None;
                let lost = self.lost.load(Ordering::Relaxed).saturating_sub(before);
                tracing::info!("the collector accepts traces again; {lost} spans were lost");
            }
            (Err(error), away_since) => {
                let before = self.lost.fetch_add(count, Ordering::Relaxed);
                if away_since.is_none() {
                    self.away_since = Some(before);
                    let why = self.trouble.take().unwrap_or(error);
                    tracing::warn!(
                        "the collector does not accept traces: {why}; jobs continue, spans are lost"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let (outbox, mut waiting) = Outbox::new(2);
        let lost = outbox.lost.clone();
        let provider = SdkTracerProvider::builder().with_span_processor(outbox).build();
        let tracer = provider.tracer("test");
        for number in 0..5 {
            drop(tracer.start(number.to_string()));
        }
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        assert_eq!(waiting.try_recv().unwrap().name, "0");
        drop(tracer.start("5"));
        provider.shutdown().unwrap();
        let left = std::iter::from_fn(|| waiting.try_recv().ok()).map(|span| span.name);
        assert_eq!(left.collect::<Vec<_>>(), ["1", "5"]);
        assert!(waiting.is_closed());
    }
}
