//! One call: from the turns of a slot to their settlements.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context as Waker, Poll};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::contract::{Settled, Trouble, TroubleKind};
use crate::engine::claim::dispatch::Picked;
use crate::engine::claim::source::Source;
use crate::engine::core::Core;
use crate::engine::lease::margin;
use crate::engine::limits::{SERIES_FOR_MAX, UNSTARTABLE_PAUSE};
use crate::engine::settle::ended::{Ended, Jobs};
use crate::engine::settle::turn_log::{TurnLog, in_a_word};
use crate::engine::shield::{shielded, shielded_future};
use crate::handler::call::{Call, Series};
use crate::handler::context::Context;
use crate::handler::control::{Committed, Control, Stop, Undecodable};
use crate::handler::failure::{Failure, Fatal, Interrupted, Unstartable, cause};
use crate::handler::middleware::wrap;
use crate::handler::outcomes::Outcomes;
use crate::handler::retrying::Failed;
use crate::handler::worker::{Handling, Prepared, Worker};
use crate::model::{NextRetry, Outcome, Queue, Settlement, Turn, Verdict};

/// What a call hands over.
enum Handed {
    Whole(Vec<Turn>),
    /// One job of a turn.
    One(Series),
}

/// How a handler ended.
enum Ending {
    Answered(Result<Outcomes, Failure>),
    Panicked(String),
    /// It was asked to stop, did not, and was dropped.
    Dropped,
    /// No worker of this node handles the task.
    NoWorker,
}

/// Runs the calls of these turns, usually one, and queues the settlements. Returns how many calls began.
pub(in crate::engine) async fn perform(core: &Core, picked: Picked) -> u32 {
    let source = &core.sources[picked.source];
    let queue = source.own_definition_for(picked.turns.first());
    // Uses the monotonic clock: after a pause of the whole process, nothing may start that another node may have
    // claimed meanwhile.
    if !core.lease.stands(core.ttl(&queue)) {
        core.release(picked.source, picked.turns);
        return 0;
    }
    let worker = source.worker(picked.turns.first().and_then(Turn::task).map(AsRef::as_ref));
    let mut turns = picked.turns;
    // By the turn, not by what a claim would ask for now: the definition may have changed since.
    let series: Vec<Turn> = turns.extract_if(.., |turn| queue.hands_over_in_parts(turn)).collect();
    let whole = (!turns.is_empty()).then_some(Handed::Whole(turns));
    let handed =
        whole.into_iter().chain(series.into_iter().map(|turn| Handed::One(Series::of(turn))));
    let mut calls = 0;
    for handed in handed {
        let call = new_call(core, queue.clone(), worker, handed);
        calls += perform_call(core, source, worker, call).await;
    }
    calls
}

/// Runs a call, and those of the other jobs of its turn if they are handed over one after the other.
async fn perform_call(core: &Core, source: &Source, worker: Option<&Worker>, call: Call) -> u32 {
    let (mut call, mut calls) = (Arc::new(call), 0);
    loop {
        if core.flags.apply(&call) {
            // The store ends flagged jobs as cancelled, whatever the outcome, unless it is `Done`.
            core.release_call(&call);
            return calls;
        }
        calls += 1;
        match shielded_future(complete(core, source, worker, &call)).await {
            Ok(None) => return calls,
            Ok(Some(next)) => call = Arc::new(next),
            Err(text) => {
                // Panics of the user's code are caught where it is called. Whatever this one is, the lanes must end.
                let queue = &call.queue.name;
                tracing::error!(queue, "a call panicked outside of its handler: {text}");
                fail(core, &call, &format!("the call panicked: {text}"));
                return calls;
            }
        }
    }
}

