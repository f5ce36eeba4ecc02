//! The spans of handler calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};
use seriatim::{
    Outcome,
    store::{LaneId, Token, Turn, TurnJob, Verdict},
    text::cut_middle,
};

use super::attribute;
use super::span_context::{context_of, traceparent_of};
use crate::base::lock::lock;
use crate::trace::context::of_job;

/// Most links of a span to the pushes that its jobs came from.
pub(super) const LINKS_MAX: usize = 64;
/// Most bytes of an error in a span.
const ERROR_BYTES_MAX: usize = 1_024;

tokio::task_local! {
    /// The trace context of the call that this task runs.
    static CALL: Arc<str>;
}

/// The trace context of the handler call that asks.
pub(crate) fn of_call() -> Option<Arc<str>> {
    CALL.try_with(Arc::clone).ok()
}

/// Runs a handler within its context.
pub(super) async fn within<F: Future>(context: Arc<str>, handler: F) -> F::Output {
    CALL.scope(context, handler).await
}

/// By each of its turns.
type Open = HashMap<(LaneId, Token), Arc<Mutex<Call>>>;

/// The running calls.
#[derive(Default)]
pub(super) struct Calls {
    open: Mutex<Open>,
}

/// The span of a call: it ends when the last turn has.
struct Call {
    span: Span,
    turns_open: usize,
    turns: usize,
    failed: i64,
    /// The worst so far; see [`badness`].
    outcome: &'static str,
    error: Option<String>,
}

impl Calls {
    /// A handler begins; the answer is what it is to name as its parent.
    pub(super) fn begin(&self, tracer: &SdkTracer, turns: &[Turn]) -> Arc<str> {
        let queue = turns.first().map_or("", |turn| &turn.queue);
        let (parent, links) = origin(turns);
        let builder = tracer.span_builder(format!("process {queue}"));
        let builder = builder
            .with_kind(SpanKind::Consumer)
            .with_attributes(attributes(queue, turns))
            .with_links(links);
        let span = tracer.build_with_context(builder, &parent);
        let context = traceparent_of(span.span_context()).into();
        let call = Call {
            span,
            turns_open: turns.len(),
            turns: turns.len(),
            failed: 0,
            outcome: "done",
            error: None,
        };
        let call = Arc::new(Mutex::new(call));
        let mut open = lock(&self.open);
        open.extend(turns.iter().map(|turn| ((turn.lane, turn.token), call.clone())));
        context
    }

    /// A turn has ended. Of one whose handler never began nothing is known here.
    pub(super) fn ended(&self, turn: &Turn, verdict: &Verdict) {
        let Some(call) = lock(&self.open).remove(&(turn.lane, turn.token)) else { return };
        lock(&call).ended(verdict);
    }

    /// Of calls that have not ended nobody tells any more: a span ends when it is dropped.
    pub(super) fn end(&self) {
        lock(&self.open).clear();
    }
}

impl Call {
    fn ended(&mut self, verdict: &Verdict) {
        let outcome = name(verdict);
        if badness(outcome) > badness(self.outcome) {
            self.outcome = outcome;
        }
        if let Some(error) = failure(verdict) {
            self.failed += 1;
            self.error.get_or_insert_with(|| cut_middle(error, ERROR_BYTES_MAX).into_owned());
        }
        self.turns_open -= 1;
        if self.turns_open == 0 {
            self.close();
        }
    }

    fn close(&mut self) {
        self.span.set_attribute(KeyValue::new(attribute::OUTCOME, self.outcome));
        if self.turns > 1 {
            self.span.set_attribute(KeyValue::new(attribute::LANES_FAILED, self.failed));
        }
        if let Some(error) = self.error.take() {
            self.span.set_attribute(KeyValue::new(attribute::ERROR_TYPE, self.outcome));
            self.span.set_status(Status::error(error));
        }
        self.span.end();
    }
}

