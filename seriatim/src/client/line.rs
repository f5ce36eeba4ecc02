//! The line of callers with a single job each: one pushes, and those that arrive meanwhile go together in the next push.
//!
//! Whoever has pushed hands the lead to a caller that still waits. So the next push runs where that caller runs, whatever
//! becomes of the one before: it may be dropped, panic, or end with its runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::Shared;
use crate::contract::Pushed;
use crate::lock::lock;
use crate::model::{Error, ErrorKind, Job, Result};

const GROUP_JOBS_MAX: usize = 1_000;
/// Most payload bytes in a group; a single job may be larger.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Callers that wait behind the push under way.
#[derive(Default)]
pub(super) struct Line(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether a caller is pushing now; it looks at `waiting` afterwards.
    led: bool,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    job: Job,
    answer: oneshot::Sender<Answer>,
}

/// The answer to a waiting caller.
enum Answer {
    Pushed(Result<Pushed>),
    /// It pushes next, its own job and those of others.
    Leads(Box<(Leading, Job)>),
}

/// Leadership of the line. Its drop, also by cancellation or a panic, hands it on.
struct Leading(Arc<Shared>);

impl Drop for Leading {
    fn drop(&mut self) {
        loop {
            let next = {
                let mut state = lock(&self.0.line.0);
                let next = state.waiting.pop_front();
                state.led = next.is_some();
                next
            };
            let Some(Waiting { job, answer }) = next else { return };
            if !answer.is_closed() {
                // If the caller leaves now, the lead is dropped with the answer, and handed on again.
                let _ = answer.send(Answer::Leads(Box::new((Self(self.0.clone()), job))));
                return;
            }
        }
    }
}

/// How a caller begins.
enum Entered {
    Leads(Box<(Leading, Job)>),
    Waits(oneshot::Receiver<Answer>),
}

impl Shared {
    /// Pushes a job: at once if nobody else pushes, otherwise with those of others.
    pub(super) async fn push_in_line(self: &Arc<Self>, job: Job) -> Result<Pushed> {
        let mut answered = match self.enter(job) {
            Entered::Leads(lead) => {
                let (_leading, job) = *lead;
                return self.push_alone(job).await;
            }
            Entered::Waits(answered) => answered,
        };
        loop {
            match answered.await {
                Ok(Answer::Pushed(pushed)) => return pushed,
                Ok(Answer::Leads(lead)) => {
                    let (leading, job) = *lead;
                    let (answer, again) = oneshot::channel();
                    // A caller that gives up must not take the others' push with it.
                    tokio::spawn(leading.push_group(Waiting { job, answer }));
                    answered = again;
                }
                Err(_) => {
                    let why =
                        "the push of several callers' jobs panicked, or its runtime has ended";
                    return Err(Error::new(ErrorKind::Unavailable, why));
                }
            }
        }
    }

    fn enter(self: &Arc<Self>, job: Job) -> Entered {
        let mut state = lock(&self.line.0);
        if !state.led {
            state.led = true;
            return Entered::Leads(Box::new((Leading(self.clone()), job)));
        }
        let (answer, answered) = oneshot::channel();
        state.waiting.push_back(Waiting { job, answer });
        Entered::Waits(answered)
    }
}

impl Leading {
    /// Pushes the job of the caller that leads, and those of callers behind it.
    async fn push_group(self, first: Waiting) {
        let followers = self.followers(first.job.payload.as_bytes().len());
        let group = [first].into_iter().chain(followers);
        let (jobs, answers): (Vec<Job>, Vec<_>) =
            group.map(|waiting| (waiting.job, waiting.answer)).unzip();
        let copies = jobs.clone();
        match self.0.push(jobs).await {
            Ok(pushed) => {
                for (answer, pushed) in answers.into_iter().zip(pushed) {
                    let _ = answer.send(Answer::Pushed(Ok(pushed)));
                }
            }
            // The batch may be stored although its answer was lost, so another push could duplicate it. Each caller
            // decides for its own job.
            Err(error) if error.is_transient() => {
                for answer in answers {
                    let _ = answer.send(Answer::Pushed(Err(same(&error))));
                }
            }
            // One invalid job refuses the whole batch: each caller gets the error of its own job.
            Err(_) => {
                for (job, answer) in copies.into_iter().zip(answers) {
                    let _ = answer.send(Answer::Pushed(self.0.push_alone(job).await));
                }
            }
        }
    }

    /// Takes those that go with the caller that leads, whose payload has so many bytes.
    fn followers(&self, mut bytes: usize) -> Vec<Waiting> {
        let mut state = lock(&self.0.line.0);
        let fits = state.waiting.iter().take(GROUP_JOBS_MAX - 1).take_while(|waiting| {
            bytes += waiting.job.payload.as_bytes().len();
            bytes <= GROUP_BYTES_MAX
        });
        let count = fits.count();
        state.waiting.drain(..count).collect()
    }
}

/// A copy of the error for another caller. Causes cannot be cloned, so the text includes them.
fn same(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}
