//! Command workers: one process for each call, the call as one JSON document on its stdin.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use seriatim::{Batch, Context, Failure, Outcome, Outcomes, Payload, Unstartable};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::group::Group;
use super::lines::{LINE_BYTES_MAX, LOG_LINE_BYTES_MAX, Line, Lines, Tail, for_log};
use super::protocol::{self, Call, SNOOZE};
use crate::trace;

/// How long the output of a command that has ended is read: something that left its group may hold
/// the pipe open for ever.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Exit code for "later" (`EX_TEMPFAIL` of sysexits.h).
const EXIT_SNOOZE: i32 = 75;
/// Exit code for "never" (`EX_DATAERR`).
const EXIT_BURY: i32 = 65;

/// Runs the command for one call.
pub(crate) async fn run(
    command: Arc<[String]>,
    batch: Batch<Payload>,
    context: Context,
) -> Result<Outcomes, Failure> {
    let call = Call::document(&batch)?;
    let (group, mut child) = start(&command, &batch).map_err(|error| {
        Unstartable(format!("{}: {error}", command.first().map_or("", String::as_str)))
    })?;
    let feed = tokio::spawn(feed(child.stdin.take(), call.line));
    let queue: Arc<str> = batch.queue().into();
    let stdout = tokio::spawn(last_line(child.stdout.take(), queue.clone()));
    let stderr = tokio::spawn(tail(child.stderr.take(), queue));
    let status = group.ended(&mut child, &context).await;
    // What it left behind would work on beside the next holder of the key. It also holds the pipes.
    drop(group);
    feed.abort();
    let output = timeout(DRAIN_MAX, async { tokio::join!(stdout, stderr) }).await;
    let (stdout, stderr) = output.map_or((None, None), |(out, err)| (out.ok(), err.ok()));
    let status = status.map_err(|e| format!("its end cannot be learned: {e}"))?;
    Ok(conclude(&batch, status, stdout.flatten().as_ref(), &stderr.unwrap_or_default())?)
}

fn start(command: &[String], batch: &Batch<Payload>) -> std::io::Result<(Group, Child)> {
    let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::NotFound)?;
    let mut process = Command::new(program);
    process.args(arguments).env("SERIATIM_JOB_QUEUE", batch.queue());
    if let [lane] = batch.lanes() {
        // A variable cannot hold a zero byte; such a key stands in the document only.
        if let Some(key) = lane.turn().key.as_deref().filter(|key| !key.contains('\0')) {
            process.env("SERIATIM_JOB_KEY", key);
        }
        process.env("SERIATIM_JOB_TOKEN", lane.token().to_string());
        process.env("SERIATIM_JOB_ATTEMPT", lane.attempt().to_string());
    }
    let call = trace::of_call();
    let of_lane = || match batch.lanes() {
        [lane] => trace::of_turn(lane.turn()),
        _ => None,
    };
    if let Some(traceparent) = call.as_deref().or_else(of_lane) {
        process.env("TRACEPARENT", traceparent);
    }
    Group::spawn(&mut process)
}

async fn feed(stdin: Option<ChildStdin>, document: String) {
    if let Some(mut stdin) = stdin {
        // A command that does not read its input may still do its work.
        let _ = stdin.write_all(document.as_bytes()).await;
    }
}

/// Reads to the end; all goes to the log, the last line is kept.
async fn last_line(from: Option<impl AsyncRead + Unpin>, queue: Arc<str>) -> Option<Line> {
    let mut lines = Lines::new(from?, LINE_BYTES_MAX);
    let mut last = None;
    while let Some(line) = lines.next().await {
        tracing::debug!(queue = &*queue, stream = "stdout", "{}", for_log(&line.text));
        last = Some(line);
    }
    last
}

async fn tail(from: Option<impl AsyncRead + Unpin>, queue: Arc<str>) -> Tail {
    let mut tail = Tail::default();
    let Some(from) = from else { return tail };
    let mut lines = Lines::new(from, LOG_LINE_BYTES_MAX);
    while let Some(line) = lines.next().await {
        tracing::debug!(queue = &*queue, stream = "stderr", "{}", line.text);
        tail.add(&line.text);
    }
    tail
}

/// The exit code says how all lanes end, but for those that a last line names.
fn conclude(
    batch: &Batch<Payload>,
    status: ExitStatus,
    last_line: Option<&Line>,
    stderr: &Tail,
) -> Result<Outcomes, String> {
    let error = stderr.text().unwrap_or_else(|| format!("the command ended with {status}"));
    let results =
        last_line.filter(|line| !line.is_cut).and_then(|line| protocol::last_line(&line.text));
    let by_code = match status.code() {
        Some(0) => Outcome::Done,
        Some(EXIT_SNOOZE) => Outcome::Snooze { length: SNOOZE },
        Some(EXIT_BURY) => Outcome::Bury { error: error.into() },
        // Without results this is an error of the whole call: the engine knows whether it was the
        // command's own fault, or that of a timeout or a stop.
        _ if results.is_none() => return Err(error),
        _ => Outcome::Retry { error: error.into(), retry_in: None },
    };
    Ok(match results {
        Some(results) => protocol::outcomes(batch, &results, &by_code),
        None => by_code.into(),
    })
}
