//! Command workers: one process for each call, the call as one JSON document on its stdin.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use seriatim::{Batch, Context, Failure, Lane, LaneId, Outcome, Outcomes, Payload, Unstartable};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

/// How long a cancelled command gets after SIGTERM before SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(3);
/// How long exit code 75 waits.
const SNOOZE: Duration = Duration::from_secs(30);
/// Lines of stderr that become the error.
const ERROR_LINES_MAX: usize = 20;
/// What does not fit in a line of output is cut off.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A call, as the command reads it.
#[derive(Serialize)]
struct Call<'a> {
    queue: &'a str,
    batch: String,
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
    job_id: String,
    score: f64,
    payload: &'a RawValue,
}

/// What the last line of stdout may say.
#[derive(Deserialize)]
struct Said {
    r#type: String,
    results: Vec<SaidLane>,
}

#[derive(Deserialize)]
struct SaidLane {
    lane: LaneId,
    outcome: String,
    error: Option<String>,
    retry_in: Option<f64>,
    done: Option<usize>,
}

/// Runs the command for one call.
pub(crate) async fn run(
    command: Arc<[String]>,
    batch: Batch<Payload>,
    context: Context,
) -> Result<Outcomes, Failure> {
    let mut child = match spawn(&command, &batch) {
        Ok(child) => Group(child),
        Err(error) => {
            let program = command.first().map_or("", String::as_str);
            return Err(Unstartable(format!("{program}: {error}")).into());
        }
    };
    let document = document(&batch)?;
    let stdin = child.0.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input may still do its work.
            let _ = stdin.write_all(document.as_bytes()).await;
        }
    };
    let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
    let queue = batch.queue().to_owned();
    let work = async {
        let lines = (last_lines(stdout, 1, &queue), last_lines(stderr, ERROR_LINES_MAX, &queue));
        let ((), stdout, stderr) = tokio::join!(feed, lines.0, lines.1);
        (stdout, stderr)
    };
    tokio::pin!(work);
    let (stdout, stderr) = tokio::select! {
        lines = &mut work => lines,
        () = context.cancelled() => {
            child.signal(Signal::TERM);
            if let Ok(lines) = tokio::time::timeout(TERM_GRACE, &mut work).await {
                lines
            } else {
                child.signal(Signal::KILL);
                (VecDeque::new(), VecDeque::new())
            }
        }
    };
    let status = child.0.wait().await.map_err(|e| format!("its end cannot be learned: {e}"))?;
    child.signal(Signal::KILL);
    conclude(&batch, status, stdout.back(), &stderr)
}

fn spawn(command: &[String], batch: &Batch<Payload>) -> std::io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::NotFound)?;
    let mut process = Command::new(program);
    process.args(arguments).env("SERIATIM_JOB_QUEUE", batch.queue());
    if let [lane] = batch.lanes() {
        process.env("SERIATIM_JOB_KEY", lane.key());
        process.env("SERIATIM_JOB_TOKEN", lane.token().to_string());
        process.env("SERIATIM_JOB_ATTEMPT", lane.attempt().to_string());
    }
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process.process_group(0).kill_on_drop(true).spawn()
}

/// A command and everything that it started: ended together.
struct Group(Child);

impl Group {
    fn signal(&self, signal: Signal) {
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn document(batch: &Batch<Payload>) -> Result<String, String> {
    let null = RawValue::NULL;
    let mut raws: Vec<Vec<Box<RawValue>>> = Vec::new();
    for lane in batch.lanes() {
        let raw = |payload: &Payload| {
            let text = String::from_utf8(payload.as_bytes().to_vec()).ok();
            text.and_then(|text| RawValue::from_string(text).ok())
                .unwrap_or_else(|| null.to_owned())
        };
        raws.push(lane.payloads().iter().map(raw).collect());
    }
    let lanes = batch.lanes().iter().zip(&raws).map(|(lane, raws)| call_lane(lane, raws));
    let first = batch.lanes().first().map(|lane| (lane.id(), lane.token()));
    let batch_id = first.map_or_else(String::new, |(lane, token)| format!("{lane}-{token}"));
    let call = Call { queue: batch.queue(), batch: batch_id, lanes: lanes.collect() };
    serde_json::to_string(&call).map_err(|e| format!("the call cannot be written as JSON: {e}"))
}

fn call_lane<'a>(lane: &'a Lane<Payload>, raws: &'a [Box<RawValue>]) -> CallLane<'a> {
    let turn = lane.turn();
    let jobs = lane.jobs().zip(raws).map(|((job, _), payload)| CallJob {
        job_id: job.id.to_string(),
        score: job.score,
        payload,
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

/// Reads to the end; the last lines are kept, all go to the log.
async fn last_lines(
    from: Option<impl AsyncRead + Unpin>,
    most: usize,
    queue: &str,
) -> VecDeque<String> {
    let mut last = VecDeque::new();
    let Some(from) = from else { return last };
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line).await, Ok(read) if read > 0) {
        line.truncate(LINE_BYTES_MAX);
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        tracing::debug!(queue, "{text}");
        last.push_back(text);
        if last.len() > most {
            last.pop_front();
        }
        line.clear();
    }
    last
}

fn conclude(
    batch: &Batch<Payload>,
    status: ExitStatus,
    last_line: Option<&String>,
    stderr: &VecDeque<String>,
) -> Result<Outcomes, Failure> {
    let said: Option<Said> = last_line.and_then(|line| serde_json::from_str(line).ok());
    if let Some(said) = said.filter(|said| said.r#type == "result") {
        return Ok(outcomes(batch, &said.results));
    }
    let error: String = stderr.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
    let error = if error.is_empty() { format!("the command ended with {status}") } else { error };
    match status.code() {
        Some(0) => Ok(Outcomes::new()),
        Some(75) => Ok(Outcome::Snooze { length: SNOOZE }.into()),
        Some(65) => Ok(Outcome::Bury { error: error.into() }.into()),
        _ => Err(error.into()),
    }
}

fn outcomes(batch: &Batch<Payload>, said: &[SaidLane]) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for lane in batch.lanes() {
        let Some(said) = said.iter().find(|said| said.lane == lane.id()) else { continue };
        let error: Arc<str> = said.error.as_deref().unwrap_or("no reason given").into();
        let wait = said.retry_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let outcome = match said.outcome.as_str() {
            "done" => Outcome::Done,
            "snooze" => Outcome::Snooze { length: wait.unwrap_or(SNOOZE) },
            "bury" => Outcome::Bury { error },
            "cancel" => Outcome::Cancel { reason: error },
            "retry" => Outcome::Retry { error, retry_in: wait },
            other => {
                let error =
                    format!("the worker answered outcome {other:?}, which there is not").into();
                Outcome::Retry { error, retry_in: None }
            }
        };
        outcomes.set_after(lane.id(), said.done.unwrap_or(0), outcome);
    }
    outcomes
}