/// Where a call comes from: below the push, where all of its traced jobs come from one; else a
/// trace of its own with links to the pushes, as the conventions have it.
fn origin(turns: &[Turn]) -> (Context, Vec<Link>) {
    let mut origins: Vec<(SpanContext, &TurnJob)> = Vec::new();
    for job in turns.iter().flat_map(|turn| &turn.jobs) {
        let Some(context) = of_job(job).and_then(context_of) else { continue };
        if origins.iter().all(|(known, _)| *known != context) {
            origins.push((context, job));
        }
        if origins.len() == LINKS_MAX {
            break;
        }
    }
    if let [(context, _)] = &origins[..] {
        return (Context::new().with_remote_span_context(context.clone()), Vec::new());
    }
    let link = |(context, job): (SpanContext, &TurnJob)| {
        let id = KeyValue::new(attribute::MESSAGE_ID, job.id.to_string());
        Link::new(context, vec![id], 0)
    };
    (Context::new(), origins.into_iter().map(link).collect())
}

fn attributes(queue: &str, turns: &[Turn]) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new(attribute::SYSTEM, attribute::SYSTEM_NAME),
        KeyValue::new(attribute::DESTINATION, queue.to_owned()),
        KeyValue::new(attribute::OPERATION_NAME, "process"),
        KeyValue::new(attribute::OPERATION_TYPE, "process"),
    ];
    match turns {
        [turn] => {
            attributes.push(KeyValue::new(attribute::ATTEMPT, i64::from(turn.attempt())));
            if let [job] = &turn.jobs[..] {
                attributes.push(KeyValue::new(attribute::MESSAGE_ID, job.id.to_string()));
            }
        }
        several => attributes.push(KeyValue::new(attribute::LANES, several.len() as i64)),
    }
    let jobs: usize = turns.iter().map(|turn| turn.jobs.len()).sum();
    if jobs > 1 {
        attributes.push(KeyValue::new(attribute::MESSAGE_COUNT, jobs as i64));
    }
    attributes
}

/// Why a turn failed, if it did.
fn failure(verdict: &Verdict) -> Option<&str> {
    match &verdict.outcome {
        Outcome::Retry { error, .. } | Outcome::Bury { error } | Outcome::Crash { error } => {
            Some(error)
        }
        _ => verdict.undecodable.first().map(|(_, why)| &**why),
    }
}

fn name(verdict: &Verdict) -> &'static str {
    match &verdict.outcome {
        Outcome::Done if !verdict.undecodable.is_empty() => "bury",
        Outcome::Done => "done",
        Outcome::Release => "release",
        Outcome::Snooze { .. } => "snooze",
        Outcome::Cancel { .. } => "cancel",
        Outcome::Retry { .. } => "retry",
        Outcome::Bury { .. } => "bury",
        Outcome::Crash { .. } => "crash",
    }
}

