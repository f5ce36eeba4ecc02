//! Cancel, requeue, act on lanes, delete dead jobs, and amend.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;

use super::Mysql;
use super::bodies::Bodies;
use super::error::{Fail, Try};
use super::gates::Lock;
use super::job_row::DEAD;
use super::load::Need;
use super::sql::{Columns, LIST_MAX, bytes, list, literals};
use super::work::Work;
use crate::contract::{
    Act, Acted, Actions, Amend, Cancel, Cancelled, LaneAction, LaneSelection, Selected, Selection,
    Wake,
};
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::{JobId, Mode, Owner, Result, Timestamp};
use crate::stores::state::lane::Entry;

#[async_trait]
impl Actions for Mysql {
    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        let lock = Lock::queues_of_ids(&request.jobs);
        let answers =
            transact!(self.inner, lock, request.now, work => cancel(work, &request.jobs))?;
        if answers.contains(&Cancelled::Now) {
            // Others of their keys may be due.
            self.inner.ring(&Wake::All);
        }
        Ok(answers)
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        self.on_dead(&request, true).await
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.on_dead(&request, false).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let (mut acted, mut rest) = (Acted::default(), None);
        while rest.as_ref().is_none_or(|rest: &Rest| !rest.lanes.is_empty()) {
            let lock = Lock::queue(&request.queue);
            let step = transact!(self.inner, lock, request.now, work => async {
                let (rest, more) = match rest.clone() {
                    Some(rest) => (rest, acted.more),
                    None => chosen(work, &request).await?,
                };
                Ok((act(work, &request, rest).await?, more))
            })?;
            let ((count, left), more) = step;
            (acted.count, acted.more, rest) = (acted.count + count, more, Some(left));
        }
        self.inner.ring(&Wake::of([&*request.queue]));
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        let lock = Lock::queues_of_ids(&[request.job]);
        transact!(self.inner, lock, request.now, work => amend(work, &request))?;
        self.inner.ring(&Wake::All);
        Ok(())
    }
}

/// Most jobs that one transaction moves. Until it ends, others may wait for its rows: also pushes to other queues, if their
/// key is the one before in the index of keys.
pub(super) const STEP_JOBS: usize = 1_000;
/// Most lanes that it acts on.
const STEP_LANES: usize = 200;

impl Mysql {
    /// Requeues or deletes dead jobs, some in each transaction.
    async fn on_dead(&self, request: &Selected, requeues: bool) -> Result<Acted> {
        let mut acted = Acted::default();
        loop {
            let most = STEP_JOBS.min(ACTION_ROWS_MAX - acted.count as usize);
            let lock = if requeues { Lock::queue(&request.queue) } else { Lock::FREE };
            let step = transact!(self.inner, lock, request.now, work => async {
                match requeues {
                    true => requeue(work, request, most).await,
                    false => delete_dead(work, request, most).await,
                }
            })?;
            if requeues {
                self.inner.ring(&Wake::of([&*request.queue]));
            }
            (acted.count, acted.more) = (acted.count + step.count, step.more);
            if !step.more || step.count == 0 || acted.count >= ACTION_ROWS_MAX as u64 {
                return Ok(acted);
            }
        }
    }
}

/// Locks the lanes of these jobs and reads what they are without them; notes ended jobs.
async fn load_places(work: &mut Work<'_>, ids: &[JobId]) -> Try<()> {
    let found = work.find(ids).await?;
    for (id, lane) in &found {
        if let Some(lane) = lane {
            work.leaving.entry(*lane).or_default().push(id.seq());
        }
    }
    let lanes: BTreeSet<u64> = work.leaving.keys().copied().collect();
    work.lock_lanes(&lanes).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    work.load_jobs(&lanes, Need::Removal, true, Bodies::None, &HashMap::new()).await?;
    let ended = found.iter().filter(|(id, _)| !work.state.jobs.contains_key(id));
    let ended: Vec<u64> = ended.map(|(id, _)| id.seq()).collect();
    for seqs in ended.chunks(LIST_MAX) {
        let seqs = list(seqs.iter().copied());
        let from = format!("FROM seriatim_ended j FORCE INDEX (PRIMARY) WHERE j.seq IN ({seqs})");
        work.read_ended(&from, Bodies::None).await?;
    }
    // It may merge, end or come back while this waits for its lane.
    let is_there = |(id, _): &(JobId, Option<u64>)| work.state.jobs.contains_key(id);
    if found.iter().all(is_there) { Ok(()) } else { Err(Fail::Moved) }
}

