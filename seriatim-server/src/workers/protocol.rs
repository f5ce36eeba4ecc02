//! What goes to a worker program and what comes back: JSON, a document or a line at a time.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use seriatim::limits::DELAY_MAX;
use seriatim::{Batch, JobId, Lane, LaneId, Outcome, Outcomes, Payload};

use crate::trace;

/// How long a snooze lasts when nothing else is said.
pub(crate) const SNOOZE: Duration = Duration::from_secs(30);

/// A call on its way to a worker.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its name: unique, because a claim's token is.
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
    lanes: Vec<CallLane<'a>>,
}

#[derive(Serialize)]
struct CallLane<'a> {
    lane: LaneId,
    queue: &'a str,
    key: Option<&'a str>,
    token: i64,
    retry_count: i32,
    crashes: u32,
    attempt: u32,
    task: Option<&'a str>,
    jobs: Vec<CallJob<'a>>,
}

#[derive(Serialize)]
struct CallJob<'a> {
    job_id: JobId,
    score: f64,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

impl Call {
    /// The document that a command reads.
    pub(crate) fn document(batch: &Batch<Payload>) -> Result<Self, String> {
        Self::write(batch, None)
    }

    /// The message that a process reads.
    pub(crate) fn message(batch: &Batch<Payload>) -> Result<Self, String> {
        Self::write(batch, Some("perform"))
    }

