//! Pushing jobs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;

use super::Mysql;
use super::bodies::Bodies;
use super::definitions::Known;
use super::error::{Fail, Try};
use super::fold::count_call;
use super::gates::Lock;
use super::load::{Need, job_id};
use super::pool::Session;
use super::sql::{Columns, bytes, text};
use super::work::Work;
use crate::contract::batches::refuse_batches;
use crate::contract::{Producer, Push, Pushed, Wake, validate_push};
use crate::model::{Job, JobId, Result, Timestamp};
use crate::stores::state::push::{repeat_of, throttle_of};
use crate::stores::state::{IdempotencyKey, Location};

/// Most idempotency keys in one statement.
pub(super) const NAMES_MAX: usize = 500;

#[async_trait]
impl Producer for Mysql {
    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        refuse_batches(&request.jobs)?;
        if request.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let lock = Lock::queues_of(&request.jobs);
        let push =
            async { transact!(self.inner, lock, request.now, work => push(work, &request.jobs)) };
        let pushed = self.inner.pool.push(Box::pin(push)).await?;
        self.inner.ring(&Wake::of_jobs(&request.jobs));
        count_call(&self.inner);
        Ok(pushed)
    }
}

/// Creates missing queues and routes of these jobs; returns all definitions.
pub(super) async fn define(work: &mut Work<'_>, jobs: &[Job]) -> Try<Arc<Known>> {
    let now = work.now;
    work.state.define(now, jobs)?;
    work.save().await?;
    Ok(work.known.clone())
}

pub(super) async fn push(work: &mut Work<'_>, jobs: &[Job]) -> Try<Vec<Pushed>> {
    let numbers: HashMap<&str, u32> = jobs
        .iter()
        .filter_map(|job| Some((&*job.queue, work.state.queue(&job.queue).ok()?.number)))
        .collect();
    let is_unknown = |job: &Job| !numbers.contains_key(&*job.queue);
    if !work.lock.is_alone() && jobs.iter().any(is_unknown) {
        return Err(Fail::Alone);
    }
    let number = |job: &Job| numbers.get(&*job.queue).copied();
    // New names are written once, with their jobs: nobody waits for those that another push of them may reserve. A throttle's
    // is hardly ever new.
    let is_throttled = |job: &Job| {
        let row = number(job).and_then(|queue| work.state.queue_row(queue));
        row.is_some_and(|row| row.queue.throttle.is_some())
    };
    let reserves = work.reserves || jobs.iter().any(is_throttled);
    let names = names_of(work, jobs, &number);
    let before = recall(work, &names, reserves).await?;
    if !reserves && !before.is_empty() {
        return Err(Fail::Known);
    }
    let mut keys = BTreeSet::new();
    // A dead job needs no lane.
    for job in jobs.iter().filter(|job| job.dead_at().is_none()) {
        let Some(queue) = number(job) else { continue };
        if let Some(key) =
            job.key.as_deref().filter(|_| work.mode(queue).is_ok_and(|m| m.is_keyed()))
        {
            keys.insert((queue, Arc::<str>::from(key)));
        }
    }
    if !keys.is_empty() {
        open(work, &keys, jobs, &number).await?;
    }
    let now = work.now;
    let mut pushed = work.state.push(now, jobs.to_vec())?;
    let ids = work.save().await?;
    for pushed in &mut pushed {
        pushed.job_id = ids.of(pushed.job_id);
    }
    let new: Vec<String> = (work.state.idempotency.iter())
        .filter(|(name, value)| before.get(name) != Some(value))
        .map(|((queue, key, name), (id, until))| {
            let key = text(key.as_deref().unwrap_or_default());
            let (name, id) = (text(name), bytes(&ids.of(*id).to_bytes()));
            format!("({queue},{key},{name},{id},{})", until.as_micros())
        })
        .collect();
    remember(work, &new, reserves).await?;
    if reserves {
        // A refused job leaves its own, and a repeat its key's.
        let is_unused = |name: &IdempotencyKey| !work.state.idempotency.contains_key(name);
        let unused: Vec<IdempotencyKey> = names.into_iter().filter(is_unused).collect();
        delete_names(work, unused, " AND job = ''").await?;
    }
    Ok(pushed)
}

/// Writes idempotency keys with their jobs, which were reserved or are new: a key that another push took meanwhile is an error.
async fn remember(work: &mut Work<'_>, rows: &[String], are_reserved: bool) -> Try<()> {
    let over = " ON DUPLICATE KEY UPDATE job = VALUES(job), until = VALUES(until)";
    let over = if are_reserved { over } else { "" };
    for rows in rows.chunks(NAMES_MAX) {
        let rows = rows.join(",");
        let sql = format!(
            "INSERT INTO seriatim_idempotency (q, k, name, job, until) VALUES {rows}{over}"
        );
        work.write(&sql).await?;
    }
    Ok(())
}

/// Deletes these idempotency keys for which `also` holds. One by one: for a list of rows, the server may read the whole table,
/// and wait for others' names.
pub(super) async fn delete_names(
    work: &mut Work<'_>,
    names: impl IntoIterator<Item = IdempotencyKey>,
    also: &str,
) -> Try<()> {
    for (queue, key, name) in names {
        let (key, name) = (text(key.as_deref().unwrap_or_default()), text(&name));
        let row = format!("q = {queue} AND k = {key} AND name = {name}");
        work.write(&format!("DELETE FROM seriatim_idempotency WHERE {row}{also}")).await?;
    }
    Ok(())
}

