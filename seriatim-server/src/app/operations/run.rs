//! Carries an operation out, step by step.

use std::future::Future;
use std::time::Duration;

use seriatim::store::{
    Cancel, Cancelled, JobFilter, JobOrder, JobQuery, JobView, LaneAction, LaneId, LaneView, Store,
};
use seriatim::{ErrorKind, JobId, SharedStore, Timestamp};
use tokio::time::{Instant, timeout};

use super::action::Action;
use super::book;
use super::dead::on_dead;
use super::intent::{Intent, done_unwritten};
use super::look::{Found, Look, look};
use super::operation::{Operation, Record, State};
use super::replay::{self, Sent};
use super::wish::{STEP_ROWS_MAX, Wish};
use crate::app::act::on_lanes;
use crate::app::error::{Error, Result};
use crate::app::{deeds, find, jobs};
use crate::base::time::{absolute, read as time_of};
use crate::protocol::value::Time;

/// The pause between two steps: 1/REST of the time of the last step.
const REST: u32 = 4;
/// How long it waits for a store that does not answer, at first and at most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// How often an operation that waits looks whether it was undone.
const UNDONE_LOOK: Duration = Duration::from_secs(1);

/// A step at a rate sends what the rate allows in this time.
const PACED_STEP: Duration = Duration::from_millis(200);
/// Rows that such a step looks at, at least.
const PACED_ROWS_MIN: u64 = 100;
/// The delay that steps at a rate make up for.
const MADE_UP: Duration = Duration::from_secs(1);

/// When the process that carries it out ends, and others go on.
pub(crate) trait Leaving: Sync {
    fn is_leaving(&self) -> bool;
    fn leaving(&self) -> impl Future<Output = ()> + Send;
}

/// Carries out the operation until it ends, another process has it, or this one ends. `told` hears of each step.
pub(crate) async fn run(
    store: &SharedStore,
    id: &str,
    runner: &str,
    leaving: &impl Leaving,
    mut told: impl FnMut(&Operation) + Send,
) -> Result<()> {
    let (mut wait, mut left) = (AGAIN, None);
    loop {
        let begun = Instant::now();
        let is_leaving = leaving.is_leaving();
        let went = go_on(store, (id, runner), is_leaving, &mut left, wait > AGAIN).await;
        let rest = match went {
            Ok(None) => return Ok(()),
            Ok(Some(Next { operation, pause })) => {
                told(&operation);
                if !operation.state.is_open() {
                    return Ok(());
                }
                wait = AGAIN;
                pause.unwrap_or_default().max(begun.elapsed() / REST)
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, id, "an operation waits for the store");
                let now = wait;
                wait = (wait * 2).min(AGAIN_MAX);
                now
            }
            Err(error) => {
                if let Some(failed) = fail(&**store, id, runner, &error).await? {
                    told(&failed);
                }
                return Ok(());
            }
        };
        let _ = timeout(rest, leaving.leaving()).await;
        if leaving.is_leaving() && wait > AGAIN {
            // Without the store it cannot be reported; another server takes the operation over after a while.
            return Ok(());
        }
    }
}

struct Next {
    operation: Operation,
    /// Before the next step; otherwise depends on how long this one took.
    pause: Option<Duration>,
}

/// One step; where the store `was_away`, behind the count of what the one before did.
async fn go_on(
    store: &SharedStore,
    (id, runner): (&str, &str),
    is_leaving: bool,
    left: &mut Option<Look>,
    was_away: bool,
) -> Result<Option<Next>> {
    if was_away {
        recount(&**store, id, runner).await?;
    }
    step(store, id, runner, is_leaving, left).await
}

/// Counts what the last step did before the store went away. The next one does not find these rows any more.
async fn recount(store: &dyn Store, id: &str, runner: &str) -> Result<()> {
    let Some((mut record, _)) = book::read(store, id).await? else { return Ok(()) };
    if record.runner == runner && record.operation.state.is_open() {
        let now = store.now().await?;
        record.beat = now.as_micros();
        record.operation.count += done_unwritten(store, &record).await?;
        written(store, &mut record, now).await?;
    }
    Ok(())
}

/// One step; none if another process has taken the operation over.
async fn step(
    store: &SharedStore,
    id: &str,
    runner: &str,
    is_leaving: bool,
    left: &mut Option<Look>,
) -> Result<Option<Next>> {
    let Some((mut record, stopped)) = book::read(&**store, id).await? else { return Ok(None) };
    if record.runner != runner || !record.operation.state.is_open() {
        return Ok(None);
    }
    let now = store.now().await?;
    record.beat = now.as_micros();
    let starts = time_of(&record.operation.starts_at).unwrap_or(now);
    let starts = starts.max(Timestamp::from_micros(record.next_at));
    let mut pause = None;
    if let Some(by) = stopped {
        record.operation.stopped_by = Some(by);
        end(&mut record, State::Stopped, now);
    } else if is_leaving {
        record.runner = String::new();
        book::write(&**store, &record).await?;
        return Ok(None);
    } else if starts > now {
        pause = Some(starts.since(now).min(UNDONE_LOOK));
    } else if record.operation.state == State::Waiting {
        // If it is stopped while it is shown as waiting, the answer is that nothing was done. So its start is stored first, and
        // the next step reads again whether it was stopped.
        record.operation.state = State::Running;
        pause = Some(Duration::ZERO);
    } else {
        work(store, &mut record, now, left).await?;
        pause = record.operation.what.rate.map(|_| {
            let next = Timestamp::from_micros(record.next_at);
            next.since(now).min(UNDONE_LOOK)
        });
    }
    if !written(&**store, &mut record, now).await? {
        return Ok(None);
    }
    Ok(Some(Next { operation: record.operation, pause }))
}

