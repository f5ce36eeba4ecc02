//! Commands whose writes must be confirmed by replicas, or by the server's disk. A connection that waits for
//! confirmations does nothing else, so these commands have their own. Those that arrive meanwhile are sent together,
//! and wait for one confirmation.
//!
//! `WAIT` counts the writes of its connection, so script and confirmation are always of the same server. While
//! confirmations are missing, nothing is executed: what cannot be confirmed should not be written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::address::Options;
use super::line::{ANSWER_SOON, Failure, Line, is_replica_now};
use crate::lock::lock;

/// How long replicas or the disk may take to confirm a batch.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(5);
/// The same before the next batch, if it is doubtful whether there are enough copies.
const CONFIRM_AGAIN_WITHIN: Duration = Duration::from_millis(500);
/// A connection that has confirmed nothing for this long must do so before it executes anything.
const CONFIRMED_FOR: Duration = Duration::from_secs(1);
/// Most commands that wait for one confirmation.
const COMMANDS_MAX: usize = 100;

pub(super) struct Confirming {
    line: Arc<Line>,
    replicas: u32,
    fsync: bool,
    queue: Mutex<Queue>,
}

struct Queue {
    waiting: Vec<Waiting>,
    is_sending: bool,
    /// When a batch was confirmed, if the last one was.
    confirmed_at: Option<Instant>,
}

struct Waiting {
    cmd: Cmd,
    answer: oneshot::Sender<Result<Value, Failure>>,
}

/// The task that sends. It ends early with the runtime of the call that began it: then those that wait fail, and the next call
/// begins another one.
struct Sending {
    of: Arc<Confirming>,
    is_done: bool,
}

impl Sending {
    async fn run(mut self) {
        while let Some((batch, is_doubtful)) = self.of.take() {
            let result = self.of.send_batch(&batch, is_doubtful).await;
            let (answers, confirmed) = match result {
                Ok(answers) => answers,
                Err(failure) => {
                    for waiting in batch {
                        let _ = waiting.answer.send(Err(failure.clone()));
                    }
                    continue;
                }
            };
            lock(&self.of.queue).confirmed_at = confirmed.then(Instant::now);
            for (waiting, answer) in batch.into_iter().zip(answers) {
                let answer = match (answer.extract_error(), confirmed) {
                    (Err(error), _) => Err(Failure::of_server(error)),
                    (Ok(_), false) => Err(Failure::Unconfirmed { written: true }),
                    (Ok(answer), true) => Ok(answer),
                };
                let _ = waiting.answer.send(answer);
            }
        }
        self.is_done = true;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_done {
            let mut queue = lock(&self.of.queue);
            queue.is_sending = false;
            queue.waiting.clear();
        }
    }
}