/// Under what the idempotency key of a job is remembered. A queue that this push makes has no names yet; the store may.
fn name_of(job: &Job, queue: Option<u32>) -> Option<IdempotencyKey> {
    match queue {
        Some(queue) => repeat_of(queue, job),
        None => job.key_of_store().and_then(|_| repeat_of(0, job)),
    }
}

fn place((queue, key, name): &IdempotencyKey) -> String {
    format!("{queue},{},{}", text(key.as_deref().unwrap_or_default()), text(name))
}

/// Locks or creates the lanes of these jobs, and reads what a push needs of them.
async fn open(
    work: &mut Work<'_>,
    keys: &BTreeSet<(u32, Arc<str>)>,
    jobs: &[Job],
    number: &impl Fn(&Job) -> Option<u32>,
) -> Try<()> {
    if work.reserves {
        work.open_keys(keys).await?;
    } else {
        work.lock_keys(keys).await?;
    }
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    if lanes.is_empty() {
        return Ok(());
    }
    let mut equal: HashMap<u64, Vec<[u8; 16]>> = HashMap::new();
    for job in jobs {
        let (Some(queue), Some(key)) = (number(job), job.key.as_deref()) else { continue };
        let merges = work.state.queue_row(queue).is_some_and(|row| row.queue.merges());
        let lane = work.state.keys.get(&(queue, Arc::from(key)));
        if let Some(lane) = lane.filter(|_| merges) {
            equal.entry(*lane).or_default().push(job.payload_digest());
        }
    }
    work.load_jobs(&lanes, Need::Arrival, false, Bodies::None, &equal).await
}

/// The idempotency keys of these jobs, and those under which their keys are throttled.
fn names_of(
    work: &Work<'_>,
    jobs: &[Job],
    number: &impl Fn(&Job) -> Option<u32>,
) -> BTreeSet<IdempotencyKey> {
    let throttle = |job: &Job| {
        let row = work.state.queue_row(number(job)?)?;
        // A dead job throttles nothing.
        row.queue.throttle.filter(|_| job.dead_at().is_none())?;
        Some(throttle_of(row.number, job))
    };
    let names = |job: &Job| name_of(job, number(job)).into_iter().chain(throttle(job));
    jobs.iter().flat_map(names).collect()
}

/// Reads the jobs of these idempotency keys, and may reserve those, so that a push of the same ones waits for this one.
/// Returns the existing ones.
async fn recall(
    work: &mut Work<'_>,
    names: &BTreeSet<IdempotencyKey>,
    reserves: bool,
) -> Try<BTreeMap<IdempotencyKey, (JobId, Timestamp)>> {
    let names: Vec<&IdempotencyKey> = names.iter().collect();
    for names in names.chunks(NAMES_MAX) {
        let rows: Vec<String> =
            names.iter().map(|name| format!("({},'',0)", place(name))).collect();
        let each: Vec<String> = names.iter().map(|name| format!("({})", place(name))).collect();
        let mut sql = format!(
            "SELECT q, k, name, job, until FROM seriatim_idempotency FORCE INDEX (PRIMARY) \
             WHERE job <> '' AND (q, k, name) IN ({}){}",
            each.join(","),
            work.newest()
        );
        if reserves {
            let rows = rows.join(",");
            sql = format!(
                "INSERT INTO seriatim_idempotency (q, k, name, job, until) VALUES {rows} ON DUPLICATE KEY UPDATE job = job; {sql}"
            );
        }
        let answers = work.run(&sql).await?;
        for row in answers.into_iter().skip(usize::from(reserves)).flat_map(|answer| answer.rows) {
            let mut row = Columns::of(row);
            let (queue, key, name) = (row.int()? as u32, row.text()?, row.text()?);
            let key = (!key.is_empty()).then(|| key.to_string());
            let (id, until) = (job_id(&mut row)?, Timestamp::from_micros(row.int()?));
            work.state.idempotency.insert((queue, key, name.to_string()), (id, until));
        }
    }
    note_stored(work).await?;
    Ok(work.state.idempotency.clone())
}

/// Tells the model which jobs of expired idempotency keys are stored: those count as long. Throttles do not.
async fn note_stored(work: &mut Work<'_>) -> Try<()> {
    let names = work.state.idempotency.iter();
    let expired = names.filter(|((_, _, name), (_, until))| !name.is_empty() && *until <= work.now);
    let expired: BTreeMap<IdempotencyKey, JobId> =
        expired.map(|(name, (id, _))| (name.clone(), *id)).collect();
    let ids: Vec<JobId> = expired.values().copied().collect();
    for (id, lane) in work.find(&ids).await? {
        // Only its existence matters.
        work.state.jobs.entry(id).or_insert(lane.map_or(Location::Done, Location::Lane));
    }
    for id in uncommitted(work, expired).await? {
        work.state.jobs.entry(id).or_insert(Location::Done);
    }
    Ok(())
}

/// The jobs of those of these idempotency keys that the user's transaction has written itself.
async fn uncommitted(
    work: &mut Work<'_>,
    mut names: BTreeMap<IdempotencyKey, JobId>,
) -> Try<Vec<JobId>> {
    if matches!(work.session, Session::Ours(_)) {
        return Ok(Vec::new());
    }
    let places: Vec<String> = names.keys().map(|name| format!("({})", place(name))).collect();
    let mut committed = BTreeSet::new();
    for places in places.chunks(NAMES_MAX) {
        let sql = format!(
            "SELECT job FROM seriatim_idempotency FORCE INDEX (PRIMARY) WHERE job <> '' AND (q, k, name) IN ({})",
            places.join(",")
        );
        for row in work.committed(&sql).await? {
            committed.insert(job_id(&mut Columns::of(row))?);
        }
    }
    names.retain(|_, id| !committed.contains(id));
    Ok(names.into_values().collect())
}