/// Acts on what the next rows have, and notes where to go on. `left`: what a step found and had no time for, which the next
/// one begins with. Looking again would cost more than a step on stores that have no index for it.
async fn work(
    store: &SharedStore,
    record: &mut Record,
    now: Timestamp,
    left: &mut Option<Look>,
) -> Result<()> {
    let whole = book::whole(&**store, &record.operation).await?;
    let queue = if record.queue.is_empty() { &whole.queue } else { &record.queue };
    let wish = whole.of(queue);
    if wish.queue.is_empty() {
        // All queues were meant, and none had anything.
        end(record, State::Done, now);
        return Ok(());
    }
    match work_on(store, record, &wish, now, left).await {
        // It was deleted meanwhile, or just now; the others have not been.
        Err(error) if error.is_no_queue() && whole.queues.is_some() => {
            *left = None;
            end_queue(record, now);
            Ok(())
        }
        done => done,
    }
}

/// A part of [`work`], on one queue.
async fn work_on(
    store: &SharedStore,
    record: &mut Record,
    wish: &Wish,
    now: Timestamp,
    left: &mut Option<Look>,
) -> Result<()> {
    let mode = find::queue(&**store, &wish.queue).await?.queue.mode;
    let before = wish.before.map_or(now, |Time(before)| before);
    let most = wish.rate.map_or(u64::MAX, |rate| rate.count_in(PACED_STEP));
    // A filter may leave out most of them.
    let looked = most.saturating_mul(4).clamp(PACED_ROWS_MIN, STEP_ROWS_MAX as u64);
    let rows_max = record.rows_left.min(looked) as usize;
    if rows_max == 0 {
        end_queue(record, now);
        return Ok(());
    }
    let Look { found, rows, next } = match left.take() {
        Some(found) => found,
        None => {
            let place = (record.after.clone(), rows_max);
            // A job keeps its place when it dies again, so that none is met twice.
            look(&**store, (wish, mode), before, JobOrder::Arrival, place).await?
        }
    };
    let mut intent = Intent::of(record);
    let sent = act(store, wish, before, found, most, &mut intent).await?;
    let count = sent.count;
    record.operation.count += count;
    if let Some(rate) = wish.rate {
        // What a store that was away has cost is not made up for, but for a moment's part.
        let from = match record.next_at {
            0 => now,
            next_at => Timestamp::from_micros(next_at).max(now - MADE_UP),
        };
        record.next_at = (from + rate.time_of(count)).as_micros();
    }
    if !sent.left.is_empty() {
        // Who takes over meanwhile looks at all of these rows again: what was sent is no more among them.
        *left = Some(Look { found: Found::Jobs(sent.left), rows, next });
        return Ok(());
    }
    record.operation.looked_at += rows;
    record.rows_left = record.rows_left.saturating_sub(rows);
    record.after = next;
    if record.after.is_none() || record.rows_left == 0 {
        end_queue(record, now);
    }
    Ok(())
}

/// Goes on to the next queue; with the last one the operation ends.
fn end_queue(record: &mut Record, now: Timestamp) {
    if !record.next_queue() {
        end(record, State::Done, now);
    }
}

fn end(record: &mut Record, state: State, now: Timestamp) {
    record.operation.state = state;
    record.operation.ended_at = Some(absolute(now));
}

/// Writes the record; one that ends is also a deed, with to how many it was done: its beginning did not know. False if
/// another process took the operation over meanwhile, because this one had stood still: the record is that one's then.
async fn written(store: &dyn Store, record: &mut Record, now: Timestamp) -> Result<bool> {
    if !book::is_as_read(store, record).await? {
        return Ok(false);
    }
    // Who sees the end finds it in the audit.
    if !record.operation.state.is_open() {
        deeds::keep_at(store, &record.operation.deed(now), now).await?;
    }
    // Now that it is counted, what the step intended counts no more.
    record.steps += 1;
    book::write(store, record).await?;
    Ok(true)
}

