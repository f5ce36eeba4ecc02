//! The life of one call in a worker process.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use seriatim::{Batch, Context, Failure, JobId, Outcome, Outcomes, Payload, store::LaneId};
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::Held;
use super::messages::{self, Call};
use super::process::{Answer, End, Handed, Order, Process};
use super::seats::Seats;
use super::stopped::given_up;
use super::told::Told;

/// How long a process may take to answer a call that must end, after the `cancel` messages, before
/// it is ended itself. With the process' own grace it stays within the engine's patience, so that
/// the process is gone before its lanes can run elsewhere.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// How long a process that has never answered a call may say nothing about one before there is a
/// warning: most likely it waits for something, or does not flush what it writes. Each further warning
/// of a call comes after twice as long.
const SILENCE_NEW: Duration = Duration::from_secs(10);
/// The same for a process that has answered before: it knows how.
const SILENCE_KNOWN: Duration = Duration::from_secs(600);

/// Runs one call in one of the processes.
pub(crate) async fn run(
    seats: Arc<Seats>,
    told: Told,
    batch: Batch<Payload>,
    context: Context,
) -> Result<Outcomes, Failure> {
    // What has a crash behind it may be what kills the process: it takes no other call with it.
    let mut alone = batch.lanes().iter().any(|lane| lane.turn().crashes > 0);
    loop {
        let call = Call::message(&batch, &context).await?;
        let seat = tokio::select! {
            // Before a seat: the process that did not get the call may have been ended because the call must end.
            biased;
            // It has not begun, so it does not count.
            () = context.cancelled() => return Ok(Outcome::Release.into()),
            seat = seats.take(alone) => seat?,
        };
        let held = Held::new(&call.batch, &batch);
        let mut talk = Talk::new(seat.process(), &told, &call, &batch, &context);
        let answer = talk.run(call, held.clone()).await;
        talk.is_over = true;
        match (answer, talk.fault.take()) {
            (Answer::NeverSent | Answer::Torn(End { is_ours: true, .. }), None) => {}
            // Perhaps another call has ended it. Alone it is this one, as by a line that is too long for the program.
            (Answer::Torn(_), None) if !alone => alone = true,
            (_, Some(why)) => return Err(unusable(&why)),
            (answer, None) => return conclude(&held, answer, talk.is_overdue, &context),
        }
    }
}

fn unusable(why: &str) -> Failure {
    format!("invalid answer of the worker: {why}").into()
}

fn conclude(
    held: &Held,
    answer: Answer,
    is_overdue: bool,
    context: &Context,
) -> Result<Outcomes, Failure> {
    match answer {
        Answer::Said(said) => {
            let error = "the worker's answer does not name this lane: `results` must name each lane of the call".into();
            let unnamed = Outcome::Retry { error, retry_in: None };
            // A process is asked to end with `cancel` whatever the reason: then its answer `cancel` means that it
            // gave up, not that the jobs are unwanted.
            let said = match context.must_end().now_or_never() {
                Some(()) => {
                    said.with_cancel_as(&given_up(context, "the worker process gave it up"))
                }
                None => said,
            };
            Ok(said.outcomes(held, &unnamed))
        }
        Answer::Unusable(why) => Err(unusable(&why)),
        Answer::Ended(End { text, .. }) if is_overdue => {
            Err(format!("the worker process did not answer and was ended: {text}").into())
        }
        // Another call of the process was overdue, or it was given up.
        Answer::Ended(End { is_ours: true, .. }) | Answer::NeverSent => Ok(Outcome::Release.into()),
        Answer::Ended(End { text, .. }) | Answer::Torn(End { text, .. }) => {
            Ok(Outcome::Crash { error: format!("the worker process died: {text}").into() }.into())
        }
    }
}

/// A call and the process that holds it.
struct Talk<'a> {
    process: &'a Arc<Process>,
    told: &'a Told,
    context: &'a Context,
    batch: String,
    lanes: Vec<(LaneId, Vec<JobId>)>,
    /// Jobs whose cancellation was sent. Some may not be among those that were handed over: those that have expired.
    cancelled: HashSet<JobId>,
    /// The process was told that all of its jobs are cancelled.
    is_all_told: bool,
    /// Its invalid messages about the call.
    fault: Option<Arc<str>>,
    is_overdue: bool,
    /// The silence was reported.
    is_told_silent: bool,
    is_over: bool,
}

impl<'a> Talk<'a> {
    fn new(
        process: &'a Arc<Process>,
        told: &'a Told,
        call: &Call,
        batch: &Batch<Payload>,
        context: &'a Context,
    ) -> Self {
        let lanes = batch.lanes().iter();
        let lanes = lanes.map(|lane| (lane.id(), lane.jobs().map(|(job, _)| job.id).collect()));
        Self {
            process,
            told,
            context,
            batch: call.batch.clone(),
            lanes: lanes.collect(),
            cancelled: HashSet::new(),
            is_all_told: false,
            fault: None,
            is_overdue: false,
            is_told_silent: false,
            is_over: false,
        }
    }