    fn write(batch: &Batch<Payload>, r#type: Option<&'static str>) -> Result<Self, String> {
        let first = batch.lanes().first().map(|lane| (lane.id(), lane.token()));
        let name = first.map_or_else(String::new, |(lane, token)| format!("{lane}-{token}"));
        let payloads: Result<Vec<_>, String> = batch.lanes().iter().map(raw_payloads).collect();
        let payloads = payloads?;
        let call = trace::of_call();
        let lanes = batch.lanes().iter().zip(&payloads);
        let lanes = lanes.map(|(lane, raws)| call_lane(lane, raws, call.as_deref()));
        let document =
            Document { r#type, batch: &name, queue: batch.queue(), lanes: lanes.collect() };
        let line = serde_json::to_string(&document)
            .map_err(|e| format!("the call cannot be written as JSON: {e}"))?;
        Ok(Self { batch: name, line })
    }
}

fn raw_payloads(lane: &Lane<Payload>) -> Result<Vec<Box<RawValue>>, String> {
    let raw = |(job, payload): (&seriatim::TurnJob, &Payload)| {
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
) -> CallLane<'a> {
    let turn = lane.turn();
    let jobs = lane.jobs().zip(raws).map(|((job, _), payload)| CallJob {
        job_id: job.id,
        score: job.score,
        payload,
        traceparent: call.or_else(|| trace::of_job(job)),
    });
    CallLane {
        lane: turn.lane,
        queue: &turn.queue,
        key: turn.key.as_deref(),
        token: turn.token.0,
        retry_count: turn.retry_count,
        crashes: turn.crashes,
        attempt: turn.attempt(),
        task: turn.task().map(|task| &**task),
        jobs: jobs.collect(),
    }
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

/// Asks for the end of the process.
pub(crate) const SHUTDOWN: &str = r#"{"type":"shutdown"}"#;

/// A line that a process wrote.
#[derive(Debug)]
pub(crate) enum Heard {
    Progress {
        batch: String,
        lane: LaneId,
        progress: Box<RawValue>,
    },
    Done {
        batch: String,
    },
    Result {
        batch: String,
        results: Vec<LaneResult>,
    },
    /// It is meant for us, and of a batch, but the rest of it cannot be read.
    Unreadable {
        batch: String,
        ends_call: bool,
        why: String,
    },
    /// For the log.
    Other,
}

/// How one lane ended.
#[derive(Debug, Deserialize)]
pub(crate) struct LaneResult {
    lane: LaneId,
    outcome: String,
    error: Option<String>,
    retry_in: Option<f64>,
    done: Option<usize>,
}

#[derive(Deserialize)]
struct Envelope {
    r#type: String,
    batch: String,
}

#[derive(Deserialize)]
struct ProgressBody {
    lane: LaneId,
    progress: Box<RawValue>,
}

#[derive(Deserialize)]
struct ResultBody {
    r#type: String,
    results: Vec<LaneResult>,
}

/// Reads a line of a process.
pub(crate) fn hear(line: &str) -> Heard {
    let Ok(Envelope { r#type, batch }) = serde_json::from_str(line) else { return Heard::Other };
    let unreadable = |batch, ends_call, error: serde_json::Error| Heard::Unreadable {
        batch,
        ends_call,
        why: error.to_string(),
    };
    match r#type.as_str() {
        "done" => Heard::Done { batch },
        "progress" => match serde_json::from_str(line) {
            Ok(ProgressBody { lane, progress }) => Heard::Progress { batch, lane, progress },
            Err(error) => unreadable(batch, false, error),
        },
        "result" => match serde_json::from_str(line) {
            Ok(ResultBody { results, .. }) => Heard::Result { batch, results },
            Err(error) => unreadable(batch, true, error),
        },
        _ => Heard::Other,
    }
}

/// The results in the last line of a command, if it is such a message. It need not name the batch:
/// a command has one only.
pub(crate) fn last_line(line: &str) -> Option<Vec<LaneResult>> {
    let body: ResultBody = serde_json::from_str(line).ok()?;
    (body.r#type == "result").then_some(body.results)
}

/// What the results say of the call. A lane that they do not name ends as `unnamed`: nothing is
/// done because nobody spoke of it.
pub(crate) fn outcomes(
    batch: &Batch<Payload>,
    results: &[LaneResult],
    unnamed: &Outcome,
) -> Outcomes {
    let mut outcomes = Outcomes::all(unnamed.clone());
    for lane in batch.lanes() {
        if let Some(result) = results.iter().find(|result| result.lane == lane.id()) {
            outcomes.set_after(lane.id(), result.done.unwrap_or(0), result.outcome());
        }
    }
    let is_ours = |result: &&LaneResult| batch.lanes().iter().any(|lane| lane.id() == result.lane);
    for result in results.iter().filter(|result| !is_ours(result)) {
        tracing::warn!(queue = batch.queue(), lane = %result.lane, "a worker answered for a lane that its call does not hold");
    }
    outcomes
}

impl LaneResult {
    fn outcome(&self) -> Outcome {
        let error: Arc<str> = self.error.as_deref().unwrap_or("no reason given").into();
        let wait = self.retry_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let wait = wait.map(|length| length.min(DELAY_MAX));
        match self.outcome.as_str() {
            "done" => Outcome::Done,
            "retry" => Outcome::Retry { error, retry_in: wait },
            "snooze" => Outcome::Snooze { length: wait.unwrap_or(SNOOZE) },
            "bury" => Outcome::Bury { error },
            "cancel" => Outcome::Cancel { reason: error },
            other => Outcome::Retry {
                error: format!("the worker answered outcome {other:?}, which there is not").into(),
                retry_in: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_that_are_not_ours_are_for_the_log() {
        for line in ["", "hello", "{", "[1]", "{\"type\":\"done\"}", "{\"type\":7,\"batch\":\"b\"}"]
        {
            assert!(matches!(hear(line), Heard::Other), "{line}");
        }
        let other = r#"{"type":"metrics","batch":"b"}"#;
        assert!(matches!(hear(other), Heard::Other));
    }

    #[test]
    fn an_answer_that_cannot_be_read_still_ends_its_call() {
        for results in ["7", r#"[{"lane":"x","outcome":"done"}]"#, r#"[{"lane":"1-0-1"}]"#] {
            let line = format!(r#"{{"type":"result","batch":"b","results":{results}}}"#);
            let heard = hear(&line);
            assert!(matches!(heard, Heard::Unreadable { ends_call: true, .. }), "{heard:?}");
        }
        let progress = r#"{"type":"progress","batch":"b","lane":7}"#;
        assert!(matches!(hear(progress), Heard::Unreadable { ends_call: false, .. }));
    }

    #[test]
    fn outcomes_are_read_as_the_protocol_has_them() {
        let read = |rest: &str| {
            let text = format!(r#"{{"lane":"1-0-1",{rest}}}"#);
            serde_json::from_str::<LaneResult>(&text).unwrap().outcome()
        };
        assert_eq!(read(r#""outcome":"done""#), Outcome::Done);
        assert_eq!(read(r#""outcome":"snooze""#), Outcome::Snooze { length: SNOOZE });
        let (error, retry_in) = ("e".into(), Some(Duration::from_millis(1_500)));
        let retry = read(r#""outcome":"retry","error":"e","retry_in":1.5"#);
        assert_eq!(retry, Outcome::Retry { error, retry_in });
        let (error, retry_in) = ("no reason given".into(), None);
        let negative = read(r#""outcome":"retry","retry_in":-1"#);
        assert_eq!(negative, Outcome::Retry { error, retry_in });
        let forever = read(r#""outcome":"snooze","retry_in":1e18"#);
        assert_eq!(forever, Outcome::Snooze { length: DELAY_MAX });
        assert!(matches!(read(r#""outcome":"explode""#), Outcome::Retry { .. }));
    }
}