/// Does it to what was found. To how many.
async fn act(
    store: &SharedStore,
    wish: &Wish,
    before: Timestamp,
    found: Found,
    most: u64,
    intent: &mut Intent,
) -> Result<Sent> {
    let count = match (found, wish.action.on_lanes()) {
        (Found::Jobs(found), _) if wish.action == Action::Requeue => {
            return replay::send(&**store, wish, before, found, most, intent).await;
        }
        (Found::Jobs(found), None) => on_jobs(&**store, wish, found, intent).await,
        (Found::Jobs(found), Some(action)) => {
            let lanes = found.iter().filter_map(|job| job.lane).collect();
            Ok(on_lanes(&**store, &wish.queue, lanes, action).await?)
        }
        (Found::TheseJobs(ids), None)
            if matches!(wish.action, Action::Requeue | Action::DeleteDead) =>
        {
            on_dead(&**store, wish, ids, intent).await
        }
        (Found::TheseJobs(ids), None) => {
            let mut found = of_queue(&**store, &wish.queue, ids).await?;
            found.retain(|job| !wish.is_asked(job));
            on_jobs(&**store, wish, found, intent).await
        }
        (Found::TheseLanes(lanes), Some(action)) => {
            Ok(on_lanes(&**store, &wish.queue, lanes, action).await?)
        }
        (Found::Lanes(found), Some(action)) => {
            let lanes = meant(&**store, &wish.queue, found, action, before).await?;
            Ok(on_lanes(&**store, &wish.queue, lanes, action).await?)
        }
        (Found::Lanes(_) | Found::TheseLanes(_), None) | (Found::TheseJobs(_), Some(_)) => Ok(0),
    };
    Ok(Sent { count: count?, left: Vec::new() })
}

async fn on_jobs(
    store: &dyn Store,
    wish: &Wish,
    found: Vec<JobView>,
    intent: &mut Intent,
) -> Result<u64> {
    let ids: Vec<JobId> = found.iter().map(|job| job.id).collect();
    match wish.action {
        Action::CancelJobs => {
            intent.write(store, &ids).await?;
            cancelled(store, ids).await
        }
        Action::DeleteJobs => {
            intent.write(store, &ids).await?;
            each(store, found).await
        }
        _ => on_dead(store, wish, ids, intent).await,
    }
}

/// The jobs among these that are of the queue: the caller may be limited to this queue.
async fn of_queue(store: &dyn Store, queue: &str, ids: Vec<JobId>) -> Result<Vec<JobView>> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(store.job(id).await?.filter(|job| *job.queue == *queue));
    }
    Ok(found)
}

/// Cancels jobs that wait, and asks for it where they run; leaves alone those that have ended.
async fn cancelled(store: &dyn Store, jobs: Vec<JobId>) -> Result<u64> {
    let answers = store.cancel(Cancel { now: None, jobs }).await?;
    let is_done = |answer: &&Cancelled| matches!(answer, Cancelled::Now | Cancelled::Flagged);
    Ok(answers.iter().filter(is_done).count() as u64)
}

/// Deletes jobs that wait or are dead; leaves alone those that run or are gone.
async fn each(store: &dyn Store, found: Vec<JobView>) -> Result<u64> {
    let mut count = 0;
    for job in found {
        match jobs::deleted(store, &job).await {
            Ok(()) => count += 1,
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// The lanes that were there when they were counted, where that matters: what is taken away does not run.
async fn meant(
    store: &dyn Store,
    queue: &str,
    lanes: Vec<LaneView>,
    action: LaneAction,
    before: Timestamp,
) -> Result<Vec<LaneId>> {
    let mut meant = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let is_meant = match (&lane.key, action) {
            (_, LaneAction::Pause | LaneAction::Resume | LaneAction::RunNow) => true,
            (Some(key), LaneAction::Bury | LaneAction::DeleteFailed | LaneAction::Delete) => {
                let live = JobQuery::new(queue, JobFilter::Live);
                let first = JobQuery { key: Some(key.to_string()), rows_max: 1, ..live };
                let first = store.jobs(first).await?.rows.pop();
                first.is_none_or(|job| job.created_at < before)
            }
            // Such a lane is one job, whose id says when it was pushed.
            (None, _) => lane.only.as_ref().is_none_or(|job| job.id.created_at() < before),
        };
        if is_meant {
            meant.push(lane.lane);
        }
    }
    Ok(meant)
}

/// Writes down why it cannot go on. None if another process has taken it over.
async fn fail(
    store: &dyn Store,
    id: &str,
    runner: &str,
    error: &Error,
) -> Result<Option<Operation>> {
    tracing::warn!(%error, id, "an operation failed");
    let Some((mut record, _)) = book::read(store, id).await? else { return Ok(None) };
    if record.runner != runner {
        return Ok(None);
    }
    let now = store.now().await?;
    // The jobs of a deleted queue are gone, but not because of this operation.
    if !error.is_no_queue() {
        // Better an end without this count than no end.
        record.operation.count += done_unwritten(store, &record).await.unwrap_or_default();
    }
    record.operation.error = Some(error.to_string());
    end(&mut record, State::Failed, now);
    Ok(written(store, &mut record, now).await?.then_some(record.operation))
}

/// Refuses to delete what runs, before an operation that would leave it alone is begun.
pub(crate) async fn refuse_running(store: &dyn Store, queue: &str, key: &str) -> Result<()> {
    let lane = find::lane(store, queue, key).await?;
    match lane.state {
        seriatim::store::LaneState::Claimed => Err(Error::Claimed { key: key.to_owned() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
