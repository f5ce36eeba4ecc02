//! Pushes jobs on a schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::contract::{PushStatus, QueueView, ScheduleTick, schedules};
use crate::cron::{Cron, Missed};
use crate::engine::core::Core;
use crate::engine::limits::{
    CRON_LATE_MARGIN, CRON_LOOK_BACK_MAX, CRON_NOTE_EVERY, CRON_REMEMBERED_MIN,
};
use crate::engine::shield::shielded;
use crate::machine::suspended;
use crate::model::{Error, Job, Mode, Queue, Result, Timestamp};

/// Most missed ticks to catch up with.
const CATCH_UP_MAX: usize = 100;
/// A machine that was suspended for this long may have missed ticks.
const SUSPENDED_MIN: Duration = Duration::from_secs(10);
/// The longest sleep, because the clock of the store or of this machine may be changed.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// Refuses entries whose queues forget pushed ticks too soon.
pub(in crate::engine) fn check(core: &Core, queues: &[QueueView]) -> Result<()> {
    core.hooks.crons.iter().try_for_each(|cron| window(cron, queues).map(drop))
}

/// Notes in the store which entries this node has.
pub(in crate::engine) async fn note(core: Arc<Core>) {
    loop {
        let node = core.node();
        let noted = core.outage.until_answered("noting cron entries", || async {
            let jobs =
                core.hooks.crons.iter().map(|cron| Ok((cron, encoded(&core, cron.job().clone())?)));
            let entries: Vec<_> = jobs.collect::<Result<_>>()?;
            schedules::register(&*core.store, &node, &entries).await?;
            schedules::tidy(&*core.store).await
        });
        if let Err(error) = noted.await {
            tracing::warn!(%error, "cannot note which cron entries this node has");
        }
        let noted = Instant::now();
        // A node that was declared dead takes another name.
        while noted.elapsed() < CRON_NOTE_EVERY && core.node() == node {
            sleep(SLEEP_MAX).await;
        }
    }
}

/// Pushes the jobs of one entry at its ticks.
pub(in crate::engine) async fn run(core: Arc<Core>, cron: Cron) {
    let mut last = core.store_now();
    let mut owes = catch_up(&core, &cron, last).await;
    while let Some(tick) = cron.next_after(last) {
        let mut is_behind = wait_for(&core, &cron, tick, owes).await;
        if core.phases.is_draining() {
            return;
        }
        if !is_behind {
            owes |= push(&core, &cron, tick, false).await && cron.catches_up() != Missed::Skip;
            last = tick;
            // This tick waited for the store until the next one.
            is_behind = cron.next_after(tick).is_some_and(|next| core.until(next).is_zero());
        }
        if is_behind {
            // As if the node had just started.
            let read = || core.read_clock();
            until_answered(&core, &cron, read).await;
            last = core.store_now();
            owes = catch_up(&core, &cron, last).await;
        }
    }
    tracing::warn!(%cron, "this schedule has no next time: it is no longer used");
    core.phases.draining().await;
}

/// Pushes missed ticks. Whether some are left, because the entry is paused.
async fn catch_up(core: &Core, cron: &Cron, now: Timestamp) -> bool {
    for tick in missed(core, cron, now).await {
        if push(core, cron, tick, true).await {
            return true;
        }
    }
    false
}

/// Waits for the time of a tick. True if there is something to catch up with: the machine was suspended meanwhile, so
/// that ticks may have been missed, or the entry that `owes` ticks is no longer paused.
async fn wait_for(core: &Core, cron: &Cron, tick: Timestamp, owes: bool) -> bool {
    let before = suspended();
    loop {
        let wait = core.until(tick);
        if wait.is_zero() {
            return false;
        }
        sleep(wait.min(SLEEP_MAX)).await;
        if suspended().saturating_sub(before) >= SUSPENDED_MIN {
            return true;
        }
        // If the store does not answer, the tick itself will wait for it.
        if owes && matches!(schedules::is_paused(&*core.store, cron.name(), None).await, Ok(false))
        {
            return true;
        }
    }
}

/// How late a tick may still be pushed. A tick runs once because the store knows the idempotency key of an earlier
/// push, so no node may push a tick that the store may have forgotten. The key was written at the tick at the
/// earliest, and is kept for the queue's `idempotency_ttl`.
fn window(cron: &Cron, queues: &[QueueView]) -> Result<Duration> {
    window_of(cron, queues.iter().map(|view| &view.queue).find(|queue| queue.name == cron.queue()))
}