/// Runs a call that has started, and settles it, or returns the next call of its turn.
async fn complete(
    core: &Core,
    source: &Source,
    worker: Option<&Worker>,
    call: &Arc<Call>,
) -> Option<Call> {
    let began = Instant::now();
    if let Some(observer) = &core.observer {
        for turn in &call.turns {
            observer.started(turn);
        }
    }
    let (ending, undecodable) = match worker {
        Some(worker) => run(core, call, worker).await,
        None => (Ending::NoWorker, Vec::new()),
    };
    if core.troubles.any() {
        note_start(core, worker, call, &ending);
    }
    let answer = judge(core, source, call, ending);
    let lasted = began.elapsed();
    source.called(lasted);
    if TurnLog::tells_calls() {
        let outcome = in_a_word(call, &answer, &undecodable);
        TurnLog::call_ended(&call.turns, outcome, lasted);
    }
    let is_plain = undecodable.is_empty() && call.expired.is_empty();
    let is_done = is_plain && answer.as_ref().is_ok_and(|outcomes| outcomes.is_done(&call.turns));
    let next = call.series.as_ref().filter(|_| is_done).and_then(|series| next(core, call, series));
    if let (Some(_), Some(observer)) = (&next, &core.observer) {
        observer.ended(&call.turns[0], &call.done_verdict(&call.turns[0]));
    }
    match next {
        Some(series) => Some(new_call(core, call.queue.clone(), worker, Handed::One(series))),
        None => {
            conclude(core, source, call, answer, undecodable);
            None
        }
    }
}

/// The next job of a turn whose jobs are handed over one after the other. `None` if the turn is to end, because there
/// is none or because it would delay something: what this job did, which its settlement reports, or another node.
fn next(core: &Core, call: &Call, series: &Series) -> Option<Series> {
    let ends = call.control.reason().is_some()
        || call.control.is_committed()
        || call.control.has_told_the_store()
        || core.phases.is_draining()
        || series.began.elapsed() > SERIES_FOR_MAX
        || !core.lease.stands(core.ttl(&call.queue));
    if ends { None } else { series.next() }
}

/// Fails all turns of a call without running user code.
fn fail(core: &Core, call: &Arc<Call>, error: &str) {
    let verdict: Verdict = Outcome::Retry { error: error.into(), retry_in: None }.into();
    let wait = |retry: NextRetry<'_>| retry.backoff(&call.queue).wait(retry.count, fastrand::f64());
    let ended = call.turns.iter().enumerate().map(|(place, turn)| {
        // It was told that they began.
        if let Some(observer) = &core.observer {
            observer.ended(turn, &verdict);
        }
        let settlement = call.plan(place, &call.queue, verdict.clone(), &wait);
        Ended::new(settlement, call, place, core.observer.is_some())
    });
    let ended: Vec<Ended> = ended.collect();
    core.settles.add(ended);
}

fn new_call(core: &Core, queue: Arc<Queue>, worker: Option<&Worker>, handed: Handed) -> Call {
    let (turns, series) = match handed {
        Handed::Whole(turns) => (turns, None),
        Handed::One(series) => (vec![series.turn()], Some(series)),
    };
    let jobs = || turns.iter().flat_map(|turn| &turn.jobs);
    let options = || jobs().filter_map(|job| job.options.as_deref());
    let mut expired = Vec::new();
    if options().any(|options| options.expires_at.is_some()) {
        let now = core.store_now();
        expired.extend(jobs().filter(|job| job.has_expired(now)).map(|job| job.id));
    }
    let usual = worker.and_then(|worker| worker.timeout).or(queue.timeout);
    // The shortest limit of the call's jobs, so that none exceeds its own.
    let timeout = options().filter_map(|options| options.timeout).chain(usual).min();
    let timeout = timeout.or(worker.and_then(|worker| worker.timeout_default));
    let deadline = timeout.map(|length| Instant::now() + length);
    let (control, env) = (Control::default(), core.env.clone());
    Call { queue, turns, series, expired, timeout, deadline, control, env }
}