async fn cancel(work: &mut Work<'_>, ids: &[JobId]) -> Try<Vec<Cancelled>> {
    load_places(work, ids).await?;
    let now = work.now;
    let cancelled = ids.iter().map(|id| work.state.cancel(now, *id)).collect();
    work.save().await?;
    Ok(cancelled)
}

async fn amend(work: &mut Work<'_>, request: &Amend) -> Try<()> {
    load_places(work, &[request.job]).await?;
    let now = work.now;
    work.state.amend(now, request)?;
    work.save().await?;
    Ok(())
}

/// The condition for the lanes of an action, and who owns their failures.
fn condition(work: &Work<'_>, request: &Act) -> Try<(String, Owner)> {
    let row = work.state.queue(&request.queue)?;
    let (queue, owner) = (row.number, row.queue.mode.failure_belongs_to());
    let filter = match (&request.lanes, owner) {
        (LaneSelection::All, _) => String::new(),
        (LaneSelection::Key(key), _) => format!("AND k = {}", super::sql::text(key)),
        (LaneSelection::Lanes(lanes), _) => {
            let here = lanes.iter().filter(|lane| lane.queue == queue).map(|lane| lane.number);
            format!("AND id IN ({})", list(here))
        }
        (LaneSelection::Failed, Owner::Lane) => "AND retry >= 0".to_owned(),
        (LaneSelection::Failed, Owner::Job) => {
            let among =
                "(SELECT 1 FROM seriatim_job j WHERE j.lane = seriatim_lane.id AND j.retry >= 0)";
            format!("AND (j_retry >= 0 OR EXISTS {among})")
        }
    };
    Ok((format!("q = {queue} {filter}"), owner))
}

/// The lanes that an action has not finished.
#[derive(Clone)]
struct Rest {
    /// With the number of their waiting jobs.
    lanes: Vec<(u64, usize)>,
    /// Whether the first of them counts already.
    has_begun: bool,
}

/// The lanes that an action is for, oldest first, and whether there are more.
async fn chosen(work: &mut Work<'_>, request: &Act) -> Try<(Rest, bool)> {
    let (condition, _) = condition(work, request)?;
    let sql = format!(
        "SELECT id, n FROM seriatim_lane WHERE {condition} ORDER BY id LIMIT {}",
        ACTION_ROWS_MAX + 1
    );
    let mut lanes = Vec::new();
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        lanes.push((row.int()? as u64, row.int()? as usize));
    }
    let more = lanes.len() > ACTION_ROWS_MAX;
    lanes.truncate(ACTION_ROWS_MAX);
    Ok((Rest { lanes, has_begun: false }, more))
}

