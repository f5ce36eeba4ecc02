//! Numbers for Prometheus: counted here, or asked of the store when they are wanted.

mod bridges;
pub(super) mod meter;
pub(super) mod store;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use seriatim::store::{NodeState, NodeView, QueueStats};
use seriatim::{Error, Timestamp};
use tokio::time::timeout;

use text::Metric;

use super::{Access, Route, Shared};
use crate::app;
use crate::app::figures::{Figures, busiest};
use crate::journal::Book;
use crate::protocol::figures::{ALL, Numbers};

/// A store that has not answered by then is away.
const STORE_MAX: Duration = Duration::from_secs(2);
pub(super) const METRICS_PATH: &str = "/metrics";
/// Queues that have lines of their own: the busiest. All others together are `other`.
const QUEUES_MAX: usize = 1_000;
/// Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(METRICS_PATH, Access::Read, metrics)
            .says("Metrics for Prometheus")
            .media("text/plain")
            .outlives_drain(),
    ]
}

async fn metrics(app: Shared) -> Response {
    let mut text = String::new();
    app.meter.write(&mut text);
    let lost = app.journal.book().map_or(0, Book::lost);
    let says = "Events that the journal could not write";
    Metric::new(&mut text, "journal_lost_total", says).is(lost);
    if let Some(lost) = app.traces.lost() {
        let says = "Spans that the collector did not accept";
        Metric::new(&mut text, "spans_lost_total", says).is(lost);
    }
    // What this process counted is of use above all when the store is away.
    let store = &app.store;
    let asked = async {
        let (stats, nodes) = (store.stats(None).await?, store.nodes().await?);
        Ok::<_, Error>((stats, nodes, store.now().await?, app::bridges::all(&**store).await?))
    };
    let answer = timeout(STORE_MAX, asked).await;
    let is_up = matches!(answer, Ok(Ok(_)));
    Metric::new(&mut text, "store_up", "1 if the store has answered").is(u8::from(is_up));
    if let Ok(Ok((stats, nodes, now, moved))) = answer {
        bridges::write(&mut text, &moved);
        // Of ten thousand queues there would be 13 MB.
        let (queues, others) = busiest(Figures::of(stats, &nodes), QUEUES_MAX);
        write_queues(&mut text, &queues, others.as_slice());
        write_nodes(&mut text, &nodes, now);
    }
    let head = [(header::CONTENT_TYPE, HeaderValue::from_static(TEXT))];
    (head, text).into_response()
}

fn write_nodes(text: &mut String, nodes: &[NodeView], now: Timestamp) {
    let mut states: BTreeMap<&str, usize> =
        ["alive", "late", "quiet", "stopping"].map(|state| (state, 0)).into();
    for node in nodes {
        *states.entry(node.state(now).as_str()).or_default() += 1;
    }
    let says = "Nodes of the store by state, remote workers too";
    let mut metric = Metric::new(text, "nodes", says);
    for (state, count) in states {
        metric.add(format_args!("state=\"{state}\""), count);
    }
    let at_work =
        |node: &&NodeView| !matches!(node.state(now), NodeState::Dead | NodeState::Stopped);
    let sum = |number: fn(&NodeView) -> u32| -> u64 {
        nodes.iter().filter(at_work).map(|node| u64::from(number(node))).sum()
    };
    let says = "Handler calls in progress on all nodes, as of their last heartbeat";
    Metric::new(text, "workers_active", says).is(sum(|node| node.info.busy));
    let says = "Most concurrent handler calls of all nodes with workers";
    let slots = |node: &NodeView| match node.info.queues.is_empty() {
        true => 0,
        false => node.info.concurrency,
    };
    Metric::new(text, "workers_max", says).is(sum(slots));
}

fn write_queues(text: &mut String, queues: &[Figures], others: &[Figures]) {
    let all = queues.iter().chain(others).map(|of| (&of.stats, of.numbers()));
    let all: Vec<_> = all.collect();
    let (all, busiest) = (all.as_slice(), &all[..queues.len()]);
    for figure in ALL {
        // The others are not always the same queues: a sum over them may fall, which a counter never does.
        let (end, queues) = if figure.grows { ("_total", busiest) } else { ("", all) };
        let of = |_: &QueueStats, numbers: &Numbers| (figure.of)(numbers).to_string();
        write_queue(text, &format!("queue_{}{end}", figure.name), figure.says, queues, of);
    }
    let queues = all;
    let lag = |_: &QueueStats, numbers: &Numbers| numbers.lag.to_string();
    let says = "How long the oldest due lane has been due";
    write_queue(text, "queue_lag_seconds", says, queues, lag);
    let paused = |stats: &QueueStats, _: &Numbers| u8::from(stats.paused).to_string();
    write_queue(text, "queue_paused", "1 if the queue is paused", queues, paused);
}

fn write_queue(
    text: &mut String,
    name: &str,
    says: &str,
    queues: &[(&QueueStats, Numbers)],
    number: impl Fn(&QueueStats, &Numbers) -> String,
) {
    let mut metric = Metric::new(text, name, says);
    for (stats, numbers) in queues {
        metric.add(format_args!("queue=\"{}\"", stats.queue), number(stats, numbers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, jobs: u64, processed: u64, paused: bool) -> Figures {
        let lag = Duration::from_secs(jobs);
        let stats = QueueStats {
            queue: name.into(),
            jobs,
            processed,
            paused,
            lag,
            ..QueueStats::default()
        };
        Figures { stats, ..Figures::default() }
    }

    fn text_of(all: Vec<Figures>) -> String {
        let (mut text, (queues, others)) = (String::new(), busiest(all, 1));
        write_queues(&mut text, &queues, others.as_slice());
        text
    }

    #[test]
    fn the_other_queues_have_no_counters_and_no_lag_of_paused_ones() {
        let text = text_of(vec![
            queue("busy", 900, 5, false),
            queue("late", 7, 1_000_000, false),
            queue("paused", 600, 3, true),
        ]);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("\"other\"")).collect();
        assert!(lines.contains(&"seriatim_queue_lag_seconds{queue=\"other\"} 7"), "{lines:?}");
        assert!(lines.contains(&"seriatim_queue_jobs{queue=\"other\"} 607"), "{lines:?}");
        // Which queues they are changes: a sum that falls would look like a new start.
        assert!(!lines.iter().any(|line| line.contains("_total{")), "{lines:?}");
        assert!(text.contains("seriatim_queue_processed_total{queue=\"busy\"} 5"), "{text}");
    }
}