async fn run(core: &Core, call: &Arc<Call>, worker: &Worker) -> (Ending, Undecodable) {
    let prepared = match shielded(|| (worker.prepare)(call)) {
        Ok(prepared) => prepared,
        Err(text) => {
            core.counters.called();
            return (Ending::Panicked(by_handler(&text)), Vec::new());
        }
    };
    let Prepared { handling, undecodable } = prepared;
    call.control.note_undecodable(&undecodable);
    let Some(handling) = handling else {
        // No job is left: all have expired or cannot be decoded.
        return (Ending::Answered(Ok(Outcomes::new())), undecodable);
    };
    core.counters.called();
    let mut handling = match core.hooks.middleware.as_slice() {
        [] => handling,
        all => match shielded(|| wrap(all, &Context::new(call.clone()), handling)) {
            Ok(handling) => handling,
            Err(text) => {
                return (Ending::Panicked(format!("a middleware panicked: {text}")), undecodable);
            }
        },
    };
    // Most handlers of short jobs end at the first poll; they need no timer and no list entry.
    let first = poll_fn(|waker| Poll::Ready(poll_caught(&mut handling, waker))).await;
    let ending = match first {
        Poll::Ready(ending) => ending,
        Poll::Pending => supervise(core, call, &mut handling).await,
    };
    // A destructor in the handler may panic too.
    let _ = shielded(|| drop(handling));
    (ending, undecodable)
}

/// Waits for a handler to end; drops it some time after it was asked to stop.
async fn supervise(core: &Core, call: &Arc<Call>, handling: &mut Handling) -> Ending {
    let _listed = core.running.list(call);
    let finished = poll_fn(|waker| poll_caught(handling, waker));
    tokio::pin!(finished);
    let mut asked: Option<(Stop, Instant)> = None;
    loop {
        let harder = match asked {
            None => Stop::TimedOut,
            Some((Stop::TimedOut, _)) => Stop::Stopping,
            Some(_) => Stop::LeaseLost,
        };
        let wake = asked.map(|(_, end)| end).or(call.deadline);
        tokio::select! {
            biased;
            ending = &mut finished => return ending,
            reason = call.control.reached(harder), if asked.is_none_or(|(s, _)| s < Stop::LeaseLost) => {
                let end = Instant::now() + grace(core, call, reason);
                asked = Some((reason, asked.map_or(end, |(_, before)| before.min(end))));
            }
            // A handler that uses up the task's budget at each poll leaves none for the timer.
            () = unconstrained(sleep_until(wake)) => match asked {
                Some(_) => return Ending::Dropped,
                None => call.control.stop(Stop::TimedOut),
            }
        }
    }
}

