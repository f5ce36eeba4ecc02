//! The life of one call in a worker process.

use std::sync::Arc;
use std::time::Duration;

use seriatim::{Batch, Context, Failure, JobId, LaneId, Outcome, Outcomes, Payload};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::process::{Answer, End, Order, Process};
use super::protocol::{self, Call};
use super::seats::Seats;

/// How long a process may take to answer a call that must end, after the `cancel` messages, before
/// it is ended itself. With the process' own grace it stays within the engine's patience, so that
/// the process is gone before its lanes can run elsewhere.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Runs one call in one of the processes.
pub(crate) async fn run(
    seats: Arc<Seats>,
    batch: Batch<Payload>,
    context: Context,
) -> Result<Outcomes, Failure> {
    // What has a crash behind it may be what kills the process: it takes no other call with it.
    let alone = batch.lanes().iter().any(|lane| lane.turn().crashes > 0);
    loop {
        let call = Call::message(&batch)?;
        let seat = tokio::select! {
            seat = seats.take(alone) => seat?,
            // It has not begun, so it does not count.
            () = context.cancelled() => return Ok(Outcome::Release.into()),
        };
        let mut talk = Talk::new(seat.process(), &call, &batch, &context);
        let answer = talk.run(call).await;
        talk.is_over = true;
        match answer {
            Answer::NeverSent => {}
            answer => return conclude(&batch, answer, talk.is_overdue),
        }
    }
}

fn conclude(batch: &Batch<Payload>, answer: Answer, is_overdue: bool) -> Result<Outcomes, Failure> {
    match answer {
        Answer::Done => Ok(Outcomes::new()),
        Answer::Results(results) => {
            let error = "the worker's result does not name this lane".into();
            let unnamed = Outcome::Retry { error, retry_in: None };
            Ok(protocol::outcomes(batch, &results, &unnamed))
        }
        Answer::Unreadable(why) => Err(format!("the worker's result cannot be read: {why}").into()),
        Answer::Ended(End { text, .. }) if is_overdue => {
            Err(format!("the worker process did not answer and was ended: {text}").into())
        }
        // Another call of the process was overdue, or it was given up.
        Answer::Ended(End { is_ours: true, .. }) | Answer::NeverSent => Ok(Outcome::Release.into()),
        Answer::Ended(End { text, .. }) => {
            Ok(Outcome::Crash { error: format!("the worker process died: {text}").into() }.into())
        }
    }
}

/// A call and the process that holds it.
struct Talk<'a> {
    process: &'a Arc<Process>,
    context: &'a Context,
    batch: String,
    lanes: Vec<(LaneId, Vec<JobId>)>,
    /// Jobs of which a cancellation has been told.
    told: Vec<JobId>,
    is_overdue: bool,
    is_over: bool,
}

impl<'a> Talk<'a> {
    fn new(
        process: &'a Arc<Process>,
        call: &Call,
        batch: &Batch<Payload>,
        context: &'a Context,
    ) -> Self {
        let lanes = batch.lanes().iter();
        let lanes = lanes.map(|lane| (lane.id(), lane.jobs().map(|(job, _)| job.id).collect()));
        Self {
            process,
            context,
            batch: call.batch.clone(),
            lanes: lanes.collect(),
            told: Vec::new(),
            is_overdue: false,
            is_over: false,
        }
    }

    async fn run(&mut self, call: Call) -> Answer {
        let lanes = self.lanes.iter().map(|(lane, _)| *lane).collect();
        let mut answer = self.process.perform(call, self.context.clone(), lanes).await;
        let context = self.context;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer.unwrap_or(Answer::NeverSent),
                () = context.must_end() => break,
                flagged = context.flagged(self.told.len()), if !context.is_cancelled() => {
                    self.cancel(flagged);
                }
                // All of its jobs are cancelled: the process may finish all the same.
                () = context.cancelled(), if self.told.len() < self.jobs() => {
                    self.cancel(self.lanes.clone());
                }
            }
        }
        self.cancel(self.lanes.clone());
        self.end(&mut answer).await
    }

    /// It must end now: the process is asked, and then ended if that does not help.
    async fn end(&mut self, answer: &mut oneshot::Receiver<Answer>) -> Answer {
        if let Ok(answer) = timeout(CANCEL_GRACE, &mut *answer).await {
            return answer.unwrap_or(Answer::NeverSent);
        }
        self.is_overdue = true;
        let (queue, pid) = (&*self.process.queue, self.process.pid);
        tracing::warn!(
            queue,
            pid,
            batch = self.batch,
            "a call must end and the worker process does not answer: it is ended"
        );
        self.process.order(Order::Terminate);
        answer.await.unwrap_or(Answer::NeverSent)
    }

    fn cancel(&mut self, flagged: Vec<(LaneId, Vec<JobId>)>) {
        for (lane, jobs) in flagged {
            if jobs.iter().all(|job| self.told.contains(job)) {
                continue;
            }
            self.process.say(protocol::cancel(&self.batch, lane, &jobs));
            let new: Vec<JobId> = jobs.into_iter().filter(|job| !self.told.contains(job)).collect();
            self.told.extend(new);
        }
    }

    fn jobs(&self) -> usize {
        self.lanes.iter().map(|(_, jobs)| jobs.len()).sum()
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // The engine has given the call up, and its lanes may run elsewhere in a moment.
            self.process.order(Order::Kill);
        }
    }
}
