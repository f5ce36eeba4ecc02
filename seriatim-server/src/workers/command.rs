//! Command workers: one process for each call, the call as one JSON document on its stdin.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use seriatim::{Batch, Context, Failure, Outcome, Outcomes, Payload, engine::Unstartable};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};

use super::answer::{self, Fault, Heard, Held, Said};
use super::group::{Ended, Group};
use super::lines::{self, LINE_BYTES_MAX, LOG_LINE_BYTES_MAX, Line, Lines, Tail};
use super::messages::Call;
use super::printed::Printed;
use super::stopped::{given_up, must_end};
use crate::config::Launch;
use crate::protocol::outcome::SNOOZE;
use crate::trace;

/// Exit code for "later" (`EX_TEMPFAIL` of sysexits.h).
const EXIT_SNOOZE: i32 = 75;
/// Exit code for "never" (`EX_DATAERR`).
const EXIT_BURY: i32 = 65;

/// Runs the command for one call.
pub(crate) async fn run(
    launch: Launch,
    printed: Printed,
    batch: Batch<Payload>,
    context: Context,
) -> Result<Outcomes, Failure> {
    let call = Call::document(&batch, &context).await?;
    let (group, mut child) = start(&launch, &batch)
        .await
        .map_err(|error| Unstartable(format!("{}: {error}", launch.name())))?;
    let mut stdout = child.stdout.take().map(|from| Lines::new(from, LINE_BYTES_MAX));
    let mut stderr = child.stderr.take().map(|from| Lines::new(from, LOG_LINE_BYTES_MAX));
    let mut answer =
        Reading { held: Held::new(&call.batch, &batch), said: None, fault: None, suspect: None };
    let (mut tail, stdin) = (Tail::default(), child.stdin.take());
    let talking = async {
        let listening = async {
            while let Some(line) = lines::next(&mut stdout).await {
                answer.hear(&line, &context, &printed);
            }
        };
        let complaining = async {
            while let Some(line) = lines::next(&mut stderr).await {
                complain(&line, &mut tail, &printed);
            }
        };
        tokio::join!(feed(stdin, call.line), listening, complaining);
    };
    let ended = group.ended_and_read(&mut child, context.cancelled(), talking).await;
    // Where something still holds a pipe, what was read of the last line counts.
    if let Some(line) = stdout.as_mut().and_then(Lines::rest) {
        answer.hear(&line, &context, &printed);
    }
    if let Some(line) = stderr.as_mut().and_then(Lines::rest) {
        complain(&line, &mut tail, &printed);
    }
    let ended = ended.map_err(|e| format!("its exit status is unknown: {e}"))?;
    Ok(conclude(answer, ended, &tail, &context)?)
}

async fn start(launch: &Launch, batch: &Batch<Payload>) -> std::io::Result<(Group, Child)> {
    let mut process = launch.command()?;
    process.env("SERIATIM_JOB_QUEUE", batch.queue());
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
    Group::spawn(process, Stdio::piped()).await
}

async fn feed(stdin: Option<ChildStdin>, document: String) {
    if let Some(mut stdin) = stdin {
        // A command that does not read its input may still do its work.
        let _ = stdin.write_all(document.as_bytes()).await;
    }
}

/// What a command has answered so far.
struct Reading {
    held: Held,
    said: Option<Said>,
    /// Why it is invalid.
    fault: Option<String>,
    /// Output that looks like an answer, if none comes.
    suspect: Option<String>,
}

impl Reading {
    fn hear(&mut self, line: &Line, context: &Context, printed: &Printed) {
        printed.line("stdout", &line.text);
        let heard = match answer::read(line) {
            Heard::Output => Ok(()),
            Heard::Progress { batch, lane, progress } => {
                let named = self.held.check_name(batch.as_deref());
                named.and_then(|()| self.held.check_lane("lane", lane)).map(|_| {
                    if let Err(error) = context.progress_of(lane, &progress) {
                        printed.warn(&error.to_string());
                    }
                })
            }
            Heard::Step { .. } => {
                Err("a command cannot have steps, because it gets no answers: make it a `process`"
                    .to_owned())
            }
            Heard::Answer { batch, said } => self.answered(batch.as_deref(), said),
            Heard::Suspect(why) => {
                self.suspect.get_or_insert(why);
                Ok(())
            }
            Heard::Fault(Fault { why, .. }) => Err(why),
        };
        if let Err(why) = heard {
            self.fault.get_or_insert(why);
        }
    }

