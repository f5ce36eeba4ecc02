//! The line of callers with a single job each: one pushes, and those that arrive meanwhile go together in the next push.
//!
//! Whoever has pushed hands the lead to a caller that still waits. So the next push runs where that caller runs, whatever
//! becomes of the one before: it may be dropped, panic, or end with its runtime. One that takes long, as behind a key that
//! a user's transaction has locked, hands it on before its end: jobs of its keys wait for it, and others go beside it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::slow::{Lock, Slow, locks_of};
use super::{Shared, only};
use crate::contract::Pushed;
use crate::lock::lock;
use crate::model::{Error, ErrorKind, Job, Result};

const GROUP_JOBS_MAX: usize = 1_000;
/// Most payload bytes in a group; a single job may be larger.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Callers that wait behind the push under way.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    /// Pushes that have handed the lead on before their ends.
    slow: Slow,
}

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

/// At the drop, what waited for a slow push can go.
struct Passed<'a>(&'a Arc<Shared>);

impl Drop for Leading {
    fn drop(&mut self) {
        loop {
            let Some(Waiting { job, answer }) = self.0.line.next() else { return };
            if !answer.is_closed() {
                // If the caller leaves now, the lead is dropped with the answer, and handed on again.
                let _ = answer.send(Answer::Leads(Box::new((Self(self.0.clone()), job))));
                return;
            }
        }
    }
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        let led = std::mem::replace(&mut lock(&self.0.line.state).led, true);
        if !led {
            drop(Leading(self.0.clone()));
        }
    }
}

impl Line {
    /// The next one to lead.
    fn next(&self) -> Option<Waiting> {
        let mut state = lock(&self.state);
        let place = state.waiting.iter().position(|waiting| !self.slow.holds_up(&waiting.job));
        state.led = place.is_some();
        state.waiting.remove(place?)
    }
}

impl Shared {
    /// Pushes a job: at once if nobody else pushes, otherwise with those of others.
    pub(super) async fn push_in_line(self: &Arc<Self>, job: Job) -> Result<Pushed> {
        let (answer, mut answered) = oneshot::channel();
        if let Some((leading, job)) = self.enter(Waiting { job, answer }) {
            return self.push_one(&mut Some(leading), job).await;
        }
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

    /// The lead, with the job, if nobody has it.
    fn enter(self: &Arc<Self>, caller: Waiting) -> Option<(Leading, Job)> {
        let mut state = lock(&self.line.state);
        if state.led || self.line.slow.holds_up(&caller.job) {
            state.waiting.push_back(caller);
            return None;
        }
        state.led = true;
        Some((Leading(self.clone()), caller.job))
    }

    async fn push_one(self: &Arc<Self>, lead: &mut Option<Leading>, job: Job) -> Result<Pushed> {
        let locks = locks_of(&job).collect();
        only(self.push_leading(lead, vec![job], || locks).await)
    }

    /// Pushes jobs. If that is slow, hands the lead on: then it asks for the `locks` of the jobs.
    async fn push_leading(
        self: &Arc<Self>,
        lead: &mut Option<Leading>,
        jobs: Vec<Job>,
        locks: impl FnOnce() -> Vec<Lock>,
    ) -> Result<Vec<Pushed>> {
        let mut push = pin!(self.push(jobs));
        tokio::select! {
            biased;
            pushed = &mut push => pushed,
            slow = self.line.slow.begin(locks) => {
                // Dropped behind the other.
                let _passed = Passed(self);
                let _slow = slow;
                *lead = None;
                push.await
            }
        }
    }
}

impl Leading {
    /// Pushes the job of the caller that leads, and those of callers behind it.
    async fn push_group(self, first: Waiting) {
        let shared = self.0.clone();
        let followers = self.followers(first.job.payload.as_bytes().len());
        let group = [first].into_iter().chain(followers);
        let (jobs, answers): (Vec<Job>, Vec<_>) =
            group.map(|waiting| (waiting.job, waiting.answer)).unzip();
        let (copies, lead) = (jobs.clone(), &mut Some(self));
        let locks = || copies.iter().flat_map(locks_of).collect();
        match shared.push_leading(lead, jobs, locks).await {
            Ok(pushed) => {
                for (answer, pushed) in answers.into_iter().zip(pushed) {
                    let _ = answer.send(Answer::Pushed(Ok(pushed)));
                }
            }
            // One invalid job refuses the whole batch: each caller gets the error of its own job.
            Err(error) if is_refusal(&error) => {
                for (job, answer) in copies.into_iter().zip(answers) {
                    let pushed = shared.push_one(lead, job).await;
                    let _ = answer.send(Answer::Pushed(pushed));
                }
            }
            // The batch may be stored although the answer was lost, or cannot be used, so another push could duplicate
            // it. Each caller decides for its own job.
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Answer::Pushed(Err(same(&error))));
                }
            }
        }
    }

    /// Takes those that go with the caller that leads, whose payload has so many bytes.
    fn followers(&self, mut bytes: usize) -> Vec<Waiting> {
        let mut state = lock(&self.0.line.state);
        let (waiting, mut jobs) = (std::mem::take(&mut state.waiting), 1);
        let mut fits = |waiting: &Waiting| {
            jobs += 1;
            bytes += waiting.job.payload.as_bytes().len();
            jobs <= GROUP_JOBS_MAX && bytes <= GROUP_BYTES_MAX
        };
        let slow = &self.0.line.slow;
        let goes = |waiting: &Waiting| !slow.holds_up(&waiting.job) && fits(waiting);
        let (followers, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(goes);
        state.waiting = rest.into();
        followers
    }
}

/// Whether the store refused the jobs, so that none is stored.
fn is_refusal(error: &Error) -> bool {
    use ErrorKind::{Conflict, Invalid, NotFound, Unsupported};
    matches!(error.kind(), Invalid | NotFound | Conflict | Unsupported)
}

/// A copy of the error for another caller. Causes cannot be cloned, so the text includes them.
fn same(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}