    async fn run(&mut self, call: Call, held: Held) -> Answer {
        let mut handed = self.process.perform(call, self.context.clone(), held).await;
        let mut silence = Silence::new(self.process.has_answered());
        let context = self.context;
        loop {
            tokio::select! {
                biased;
                answer = &mut handed.answer => return answer.unwrap_or(Answer::NeverSent),
                () = context.must_end() => break,
                Ok(()) = handed.news.changed() => {
                    self.fault.clone_from(&handed.news.borrow_and_update().fault);
                    if self.fault.is_some() {
                        break;
                    }
                    silence.is_broken();
                    self.is_heard();
                }
                flagged = context.flagged(self.cancelled.len()), if !context.is_cancelled() => {
                    self.cancel(flagged);
                }
                // All of its jobs are cancelled: the process may still finish.
                () = context.cancelled(), if !self.is_all_told => self.cancel_all(),
                () = sleep_until(silence.ends) => self.warn_of(&mut silence),
            }
        }
        self.cancel_all();
        self.end(handed).await
    }

    fn warn_of(&mut self, silence: &mut Silence) {
        if let Some(length) = silence.over(self.process.has_answered()) {
            let (batch, length) = (&self.batch, seriatim::duration::format(length));
            let what = format!(
                "no message about call {batch:?} for {length}: an answer is one complete, flushed line of JSON with this `batch`"
            );
            self.process.warn(&what);
            self.is_told_silent = true;
            self.is_silent(Some(&what));
        }
    }

    fn is_silent(&self, what: Option<&str>) {
        let (queue, pid) = (&*self.process.queue, self.process.pid);
        let tell = |left: Option<&str>| self.told.is_silent(queue, pid, left);
        self.process.silent.set(&self.batch, what, tell);
    }

    /// It has answered to the call, or the call is over.
    fn is_heard(&mut self) {
        if std::mem::take(&mut self.is_told_silent) {
            self.is_silent(None);
        }
    }

    /// It must end now: the process is asked, and then ended if that does not help.
    async fn end(&mut self, mut handed: Handed) -> Answer {
        let answer = &mut handed.answer;
        if let Ok(answer) = timeout(CANCEL_GRACE, &mut *answer).await {
            return answer.unwrap_or(Answer::NeverSent);
        }
        self.is_overdue = true;
        let (queue, pid) = (&*self.process.queue, self.process.pid);
        tracing::warn!(
            queue,
            pid,
            batch = self.batch,
            "ending a worker process that does not answer a call that must end"
        );
        self.process.order(Order::Terminate);
        answer.await.unwrap_or(Answer::NeverSent)
    }

    fn cancel(&mut self, flagged: Vec<(LaneId, Vec<JobId>)>) {
        for (lane, jobs) in flagged {
            let mut is_new = false;
            for job in &jobs {
                is_new |= self.cancelled.insert(*job);
            }
            if is_new {
                self.process.say(messages::cancel(&self.batch, lane, &jobs));
            }
        }
    }

    fn cancel_all(&mut self) {
        self.cancel(self.lanes.clone());
        self.is_all_told = true;
    }
}

/// How long nothing has been heard of a call.
struct Silence {
    began: Instant,
    ends: Instant,
    length: Duration,
}

impl Silence {
    fn new(is_known: bool) -> Self {
        let length = if is_known { SILENCE_KNOWN } else { SILENCE_NEW };
        let began = Instant::now();
        Self { began, ends: began + length, length }
    }

    fn is_broken(&mut self) {
        self.began = Instant::now();
        self.ends = self.began + self.length;
    }

    /// How long it has been, if that is worth a warning. A process that has answered another call
    /// meanwhile is believed for longer.
    fn over(&mut self, is_known: bool) -> Option<Duration> {
        if is_known && self.length < SILENCE_KNOWN {
            self.length = SILENCE_KNOWN;
            self.ends = self.began + self.length;
            return None;
        }
        let length = self.length;
        self.length *= 2;
        self.ends = self.began + self.length;
        Some(length)
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        self.is_heard();
        if !self.is_over {
            // The engine has given the call up, and its lanes may run elsewhere in a moment.
            self.process.order(Order::Kill);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_warned_about_ever_more_rarely_and_later_if_the_process_has_answered() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut silence = Silence::new(false);
        assert_eq!(silence.ends, now + SILENCE_NEW);
        assert_eq!((silence.over(false), silence.ends), (Some(second * 10), now + second * 20));
        assert_eq!((silence.over(false), silence.ends), (Some(second * 20), now + second * 40));
        tokio::time::advance(second).await;
        silence.is_broken();
        assert_eq!(silence.ends, now + second * 41, "progress begins it anew");
        assert_eq!((silence.over(true), silence.ends), (None, now + second + SILENCE_KNOWN));
        assert_eq!(silence.over(true), Some(SILENCE_KNOWN));
    }
}