impl Confirming {
    /// To the server of the other line.
    pub(super) fn new(other: &Line, options: &Options) -> Arc<Self> {
        let (replicas, fsync) = (options.wait_replicas, options.wait_fsync);
        let queue = Queue { waiting: Vec::new(), is_sending: false, confirmed_at: None };
        let within = other.within().max(CONFIRM_WITHIN + ANSWER_SOON);
        let line = Line::new(other.place().clone(), within);
        Arc::new(Self { line, replicas, fsync, queue: Mutex::new(queue) })
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    /// Sends a command, and returns its answer when its writes are confirmed.
    pub(super) async fn send(self: &Arc<Self>, cmd: &Cmd) -> Result<Value, Failure> {
        let (answer, answered) = oneshot::channel();
        if self.add(Waiting { cmd: cmd.clone(), answer }) {
            // A caller may go away while others wait with it.
            tokio::spawn(Sending { of: self.clone(), is_done: false }.run());
        }
        let gone = |_| Err(Failure::Sent((redis::ErrorKind::Io, "the call was given up").into()));
        answered.await.unwrap_or_else(gone)
    }

    /// True if nothing sends yet.
    fn add(&self, waiting: Waiting) -> bool {
        let mut queue = lock(&self.queue);
        queue.waiting.push(waiting);
        !std::mem::replace(&mut queue.is_sending, true)
    }

    fn take(&self) -> Option<(Vec<Waiting>, bool)> {
        let mut queue = lock(&self.queue);
        let count = queue.waiting.len().min(COMMANDS_MAX);
        queue.is_sending = count > 0;
        let is_doubtful = queue.confirmed_at.is_none_or(|at| at.elapsed() >= CONFIRMED_FOR);
        (count > 0).then(|| (queue.waiting.drain(..count).collect(), is_doubtful))
    }

    /// The answers to a batch, and whether its writes are confirmed.
    async fn send_batch(
        &self,
        batch: &[Waiting],
        is_doubtful: bool,
    ) -> Result<(Vec<Value>, bool), Failure> {
        if is_doubtful {
            let mut alone = Pipeline::new();
            alone.add_command(self.wait(CONFIRM_AGAIN_WITHIN));
            let answer = self.line.send_all(&alone).await.map_err(Failure::before)?.pop();
            if !self.is_confirmed(answer).map_err(Failure::Unsent)? {
                return Err(Failure::Unconfirmed { written: false });
            }
        }
        let mut commands = Pipeline::new();
        for waiting in batch {
            commands.add_command(waiting.cmd.clone());
        }
        commands.add_command(self.wait(CONFIRM_WITHIN));
        let mut answers = self.line.send_all(&commands).await?;
        let confirmed = self.is_confirmed(answers.pop());
        let is_refused = |answer: &Value| matches!(answer, Value::ServerError(_));
        // What was refused needs no confirmation.
        let confirmed = match confirmed {
            _ if answers.iter().all(is_refused) => true,
            // Another server is the master now, and lacks what this one wrote last.
            Err(error) if is_replica_now(&error) => false,
            confirmed => confirmed.map_err(Failure::Sent)?,
        };
        Ok((answers, confirmed))
    }

    fn wait(&self, within: Duration) -> Cmd {
        let mut cmd = redis::cmd(if self.fsync { "WAITAOF" } else { "WAIT" });
        if self.fsync {
            cmd.arg(1);
        }
        cmd.arg(self.replicas).arg(within.as_millis() as u64);
        cmd
    }

    fn is_confirmed(&self, answer: Option<Value>) -> RedisResult<bool> {
        let enough =
            |number: &Value, least: u32| matches!(number, Value::Int(n) if *n >= i64::from(least));
        Ok(match answer.unwrap_or(Value::Nil).extract_error()? {
            Value::Array(both) => {
                both.len() == 2 && enough(&both[0], 1) && enough(&both[1], self.replicas)
            }
            number => enough(&number, self.replicas),
        })
    }
}

impl Failure {
    /// The failure of what was sent before the command.
    fn before(self) -> Self {
        match self {
            Self::Sent(error) => Self::Unsent(error),
            failure => failure,
        }
    }

    /// The failure of one of several commands.
    pub(super) fn of_server(error: RedisError) -> Self {
        match super::line::is_refused(&error) {
            true => Self::Unsent(error),
            false => Self::Sent(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::redis::line::Place;

    /// Its runtime may end before it has begun.
    #[tokio::test]
    async fn a_task_that_ends_early_takes_no_later_command_with_it() {
        let nobody = redis::Client::open("redis://127.0.0.1:1/").unwrap();
        let line = Line::new(Place::At(Arc::new(nobody)), ANSWER_SOON);
        let confirming = Confirming::new(&line, &Options::default());
        let (answer, answered) = oneshot::channel();
        assert!(confirming.add(Waiting { cmd: redis::cmd("PING"), answer }));
        drop(Sending { of: confirming.clone(), is_done: false }.run());
        assert!(answered.await.is_err(), "it would wait for ever");
        let sent = confirming.send(&redis::cmd("PING")).await;
        assert!(matches!(sent, Err(Failure::Unsent(_))), "{sent:?}");
    }
}
