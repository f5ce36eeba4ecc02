//! Messages to worker programs, in JSON.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use seriatim::{Batch, Context, JobId, Lane, Payload, Timestamp, store::LaneId};

use crate::app::first::attempts;
use crate::protocol::lane as protocol;
use crate::trace;

/// A call on its way to a worker.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its name: no other call has it, since a claim hands out a job once. Its token alone would not do: the jobs of a
    /// `fifo` key may follow each other under one, a call for each.
    pub(crate) batch: String,
    /// One line of JSON, without its end.
    pub(crate) line: String,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    batch: &'a str,
    queue: &'a str,
    lanes: Vec<protocol::Lane<'a>>,
}

impl Call {
    /// The document that a command reads.
    pub(crate) async fn document(
        batch: &Batch<Payload>,
        context: &Context,
    ) -> Result<Self, String> {
        Self::write(batch, None, &attempts(&**context.store(), context.turns()).await)
    }

    /// The message that a process reads.
    pub(crate) async fn message(batch: &Batch<Payload>, context: &Context) -> Result<Self, String> {
        Self::write(batch, Some("perform"), &attempts(&**context.store(), context.turns()).await)
    }

    fn write(
        batch: &Batch<Payload>,
        r#type: Option<&'static str>,
        first: &[Option<Timestamp>],
    ) -> Result<Self, String> {
        let name = batch.lanes().first().map(name_of).unwrap_or_default();
        let payloads: Result<Vec<_>, String> = batch.lanes().iter().map(raw_payloads).collect();
        let payloads = payloads?;
        let call = trace::of_call();
        let lanes = batch.lanes().iter().zip(&payloads).zip(first);
        let lanes =
            lanes.map(|((lane, raws), first)| call_lane(lane, raws, call.as_deref(), *first));
        let document =
            Document { r#type, batch: &name, queue: batch.queue(), lanes: lanes.collect() };
        let line = serde_json::to_string(&document)
            .map_err(|e| format!("cannot write the call as JSON: {e}"))?;
        Ok(Self { batch: name, line })
    }
}

fn name_of(lane: &Lane<Payload>) -> String {
    let first = lane.jobs().next().map(|(job, _)| job.id.to_string());
    format!("{}-{}-{}", lane.id(), lane.token(), first.unwrap_or_default())
}

fn raw_payloads(lane: &Lane<Payload>) -> Result<Vec<Box<RawValue>>, String> {
    let raw = |(job, payload): (&seriatim::store::TurnJob, &Payload)| {
        let wrong = |why: String| format!("the payload of job {} is not JSON: {why}", job.id);
        let mut bytes = payload.as_bytes().to_vec();
        // In JSON an end of line stands only between tokens, where a space says the same. Here it
        // would end the message.
        bytes.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        let text = String::from_utf8(bytes).map_err(|e| wrong(e.to_string()))?;
        RawValue::from_string(text).map_err(|e| wrong(e.to_string()))
    };
    lane.jobs().map(raw).collect()
}

/// `call` is the trace context of the call, where calls have one: what the worker does is below it.
fn call_lane<'a>(
    lane: &'a Lane<Payload>,
    raws: &'a [Box<RawValue>],
    call: Option<&'a str>,
    first_attempt_at: Option<Timestamp>,
) -> protocol::Lane<'a> {
    let jobs = lane.jobs().zip(raws).map(|((job, _), payload)| {
        protocol::LaneJob::new(job, payload, call.or_else(|| trace::of_job(job)))
    });
    let tries = protocol::Tries { max_retries: lane.max_retries(), first_attempt_at };
    protocol::Lane::new(lane.turn(), None, tries, jobs)
}

#[derive(Serialize)]
struct Cancel<'a> {
    r#type: &'static str,
    batch: &'a str,
    lane: LaneId,
    job_ids: &'a [JobId],
}

/// Asks for jobs of a running call to be given up.
pub(crate) fn cancel(batch: &str, lane: LaneId, job_ids: &[JobId]) -> String {
    let message = Cancel { r#type: "cancel", batch, lane, job_ids };
    // Texts and numbers only: nothing of it can fail to be written.
    serde_json::to_string(&message).unwrap_or_default()
}

/// What a process is to do about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Go {
    Run,
    /// It has ended in an earlier run.
    Done,
    /// Its result is in the store.
    Kept,
    /// End the call.
    Stop,
}

/// The answer to a message about a step.
#[derive(Debug, Serialize)]
pub(crate) struct StepAnswer {
    state: Go,
    /// Of a step that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// Why to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

/// Why a process that hears it may send its lane back uncounted.
const STOPPING: &str = "stopping";

impl StepAnswer {
    pub(crate) fn new(state: Go) -> Self {
        Self { state, result: None, why: None }
    }

    pub(crate) fn done(result: Value) -> Self {
        Self { result: Some(result), ..Self::new(Go::Done) }
    }

    pub(crate) fn cancelled() -> Self {
        Self { why: Some("cancelled"), ..Self::new(Go::Stop) }
    }

    pub(crate) fn stopping() -> Self {
        Self { why: Some(STOPPING), ..Self::new(Go::Stop) }
    }

    pub(crate) fn lets_go(&self) -> bool {
        self.why == Some(STOPPING)
    }

    pub(crate) fn line(&self, batch: &str, lane: LaneId, step: &str) -> String {
        #[derive(Serialize)]
        struct Message<'a> {
            r#type: &'static str,
            batch: &'a str,
            lane: LaneId,
            step: &'a str,
            #[serde(flatten)]
            answer: &'a StepAnswer,
        }
        let message = Message { r#type: "step", batch, lane, step, answer: self };
        // Texts and values that were JSON before: nothing of it can fail to be written.
        serde_json::to_string(&message).unwrap_or_default()
    }
}

/// Asks for the end of the process.
pub(crate) const SHUTDOWN: &str = r#"{"type":"shutdown"}"#;
