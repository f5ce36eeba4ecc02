//! The line of callers with a single job each: one pushes, and those that arrive meanwhile go together in the next push.
//!
//! Whoever has pushed hands the lead to a caller that still waits. So the next push runs on the runtime of that caller,
//! whatever becomes of the one before: it may be dropped, panic, or end with its runtime. It is a task of its own: a caller
//! whose future nobody polls, as between two items of a stream, holds up nobody. One that takes long, as behind a key that
//! a user's transaction has locked, hands it on before its end: jobs of its keys wait for it, and others go beside it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::slow::{Lock, SLOW_AFTER, Slow, locks_of};
use super::{Shared, only};
use crate::contract::Pushed;
use crate::lock::lock;
use crate::model::{Error, ErrorKind, Job, Result};

const GROUP_JOBS_MAX: usize = 1_000;
/// Most payload bytes in a group; a single job may be larger.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// A push in the future of its caller, or that has not begun, is not polled if it still leads this long after it was
/// polled last: a slow one would have handed the lead on, or waits for that and says that it is polled.
const STALLED_AFTER: Duration = SLOW_AFTER.saturating_mul(2);

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
    /// When it was last known to be polled; `None`: it is a task, which its runtime polls.
    polled_at: Option<Instant>,
    /// Which lead this is: one that was taken over hands nothing on.
    number: u64,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    job: Job,
    answer: oneshot::Sender<Result<Pushed>>,
    runtime: Handle,
}

/// Leadership of the line, and its number. Its drop, also by cancellation or a panic, hands it on.
struct Leading(Arc<Shared>, u64);

/// At the drop, what waited for a slow push can go.
struct Passed<'a>(&'a Arc<Shared>);

impl Drop for Leading {
    fn drop(&mut self) {
        while let Some((waiting, number)) = self.0.line.next(self.1) {
            self.1 = number;
            if !waiting.answer.is_closed() {
                let (leading, runtime) = (Self(self.0.clone(), number), waiting.runtime.clone());
                // If the runtime ends now, the lead is dropped with the task, and handed on again.
                runtime.spawn(leading.push_group(waiting));
                return;
            }
        }
    }
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        let leading = {
            let mut state = lock(&self.0.line.state);
            (!state.led).then(|| Leading(self.0.clone(), state.lead()))
        };
        drop(leading);
    }
}

impl State {
    /// Begins a lead; returns its number.
    fn lead(&mut self) -> u64 {
        (self.led, self.polled_at, self.number) = (true, Some(Instant::now()), self.number + 1);
        self.number
    }
}

impl Line {
    /// The next one to lead, and the number of its lead.
    fn next(&self, number: u64) -> Option<(Waiting, u64)> {
        let mut state = lock(&self.state);
        if state.number != number {
            return None;
        }
        let place = state.waiting.iter().position(|waiting| !self.slow.holds_up(&waiting.job));
        state.led = false;
        let waiting = state.waiting.remove(place?)?;
        Some((waiting, state.lead()))
    }

    /// Notes that this lead has begun as a task.
    fn runs(&self, number: u64) {
        let mut state = lock(&self.state);
        if state.number == number {
            state.polled_at = None;
        }
    }

    /// Notes that the future of this lead is polled.
    fn is_polled(&self, number: u64) {
        let mut state = lock(&self.state);
        if state.number == number && state.polled_at.is_some() {
            state.polled_at = Some(Instant::now());
        }
    }
}

impl Shared {
    /// Pushes a job: at once if nobody else pushes, otherwise with those of others.
    pub(super) async fn push_in_line(self: &Arc<Self>, job: Job) -> Result<Pushed> {
        let (answer, mut answered) = oneshot::channel();
        let caller = Waiting { job, answer, runtime: Handle::current() };
        if let Some((leading, job)) = self.enter(caller) {
            return self.push_one(&mut Some(leading), job).await;
        }
        loop {
            match timeout(STALLED_AFTER, &mut answered).await {
                Ok(Ok(pushed)) => return pushed,
                Ok(Err(_)) => {
                    let why =
                        "the push of several callers' jobs panicked, or its runtime has ended";
                    return Err(Error::new(ErrorKind::Unavailable, why));
                }
                Err(_) => drop(self.taken_over()),
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
        Some((Leading(self.clone(), state.lead()), caller.job))
    }

    /// The lead that has stalled, if it has.
    fn taken_over(self: &Arc<Self>) -> Option<Leading> {
        let mut state = lock(&self.line.state);
        let has_stalled = state.polled_at.is_some_and(|at| at.elapsed() >= STALLED_AFTER);
        (state.led && has_stalled).then(|| Leading(self.clone(), state.lead()))
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
        let number = lead.as_ref().map(|lead| lead.1);
        let is_polled = || number.into_iter().for_each(|number| self.line.is_polled(number));
        tokio::select! {
            biased;
            pushed = &mut push => pushed,
            slow = self.line.slow.begin(is_polled, locks) => {
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
        shared.line.runs(self.1);
        let followers = self.followers(first.job.payload.as_bytes().len());
        let group = [first].into_iter().chain(followers);
        let (jobs, answers): (Vec<Job>, Vec<_>) =
            group.map(|waiting| (waiting.job, waiting.answer)).unzip();
        let (copies, lead) = (jobs.clone(), &mut Some(self));
        let locks = || copies.iter().flat_map(locks_of).collect();
        match shared.push_leading(lead, jobs, locks).await {
            Ok(pushed) => {
                for (answer, pushed) in answers.into_iter().zip(pushed) {
                    let _ = answer.send(Ok(pushed));
                }
            }
            // One invalid job refuses the whole batch: each caller gets the error of its own job.
            Err(error) if error.is_refusal() => {
                for (job, answer) in copies.into_iter().zip(answers) {
                    let pushed = shared.push_one(lead, job).await;
                    let _ = answer.send(pushed);
                }
            }
            // The batch may be stored although the answer was lost, or cannot be used, so another push could duplicate
            // it. Each caller decides for its own job.
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Err(same(&error)));
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

/// A copy of the error for another caller. Causes cannot be cloned, so the text includes them.
fn same(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}
