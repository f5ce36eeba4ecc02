//! Cron entries: what the nodes of a store have, how their last ticks went, and their next ones.

mod words;

use seriatim::store::{JobState, NodeId, Schedule, SchedulePause, ScheduleTick, Store, schedules};
use seriatim::{Cron, Timestamp};

use super::error::Result;
use super::words::state_name;
use crate::base::time::absolute;
use crate::protocol::document::{
    CronDefinition, CronEntries, CronEntry, CronLast, CronPause, CronRun,
};
use crate::protocol::value::Time;
use words::in_words;

/// Times shown for each entry.
const TICKS: usize = 3;
/// The outcome of a job that is no longer there: done or cancelled, as a dead one is kept.
pub(crate) const ENDED: &str = "ended";
/// Most entries whose last job a listing looks up.
const LOOKED_UP_MAX: usize = 50;

/// All entries, of all nodes.
pub(crate) async fn all(store: &dyn Store) -> Result<CronEntries> {
    let (cron, _) = page(store, "", usize::MAX).await?;
    Ok(CronEntries { cron })
}

/// Entries behind the one of this name, and whether there are more.
pub(crate) async fn page(
    store: &dyn Store,
    after: &str,
    rows_max: usize,
) -> Result<(Vec<CronEntry>, bool)> {
    let (all, now) = (schedules(store).await?, store.now().await?);
    let behind = all.iter().filter(|schedule| schedule.name.as_str() > after);
    let behind: Vec<&Schedule> = behind.collect();
    let mut cron = Vec::new();
    for (i, schedule) in behind.iter().take(rows_max).enumerate() {
        cron.push(document(store, schedule, now, i < LOOKED_UP_MAX).await?);
    }
    Ok((cron, behind.len() > rows_max))
}

async fn one(store: &dyn Store, schedule: &Schedule) -> Result<CronEntry> {
    document(store, schedule, store.now().await?, true).await
}

pub(crate) async fn pause(
    store: &dyn Store,
    name: &str,
    by: &str,
    reason: Option<&str>,
) -> Result<CronEntry> {
    one(store, &seriatim::store::pause_schedule(store, name, by, reason).await?).await
}

pub(crate) async fn resume(store: &dyn Store, name: &str) -> Result<CronEntry> {
    one(store, &seriatim::store::resume_schedule(store, name).await?).await
}

/// The pause of an entry, if it is paused now.
pub(crate) async fn pause_of(store: &dyn Store, name: &str) -> Result<Option<SchedulePause>> {
    let schedule = seriatim::store::schedule(store, name).await?;
    Ok(schedule.pause.filter(|pause| pause.until.is_none()))
}

pub(crate) async fn run(store: &dyn Store, name: &str, by: &str) -> Result<CronRun> {
    let job_id = seriatim::store::run_schedule(store, name, by).await?;
    Ok(CronRun { name: name.to_owned(), job_id })
}

async fn document(
    store: &dyn Store,
    schedule: &Schedule,
    now: Timestamp,
    looks_up: bool,
) -> Result<CronEntry> {
    let paused = schedule.pause.as_ref().filter(|_| schedule.is_paused());
    let last = match &schedule.last {
        Some(tick) => Some(last(store, tick, looks_up).await?),
        None => None,
    };
    let all = schedule.definitions.iter();
    let next = schedule.definitions.first().filter(|_| paused.is_none());
    Ok(CronEntry {
        name: schedule.name.clone(),
        next: next.map(|one| ticks(&one.cron, now)).unwrap_or_default(),
        definitions: all.map(|one| definition(&one.cron, &one.nodes)).collect(),
        paused: paused.map(|pause| CronPause {
            since: Time(pause.since),
            by: pause.by.clone(),
            reason: pause.reason.clone(),
        }),
        last,
    })
}

fn definition(cron: &Cron, nodes: &[NodeId]) -> CronDefinition {
    CronDefinition {
        schedule: cron.schedule().to_owned(),
        words: in_words(cron.schedule()),
        time_zone: cron.zone().to_owned(),
        queue: cron.queue().to_owned(),
        key: cron.key().map(str::to_owned),
        task: cron.task().map(str::to_owned),
        missed: cron.catches_up(),
        nodes: nodes.iter().map(|NodeId(id)| id.to_string()).collect(),
    }
}

async fn last(store: &dyn Store, tick: &ScheduleTick, looks_up: bool) -> Result<CronLast> {
    let job = match tick.job.filter(|_| looks_up) {
        Some(id) => store.job(id).await?,
        None => None,
    };
    let outcome = match (&job, tick.job) {
        (Some(job), _) => Some(state_name(job.state).to_owned()),
        (None, None) => Some("refused".to_owned()),
        // Its queue keeps no finished jobs, or no longer.
        (None, Some(_)) if looks_up => Some(ENDED.to_owned()),
        (None, Some(_)) => None,
    };
    let failed = job.filter(|job| job.state == JobState::Dead).and_then(|job| job.error);
    Ok(CronLast {
        at: Time(tick.at),
        by: tick.by.clone(),
        job_id: tick.job,
        outcome,
        error: tick.error.clone().or_else(|| failed.map(|error| error.to_string())),
    })
}

/// The entries of a configuration, which no node may have.
pub(crate) fn of_configuration(entries: &[Cron], now: Timestamp) -> Vec<CronEntry> {
    let entry = |cron: &Cron| CronEntry {
        name: cron.name().to_owned(),
        next: ticks(cron, now),
        definitions: vec![definition(cron, &[])],
        paused: None,
        last: None,
    };
    entries.iter().map(entry).collect()
}

fn ticks(entry: &Cron, now: Timestamp) -> Vec<String> {
    let ticks = std::iter::successors(entry.next_after(now), |tick| entry.next_after(*tick));
    ticks.take(TICKS).map(absolute).collect()
}