/// One step of an action. Returns how many lanes it began with, and what is left.
async fn act(work: &mut Work<'_>, request: &Act, mut rest: Rest) -> Try<(u64, Rest)> {
    let Some((first, jobs)) = rest.lanes.first().copied() else { return Ok((0, rest)) };
    let mode = work.state.queue(&request.queue)?.queue.mode;
    let moves = request.action.moves_jobs(mode);
    if rest.has_begun || moves && jobs > STEP_JOBS {
        let (moved, is_left) = act_on_part(work, request, first, rest.has_begun).await?;
        let runs = request.action == LaneAction::RunNow;
        let has_acted = moved.is_some_and(|jobs| runs || jobs > 0);
        let count = u64::from(has_acted && !rest.has_begun);
        rest.lanes.drain(..usize::from(!is_left));
        return Ok((count, Rest { has_begun: is_left, ..rest }));
    }
    let mut room = STEP_JOBS;
    let mut fits = |(_, jobs): &&(u64, usize)| {
        let fits = !moves || *jobs <= room;
        room = room.saturating_sub(*jobs);
        fits
    };
    let some = rest.lanes.iter().take(STEP_LANES).take_while(&mut fits).count();
    let some: BTreeSet<u64> = rest.lanes.drain(..some).map(|(id, _)| id).collect();
    work.lock_lanes(&some).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    let looks_at_jobs = request.lanes == LaneSelection::Failed && mode != Mode::Accumulate;
    let need = if moves || looks_at_jobs { Need::All } else { Need::Position };
    work.load_jobs(&lanes, need, need == Need::All, Bodies::None, &HashMap::new()).await?;
    let acted = work.state.act(work.now, request)?;
    work.save().await?;
    Ok((acted.count, rest))
}

/// Deletes some jobs of a long lane; returns how many.
pub(super) async fn delete_part(work: &mut Work<'_>, queue: &str, id: u64) -> Try<u64> {
    let (lanes, action) = (LaneSelection::All, LaneAction::Delete);
    let delete = Act { now: None, queue: queue.into(), lanes, action };
    let (gone, _) = act_on_part(work, &delete, id, false).await?;
    Ok(gone.unwrap_or_default() as u64)
}

/// A step of an action on a long lane. Returns how many jobs it was for, if it was for the lane,
/// and whether some are left for the next step.
async fn act_on_part(
    work: &mut Work<'_>,
    request: &Act,
    id: u64,
    has_begun: bool,
) -> Try<(Option<usize>, bool)> {
    let (_, owner) = condition(work, request)?;
    work.lock_lanes(&BTreeSet::from([id])).await?;
    let (Some(row), Some(lane)) = (work.lanes.get(&id), work.state.lanes.get(&id).cloned()) else {
        return Ok((None, false));
    };
    let (ends_all, of_lane) = (request.action == LaneAction::Delete, owner == Owner::Lane);
    let runs = request.action == LaneAction::RunNow;
    // What begins to run goes on: only what waits changes.
    let is_busy = lane.hold.is_some() && !(runs && has_begun);
    if is_busy || of_lane && !ends_all && lane.retry_count < 0 {
        return Ok((None, false));
    }
    let which = match request.action {
        // Those that are not due: see `later_order`.
        LaneAction::RunNow => format!("AND ord >= {}", bytes(&[1])),
        _ if ends_all || of_lane => String::new(),
        _ => "AND retry >= 0".to_owned(),
    };
    let sql = format!(
        "SELECT seq FROM seriatim_job FORCE INDEX (job_lane) WHERE lane = {id} AND gen = {} AND seq <> {} {which} \
         ORDER BY ord, seq LIMIT {}",
        row.open,
        row.taken,
        STEP_JOBS + 1
    );
    let rows = work.rows(&sql).await?;
    let seqs: Try<Vec<u64>> =
        rows.into_iter().map(|row| Ok(Columns::of(row).int()? as u64)).collect();
    let mut seqs = seqs?;
    let is_left = seqs.len() > STEP_JOBS;
    seqs.truncate(STEP_JOBS);
    let now = work.now;
    let is_chosen = |job: &&Entry| match request.action {
        LaneAction::RunNow => job.run_at > now,
        _ => ends_all || of_lane || job.retry_count >= 0,
    };
    // The job that opened the lane is in its row.
    seqs.extend(lane.loaded_jobs().filter(is_chosen).map(|job| job.id.seq()));
    if !is_left && (ends_all || of_lane) {
        work.load_jobs(&[id], Need::All, true, Bodies::None, &HashMap::new()).await?;
        let lanes = LaneSelection::Lanes(vec![lane.id]);
        work.state.act(now, &Act { lanes, ..request.clone() })?;
    } else {
        work.leaving.insert(id, seqs.clone());
        work.load_jobs(&[id], Need::Removal, false, Bodies::None, &HashMap::new()).await?;
        work.state.act_on_some(now, id, &seqs, request.action);
    }
    work.save().await?;
    Ok((Some(seqs.len()), is_left))
}