/// The order of outcomes, the best first: a call of several lanes is shown by its worst.
fn badness(outcome: &str) -> usize {
    let order = ["done", "release", "snooze", "cancel", "retry", "bury", "crash"];
    order.iter().position(|known| *known == outcome).unwrap_or(order.len())
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use seriatim::{JobId, Payload, Timestamp, store::JobOptions};

    use super::super::outbox::Outbox;
    use super::*;

    /// A turn of jobs with these trace contexts.
    fn turn(lane: u64, contexts: &[String]) -> Turn {
        let job = |(place, context): (usize, &String)| {
            let traceparent = Some(context.clone());
            let mut options = JobOptions::default();
            options.traceparent = traceparent;
            TurnJob {
                id: JobId::new(Timestamp::default(), 1, 0, place as u64),
                task: None,
                payload: Payload::from_json_text("1").unwrap(),
                score: 0.0,
                priority: 100,
                run_at: Timestamp::default(),
                attempt: 3,
                options: Some(options.into()),
            }
        };
        Turn {
            lane: LaneId { queue: 1, shard: 0, number: lane },
            queue: "q".into(),
            key: Some("k".into()),
            token: Token(7),
            retry_count: -1,
            crashes: 0,
            error: None,
            claimed_at: Timestamp::default(),
            jobs: contexts.iter().enumerate().map(job).collect(),
        }
    }

    fn contexts(count: usize) -> Vec<String> {
        (1..=count).map(|n| format!("00-{n:032x}-00f067aa0ba902b7-01")).collect()
    }

    #[test]
    fn a_call_of_several_lanes_ends_with_its_last_and_is_shown_by_its_worst() {
        let (outbox, mut spans) = Outbox::new(8);
        let provider = SdkTracerProvider::builder().with_span_processor(outbox).build();
        let calls = Calls::default();
        let turns = [1, 2, 3].map(|lane| turn(lane, &contexts(1)));
        calls.begin(&provider.tracer("test"), &turns);
        let outcomes = [
            Outcome::Bury { error: format!("{}, in the end", "é".repeat(ERROR_BYTES_MAX)).into() },
            Outcome::Retry { error: "second".into(), retry_in: None },
            Outcome::Done,
        ];
        for (turn, outcome) in turns.iter().zip(outcomes) {
            assert!(spans.try_recv().is_err());
            calls.ended(turn, &outcome.into());
        }
        calls.ended(&turns[0], &Outcome::Done.into());
        let span = spans.try_recv().unwrap();
        let said = |name: &str| {
            let found = span.attributes.iter().find(|one| one.key.as_str() == name);
            found.map(|one| one.value.as_str().into_owned())
        };
        let Status::Error { description } = &span.status else { panic!("{:?}", span.status) };
        assert!(description.len() <= ERROR_BYTES_MAX, "{description}");
        assert!(description.starts_with('é') && description.ends_with("in the end"));
        assert_eq!(said(attribute::OUTCOME).unwrap(), "bury");
        assert_eq!(said(attribute::LANES).unwrap(), "3");
        assert_eq!(said(attribute::LANES_FAILED).unwrap(), "2");
        assert_eq!(said(attribute::MESSAGE_COUNT).unwrap(), "3");
        assert_eq!(span.span_context.trace_id().to_string(), contexts(1)[0][3..35]);
        assert!(lock(&calls.open).is_empty());
    }

    #[test]
    fn a_call_that_never_ends_has_a_span_all_the_same() {
        let (outbox, mut spans) = Outbox::new(8);
        let provider = SdkTracerProvider::builder().with_span_processor(outbox).build();
        let calls = Calls::default();
        let turns = [1, 2].map(|lane| turn(lane, &contexts(1)));
        calls.begin(&provider.tracer("test"), &turns);
        calls.ended(&turns[0], &Outcome::Done.into());
        assert!(spans.try_recv().is_err());
        calls.end();
        assert_eq!(spans.try_recv().unwrap().name, "process q");
        assert!(spans.try_recv().is_err());
    }

    #[test]
    fn links_are_as_many_as_the_limit_says_and_each_push_has_one() {
        let links = |contexts: &[String]| origin(&[turn(1, contexts)]).1.len();
        assert_eq!(links(&contexts(2 * LINKS_MAX)), LINKS_MAX);
        assert_eq!(links(&[contexts(3), contexts(3)].concat()), 3);
        assert_eq!(links(&["nonsense".into()]), 0);
    }

    #[test]
    fn what_cannot_be_read_fails_a_turn_that_is_done_otherwise() {
        let id = turn(1, &contexts(1)).jobs[0].id;
        let undecodable = vec![(id, "no number".into())];
        let verdict = Verdict { undecodable, ..Outcome::Done.into() };
        assert_eq!((failure(&verdict), name(&verdict)), (Some("no number"), "bury"));
        for fine in [Outcome::Done, Outcome::Release, Outcome::Cancel { reason: "r".into() }] {
            assert_eq!(failure(&fine.into()), None);
        }
    }
}
