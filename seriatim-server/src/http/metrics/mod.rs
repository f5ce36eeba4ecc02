//! Numbers for Prometheus: counted here, or asked of the store when they are wanted.

mod meter;
mod store;

use std::fmt::Write;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use seriatim::store::QueueStats;

pub(crate) use meter::Meter;
pub(crate) use store::Metered;

use super::auth::Access;
use super::problem::Problem;
use super::route::Route;
use super::schema::Schema;
use super::state::Shared;

/// Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/metrics", Access::Read, metrics)
            .says("Numbers for Prometheus")
            .media("text/plain")
            .answers(Schema::text())
            .outlives_drain(),
    ]
}

async fn metrics(State(app): State<Shared>) -> Result<Response, Problem> {
    let mut text = String::new();
    app.meter.write(&mut text);
    write_queues(&mut text, &app.store.stats(None).await?);
    let head = [(header::CONTENT_TYPE, HeaderValue::from_static(TEXT))];
    Ok((head, text).into_response())
}

type Number = fn(&QueueStats) -> f64;

fn write_queues(text: &mut String, stats: &[QueueStats]) {
    let numbers: [(&str, &str, &str, Number); 9] = [
        ("queue_length", "gauge", "Jobs that have not ended", |q| q.jobs as f64),
        ("queue_lanes", "gauge", "Lanes that wait or run", |q| q.lanes as f64),
        ("queue_lag_seconds", "gauge", "How long the oldest due lane has been due", |q| {
            q.lag.as_secs_f64()
        }),
        ("queue_running", "gauge", "Lanes that run", |q| q.running as f64),
        ("queue_retries", "gauge", "Lanes with a failure behind them", |q| q.retries as f64),
        ("queue_dead", "gauge", "Jobs in the morgue", |q| q.dead as f64),
        ("queue_paused", "gauge", "1 if the queue is paused", |q| f64::from(u8::from(q.paused))),
        ("queue_processed_total", "counter", "Turns that ended done", |q| q.processed as f64),
        ("queue_failed_total", "counter", "Turns that ended as a failure or crash", |q| {
            q.failed as f64
        }),
    ];
    for (name, kind, says, number) in numbers {
        head(text, name, kind, says);
        for queue in stats {
            let _ =
                writeln!(text, "seriatim_{name}{{queue=\"{}\"}} {}", queue.queue, number(queue));
        }
    }
}

/// What stands before the samples of a metric.
fn head(text: &mut String, name: &str, kind: &str, says: &str) {
    let _ = writeln!(text, "# HELP seriatim_{name} {says}\n# TYPE seriatim_{name} {kind}");
}