/// The same if this is its queue; without one, it is created with the defaults.
pub(in crate::engine) fn window_of(cron: &Cron, queue: Option<&Queue>) -> Result<Duration> {
    let created = || Queue::new(cron.queue(), Mode::Parallel).idempotency_ttl;
    let remembered = queue.map_or_else(created, |queue| queue.idempotency_ttl);
    if remembered < CRON_REMEMBERED_MIN {
        let message = format!(
            "of queue {:?} is {}: it must be at least {}, so that each tick of {cron} is run once",
            cron.queue(),
            crate::model::duration::format(remembered),
            crate::model::duration::format(CRON_REMEMBERED_MIN),
        );
        return Err(Error::invalid("idempotency_ttl", message));
    }
    Ok(remembered.saturating_sub(CRON_LATE_MARGIN).min(CRON_LOOK_BACK_MAX))
}

async fn missed(core: &Core, cron: &Cron, now: Timestamp) -> Vec<Timestamp> {
    let most = match cron.catches_up() {
        Missed::Skip => return Vec::new(),
        Missed::Latest => 1,
        Missed::All => CATCH_UP_MAX,
    };
    let Some(window) = until_answered(core, cron, || look_back(core, cron)).await else {
        return Vec::new();
    };
    let next = |tick: &Timestamp| cron.next_after(*tick).filter(|next| *next <= now);
    let first = cron.next_after(now - window).filter(|tick| *tick <= now);
    let mut ticks: Vec<Timestamp> = std::iter::successors(first, next).collect();
    ticks.split_off(ticks.len().saturating_sub(most))
}

async fn look_back(core: &Core, cron: &Cron) -> Result<Duration> {
    window(cron, &core.store.queues().await?)
}

/// Pushes the job of a tick, until the store accepts it or the tick is too late, and notes how that went. True if the
/// entry is paused: the tick was not pushed.
async fn push(core: &Core, cron: &Cron, tick: Timestamp, is_late: bool) -> bool {
    let is_repeated = AtomicBool::new(false);
    let pushed = core.outage.until_answered("pushing by the clock", || {
        attempt(core, cron, tick, is_late, is_repeated.swap(true, Ordering::Relaxed))
    });
    let went = match pushed.await {
        Ok(Went::HeldBack) => return true,
        // Another node pushed it, and notes it.
        Ok(Went::Known) => return false,
        Ok(Went::Noted(went)) => went,
        Err(error) => {
            tracing::error!(%cron, %error, "the job of this tick was refused");
            ScheduleTick { at: tick, by: None, job: None, error: Some(error.to_string()) }
        }
    };
    if let Err(error) = schedules::ticked(&*core.store, cron.name(), &went).await {
        tracing::debug!(%cron, %error, "cannot note how a tick went");
    }
    false
}

/// How an attempt to push a tick went.
enum Went {
    /// The entry is paused, or was then.
    HeldBack,
    /// It was pushed before.
    Known,
    Noted(ScheduleTick),
}

/// Asks the store again for everything: after a suspend the machine's times and the queue are outdated.
async fn attempt(
    core: &Core,
    cron: &Cron,
    tick: Timestamp,
    is_late: bool,
    is_repeated: bool,
) -> Result<Went> {
    let window = look_back(core, cron).await?;
    // What fell into a pause that is over is pushed by catching up only.
    let then = Some(tick).filter(|_| !is_late);
    if schedules::is_paused(&*core.store, cron.name(), then).await? {
        return Ok(Went::HeldBack);
    }
    let late = core.store.now().await?.since(tick);
    let mut went = ScheduleTick { at: tick, by: None, job: None, error: None };
    if late >= window {
        let late = crate::model::duration::format(Duration::from_secs(late.as_secs()));
        tracing::warn!(%cron, late, "skipped a tick: the store may no longer know whether it has run");
        went.error =
            Some(format!("skipped: {late} late, the store may no longer know whether it has run"));
        return Ok(Went::Noted(went));
    }
    let job = encoded(core, cron.job_at(tick))?;
    let key = job.key.clone();
    let pushed = core.push(vec![job]).await?;
    let Some(pushed) = pushed.first() else { return Ok(Went::Known) };
    // The answer to an earlier attempt may be lost.
    if pushed.status == PushStatus::Duplicate && !is_repeated {
        return Ok(Went::Known);
    }
    match pushed.taken(key.as_deref()) {
        Ok(job) => went.job = Some(job),
        Err(refused) => {
            tracing::warn!(%cron, "skipped a tick: {refused}");
            went.error = Some(format!("skipped: {refused}"));
        }
    }
    Ok(Went::Noted(went))
}

fn encoded(core: &Core, job: Job) -> Result<Job> {
    let panicked = |text| Error::invalid("payload", format!("the codec panicked: {text}"));
    shielded(|| core.env.encoded(job)).map_err(panicked)?
}

/// Repeats a request until the store accepts it. `None` if it was refused.
async fn until_answered<T, F>(core: &Core, cron: &Cron, ask: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T>>,
{
    let answer = core.outage.until_answered("pushing by the clock", ask).await;
    answer
        .inspect_err(|error| tracing::error!(%cron, %error, "the job of this tick was refused"))
        .ok()
}