/// At most `most` dead jobs of a selection, oldest first, and whether there are more.
async fn select(work: &mut Work<'_>, request: &Selected, most: usize) -> Try<(Vec<u64>, bool)> {
    let queue = work.state.queue(&request.queue)?.number;
    let filter = match &request.which {
        Selection::All => String::new(),
        Selection::Keys(keys) => {
            format!("AND k IN ({})", literals(keys.iter().map(String::as_str)))
        }
        Selection::Jobs(ids) => format!("AND seq IN ({})", list(ids.iter().map(|id| id.seq()))),
    };
    let sql = format!(
        "SELECT seq, created FROM seriatim_ended WHERE q = {queue} AND state = {DEAD} {filter} ORDER BY seq LIMIT {}",
        most + 1
    );
    let mut seqs = Vec::new();
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        let seq = row.int()? as u64;
        let id = JobId::new(Timestamp::from_micros(row.int()?), queue, 0, seq);
        match &request.which {
            Selection::Jobs(ids) if !ids.contains(&id) => {}
            _ => seqs.push(seq),
        }
    }
    let more = seqs.len() > most;
    seqs.truncate(most);
    Ok((seqs, more))
}

/// Locks and reads these dead jobs. Some may have been taken meanwhile.
async fn load_dead(work: &mut Work<'_>, seqs: &[u64], bodies: Bodies) -> Try<()> {
    for seqs in seqs.chunks(LIST_MAX) {
        let seqs = list(seqs.iter().copied());
        let from = format!(
            "FROM seriatim_ended j FORCE INDEX (PRIMARY) WHERE j.seq IN ({seqs}) AND j.state = {DEAD} FOR UPDATE"
        );
        work.read_ended(&from, bodies).await?;
    }
    Ok(())
}

async fn requeue(work: &mut Work<'_>, request: &Selected, most: usize) -> Try<Acted> {
    let (seqs, more) = select(work, request, most).await?;
    let row = work.state.queue(&request.queue)?;
    let (queue, merges) = (row.number, row.queue.merges());
    let mut digests = Vec::new();
    let mut keys: BTreeSet<(u32, Arc<str>)> = BTreeSet::new();
    let mut undigested = false;
    for some in seqs.chunks(LIST_MAX) {
        let some = list(some.iter().copied());
        let sql = format!(
            "SELECT k, digest FROM seriatim_ended FORCE INDEX (PRIMARY) WHERE seq IN ({some})"
        );
        for row in work.rows(&sql).await? {
            let mut row = Columns::of(row);
            // Jobs with a key come back to its lane, also if the queue is `parallel` by now.
            keys.extend(row.maybe_text()?.map(|key| (queue, key)));
            match row.bytes()?.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
                Some(digest) => digests.push(digest),
                None => undigested = true,
            }
        }
    }
    work.open_keys(&keys).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    // A job without a digest may equal any other.
    let need = if merges && undigested { Need::All } else { Need::Position };
    let equal = lanes.iter().map(|lane| (*lane, digests.clone())).collect();
    work.load_jobs(&lanes, need, false, Bodies::None, &equal).await?;
    let bodies = if merges && undigested { Bodies::All } else { Bodies::None };
    load_dead(work, &seqs, bodies).await?;
    let now = work.now;
    let all = Selected { which: Selection::All, ..request.clone() };
    let acted = work.state.requeue(now, &all)?;
    work.save().await?;
    Ok(Acted { more, ..acted })
}

async fn delete_dead(work: &mut Work<'_>, request: &Selected, most: usize) -> Try<Acted> {
    let (seqs, more) = select(work, request, most).await?;
    load_dead(work, &seqs, Bodies::None).await?;
    let all = Selected { which: Selection::All, ..request.clone() };
    let acted = work.state.delete_dead(&all)?;
    work.save().await?;
    Ok(Acted { more, ..acted })
}