/// How long a handler may take after it was asked to stop.
fn grace(core: &Core, call: &Call, reason: Stop) -> Duration {
    let most = core.settings.cancel_grace;
    match reason {
        Stop::LeaseLost => most.min(margin(core.ttl(&call.queue)) / 2),
        _ => most,
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn poll_caught(handling: &mut Handling, waker: &mut Waker<'_>) -> Poll<Ending> {
    match shielded(|| handling.as_mut().poll(waker)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(answer)) => Poll::Ready(Ending::Answered(answer)),
        Err(text) => Poll::Ready(Ending::Panicked(by_handler(&text))),
    }
}

fn by_handler(panic: &str) -> String {
    format!("the handler panicked: {panic}")
}

/// Turns the end of a handler into outcomes: its own, or one for all turns.
fn judge(core: &Core, source: &Source, call: &Call, ending: Ending) -> Result<Outcomes, Outcome> {
    let failed = |error: String| Outcome::Retry { error: error.into(), retry_in: None };
    match (ending, call.control.reason()) {
        (Ending::Answered(Ok(outcomes)), _) => Ok(outcomes),
        // Asked to stop for no fault of the jobs: not counted.
        (_, Some(Stop::Stopping | Stop::LeaseLost)) => Err(Outcome::Release),
        (Ending::Dropped, _) => Err(failed(timed_out(call))),
        // It may have unwrapped the interruption.
        (Ending::Panicked(_), _) if call.control.is_interrupted() => Err(Outcome::Release),
        (Ending::Panicked(text), _) => Err(failed(text)),
        (Ending::NoWorker, _) => {
            let task = call.task().unwrap_or_default();
            Err(failed(format!("no worker of this node handles task {task:?} of its queue")))
        }
        (Ending::Answered(Err(failure)), reason) => {
            if let Some(why) = cause::<Unstartable>(&failure) {
                pause_unstartable(core, source, call, why);
                return Err(Outcome::Release);
            }
            if let Some(why) = cause::<Fatal>(&failure) {
                core.fatal(&why.0);
            }
            if cause::<Interrupted>(&failure).is_some() || call.control.is_interrupted() {
                return Err(Outcome::Release);
            }
            let text = core.hooks.text_of(&failure);
            match reason {
                Some(Stop::TimedOut) => Err(failed(format!("{}: {text}", timed_out(call)))),
                _ => Err(failed(text)),
            }
        }
    }
}

/// A handler that answers has started, so its worker can start again.
fn note_start(core: &Core, worker: Option<&Worker>, call: &Call, ending: &Ending) {
    let answered = match ending {
        Ending::Answered(Ok(_)) => true,
        Ending::Answered(Err(failure)) => cause::<Unstartable>(failure).is_none(),
        _ => false,
    };
    // A handler that was asked to stop may never have started.
    if let (true, Some(worker), None) = (answered, worker, call.control.reason()) {
        let about = Trouble::about_worker(&worker.queue, worker.task.as_deref());
        core.troubles.clear(TroubleKind::WorkerCannotStart, &about);
    }
}

fn pause_unstartable(core: &Core, source: &Source, call: &Call, why: &Unstartable) {
    let worker = source.worker(call.task());
    let task = worker.and_then(|worker| worker.task.as_deref());
    let about = Trouble::about_worker(&source.name, task);
    core.troubles.set(TroubleKind::WorkerCannotStart, Some(&source.name), &about, &why.0);
    if source.pause(UNSTARTABLE_PAUSE) {
        let (queue, pause_s) = (&*source.name, UNSTARTABLE_PAUSE.as_secs());
        tracing::error!(
            queue,
            pause_s,
            "this worker cannot start: {why}. Its jobs went back uncounted; this node takes no jobs of the queue meanwhile"
        );
    }
}

fn timed_out(call: &Call) -> String {
    match call.timeout {
        Some(length) => format!("timed out (limit {})", crate::model::duration::format(length)),
        None => "timed out".to_owned(),
    }
}

/// Turns the answer into settlements and queues them.
fn conclude(
    core: &Core,
    source: &Source,
    call: &Arc<Call>,
    answer: Result<Outcomes, Outcome>,
    undecodable: Undecodable,
) {
    if let Some(of_handler) = call.control.take_committed() {
        return committed(core, call, &of_handler);
    }
    let is_plain = undecodable.is_empty() && call.expired.is_empty() && !call.control.has_results();
    let is_last = call.series.as_ref().is_none_or(|series| series.next().is_none());
    let is_done = is_plain && is_last && answer.as_ref().is_ok_and(Outcomes::is_all_done);
    if is_done && core.observer.is_none() {
        let done = |turn: &Turn| Settlement::done(turn.lane, turn.token);
        let ended = (0..call.turns.len())
            .map(|place| Ended::new(done(&call.turns[place]), call, place, false));
        return core.settles.add(ended);
    }
    let ended = call.turns.iter().enumerate().map(|(place, turn)| {
        let verdict = call.verdict(turn, &answer, &undecodable);
        if let Some(observer) = &core.observer {
            observer.ended(turn, &verdict);
        }
        let error = verdict.outcome.error().unwrap_or_default();
        let wait = |retry: NextRetry<'_>| source.wait(&Failed { turn, retry, error }, &call.queue);
        let settlement = call.plan(place, &call.queue, verdict.clone(), &wait);
        Ended::new(settlement, call, place, core.observer.is_some())
    });
    let ended: Vec<Ended> = ended.collect();
    core.settles.add(ended);
}

/// Records the settlements of a handler's own transaction: they hold, whatever the handler answers.
fn committed(core: &Core, call: &Call, of_handler: &Committed) {
    let Committed { settlements, sent_at } = of_handler;
    core.held.remove(settlements);
    for (place, settlement) in settlements.iter().enumerate() {
        let (turn, settled) = (call.claimed(place), Settled::ok(Vec::new()));
        core.counters
            .settled([Jobs::of(turn, settlement).ending(settlement, &settled)].into_iter());
        let node = Some(&*core.settings.node_name);
        core.hooks.turn_log.settled_on(node, turn, settlement, &[]);
        if let Some(observer) = &core.observer {
            let handed = &call.turns[place];
            observer.ended(handed, &call.done_verdict(handed));
            observer.settling(turn, settlement);
            observer.settled(turn, settlement, &settled, *sent_at);
        }
    }
}