    fn answered(&mut self, batch: Option<&str>, said: Said) -> Result<(), String> {
        self.held.check_name(batch)?;
        self.held.check(&said)?;
        match self.said.replace(said) {
            Some(before)
                if !self.said.as_ref().is_some_and(|said| self.held.is_same(said, &before)) =>
            {
                Err("it printed two different answers: print one".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn complain(line: &Line, tail: &mut Tail, printed: &Printed) {
    printed.line("stderr", &line.text);
    tail.add(&line.text);
}

/// The exit code decides how all lanes end, except those that the answer names.
fn conclude(
    answer: Reading,
    ended: Ended,
    stderr: &Tail,
    context: &Context,
) -> Result<Outcomes, String> {
    let Reading { held, said, fault, suspect } = answer;
    if let Some(why) = fault.or_else(|| suspect.filter(|_| said.is_none())) {
        return Err(with_words(format!("invalid answer of the command: {why}"), stderr));
    }
    let status = ended.status;
    let error = stderr.text().unwrap_or_else(|| format!("the command ended with {status}"));
    // A signal was ours then, and many programs end with 0 when they are asked to end: neither tells how the work went.
    let says_nothing = ended.is_asked && (status.signal().is_some() || status.success());
    let Some(said) = said else {
        return if says_nothing { Err(error) } else { by_code(status, error).map(Outcomes::from) };
    };
    // It hears SIGTERM whatever the reason: then `cancel` means that it gave up, not that the jobs are unwanted.
    let said = match ended.is_asked && must_end(context) {
        true => said.with_cancel_as(&given_up(context, &error)),
        false => said,
    };
    if says_nothing {
        return Ok(said.outcomes(&held, &given_up(context, &error)));
    }
    if let Some(why) = contradiction(&said, &held, status) {
        return Err(with_words(format!("invalid answer of the command: {why}"), stderr));
    }
    let unnamed = by_code(status, error)
        .unwrap_or_else(|error| Outcome::Retry { error: error.into(), retry_in: None });
    Ok(said.outcomes(&held, &unnamed))
}

/// Without an answer a failure is an error of the whole call: the engine knows whether it was the
/// command's own fault, or that of a timeout or a stop.
fn by_code(status: ExitStatus, error: String) -> Result<Outcome, String> {
    match status.code() {
        Some(0) => Ok(Outcome::Done),
        Some(EXIT_SNOOZE) => Ok(Outcome::Snooze { length: SNOOZE }),
        Some(EXIT_BURY) => Ok(Outcome::Bury { error: error.into() }),
        _ => Err(error),
    }
}

/// Why the exit code cannot be true if the answer is: it is no lane's outcome.
fn contradiction(said: &Said, held: &Held, status: ExitStatus) -> Option<String> {
    let outcomes = said.of_every_lane(held)?;
    let (is_meant, meaning): (fn(&Outcome) -> bool, _) = match status.code() {
        Some(0) => return None,
        Some(EXIT_SNOOZE) => (|it| matches!(it, Outcome::Snooze { .. }), "later"),
        Some(EXIT_BURY) => (|it| matches!(it, Outcome::Bury { .. }), "to the morgue"),
        _ => (|it| *it != Outcome::Done, "a failure"),
    };
    let is_borne_out = outcomes.into_iter().any(is_meant);
    (!is_borne_out).then(|| {
        format!("{status} means \"{meaning}\", which contradicts its `results`: with results for all lanes, exit with 0")
    })
}

fn with_words(error: String, stderr: &Tail) -> String {
    match stderr.text() {
        Some(words) => format!("{error}; its output:\n{words}"),
        None => error,
    }
}
