//! What people do: cancel, requeue, pause, retry, delete; and what time does to old things.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::bodies::Bodies;
use super::error::Try;
use super::job_row::DEAD;
use super::lane_row::micros;
use super::load::Need;
use super::sql::{Columns, LIST_MAX, bytes, list, literals};
use super::work::Work;
use crate::contract::{Act, Acted, Amend, Cancelled, LaneSelection, Selected, Selection, Swept};
use crate::model::clock::Timestamp;
use crate::model::id::JobId;
use crate::model::limits::ACTION_ROWS_MAX;
use crate::model::queue::Owner;
use crate::stores::state::actions::DEAD_NODE_SHOWN;

/// Locks the lanes of these jobs and reads all that is in them; ended jobs are noted.
async fn load_places(work: &mut Work<'_>, ids: &[JobId]) -> Try<()> {
    let found = work.find(ids).await?;
    let lanes: BTreeSet<u64> = found.iter().filter_map(|(_, lane)| *lane).collect();
    work.lock_lanes(&lanes).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    work.load_jobs(&lanes, Need::All, true, Bodies::None, &HashMap::new()).await?;
    let ended = found.iter().filter(|(id, _)| !work.state.jobs.contains_key(id));
    let ended: Vec<u64> = ended.map(|(id, _)| id.seq()).collect();
    for seqs in ended.chunks(LIST_MAX) {
        let seqs = list(seqs.iter().copied());
        let from = format!("FROM seriatim_ended j WHERE j.seq IN ({seqs})");
        work.read_ended(&from, Bodies::None).await?;
    }
    Ok(())
}

pub(super) async fn cancel(work: &mut Work<'_>, ids: &[JobId]) -> Try<Vec<Cancelled>> {
    load_places(work, ids).await?;
    let now = work.now;
    let cancelled = ids.iter().map(|id| work.state.cancel(now, *id)).collect();
    work.save().await?;
    Ok(cancelled)
}

pub(super) async fn amend(work: &mut Work<'_>, request: &Amend) -> Try<()> {
    load_places(work, &[request.job]).await?;
    let now = work.now;
    work.state.amend(now, request)?;
    work.save().await?;
    Ok(())
}

pub(super) async fn act(work: &mut Work<'_>, request: &Act) -> Try<Acted> {
    let row = work.state.queue(&request.queue)?;
    let (queue, owner) = (row.number, row.queue.mode.failure_belongs_to());
    let filter = match (&request.lanes, owner) {
        (LaneSelection::All, _) => String::new(),
        (LaneSelection::Key(key), _) => format!("AND k = {}", super::sql::text(key)),
        (LaneSelection::Lane(lane), _) => format!("AND id = {}", lane.number),
        (LaneSelection::Failed, Owner::Lane) => "AND retry >= 0".to_owned(),
        (LaneSelection::Failed, Owner::Job) => {
            let among =
                "(SELECT 1 FROM seriatim_job j WHERE j.lane = seriatim_lane.id AND j.retry >= 0)";
            format!("AND (j_retry >= 0 OR EXISTS {among})")
        }
    };
    let sql = format!(
        "SELECT id FROM seriatim_lane WHERE q = {queue} {filter} ORDER BY id LIMIT {}",
        ACTION_ROWS_MAX + 1
    );
    let mut ids = BTreeSet::new();
    for row in work.rows(&sql).await? {
        ids.insert(Columns::of(row).int()? as u64);
    }
    work.lock_lanes(&ids).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    work.load_jobs(&lanes, Need::All, true, Bodies::None, &HashMap::new()).await?;
    let now = work.now;
    let acted = work.state.act(now, request)?;
    work.save().await?;
    Ok(acted)
}

/// The dead jobs of a selection, oldest first, and whether more are left.
async fn select(work: &mut Work<'_>, request: &Selected) -> Try<(Vec<u64>, bool)> {
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
        ACTION_ROWS_MAX + 1
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
    let more = seqs.len() > ACTION_ROWS_MAX;
    seqs.truncate(ACTION_ROWS_MAX);
    Ok((seqs, more))
}

/// Reads these dead jobs, and locks them. Others may have taken some meanwhile.
async fn load_dead(work: &mut Work<'_>, seqs: &[u64], bodies: Bodies) -> Try<()> {
    for seqs in seqs.chunks(LIST_MAX) {
        let seqs = list(seqs.iter().copied());
        let from = format!(
            "FROM seriatim_ended j WHERE j.seq IN ({seqs}) AND j.state = {DEAD} FOR UPDATE"
        );
        work.read_ended(&from, bodies).await?;
    }
    Ok(())
}

pub(super) async fn requeue(work: &mut Work<'_>, request: &Selected) -> Try<Acted> {
    let (seqs, more) = select(work, request).await?;
    let row = work.state.queue(&request.queue)?;
    let (queue, keyed, merges) = (row.number, row.queue.mode.is_keyed(), row.queue.merges());
    let mut digests = Vec::new();
    let mut keys: BTreeSet<(u32, Arc<str>)> = BTreeSet::new();
    let mut undigested = false;
    for some in seqs.chunks(LIST_MAX) {
        let some = list(some.iter().copied());
        let sql = format!("SELECT k, digest FROM seriatim_ended WHERE seq IN ({some})");
        for row in work.rows(&sql).await? {
            let mut row = Columns::of(row);
            keys.extend(row.maybe_text()?.filter(|_| keyed).map(|key| (queue, key)));
            match row.bytes()?.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()) {
                Some(digest) => digests.push(digest),
                None => undigested = true,
            }
        }
    }
    work.open_keys(&keys).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    // A job without a digest may equal any.
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

pub(super) async fn delete_dead(work: &mut Work<'_>, request: &Selected) -> Try<Acted> {
    let (seqs, more) = select(work, request).await?;
    load_dead(work, &seqs, Bodies::None).await?;
    let all = Selected { which: Selection::All, ..request.clone() };
    let acted = work.state.delete_dead(&all)?;
    work.save().await?;
    Ok(Acted { more, ..acted })
}

pub(super) async fn sweep(work: &mut Work<'_>, rows_max: usize) -> Try<Swept> {
    let now = work.now;
    let (at, most) = (now.as_micros(), rows_max + 1);
    let sql = format!(
        "SELECT e.seq, l.id FROM seriatim_expiry e LEFT JOIN seriatim_job j ON j.seq = e.seq \
         JOIN seriatim_lane l ON l.id = COALESCE(j.lane, e.seq) \
         WHERE e.at <= {at} AND COALESCE(j.gen, l.j_gen) >= l.open ORDER BY e.seq LIMIT {most}"
    );
    let (mut expired, mut lanes) = (Vec::new(), BTreeSet::new());
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        expired.push(row.int()? as u64);
        lanes.insert(row.int()? as u64);
    }
    work.lock_lanes(&lanes).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    work.load_jobs(&lanes, Need::All, true, Bodies::None, &HashMap::new()).await?;
    let mut swept = work.state.sweep(now, rows_max);
    swept.more |= expired.len() > rows_max;
    sweep_ended(work, rows_max, &mut swept).await?;
    work.save().await?;
    forget_names(work, most).await?;
    let old = at - micros(DEAD_NODE_SHOWN);
    let old = format!("FROM seriatim_node WHERE dead_at IS NOT NULL AND dead_at <= {old}");
    let ids = format!("SELECT id {old}");
    let mut nodes = Vec::new();
    for row in work.rows(&ids).await? {
        nodes.push(Columns::of(row).text()?);
    }
    if !nodes.is_empty() {
        let nodes = literals(nodes.iter().map(|node| &**node));
        work.run(&format!("DELETE FROM seriatim_ticket WHERE node IN ({nodes}); DELETE {old}"))
            .await?;
    }
    Ok(swept)
}

/// Deletes finished and dead jobs past their retention, and dead ones over the cap.
async fn sweep_ended(work: &mut Work<'_>, rows_max: usize, swept: &mut Swept) -> Try<()> {
    let (now, most) = (work.now.as_micros(), rows_max + 1);
    let done = format!(
        "FROM seriatim_ended j FORCE INDEX (ended_until) WHERE j.until <= {now} ORDER BY j.until LIMIT {most} FOR UPDATE SKIP LOCKED"
    );
    let mut done = work.read_ended(&done, Bodies::None).await?;
    swept.more |= done.len() > rows_max;
    done.truncate(rows_max);
    swept.completed = done.len() as u64;
    let counts = format!(
        "SELECT q, COUNT(*) FROM seriatim_ended FORCE INDEX (ended_state) WHERE q IN ({}) AND state = {DEAD} GROUP BY q",
        list(work.state.queues.keys().map(|number| u64::from(*number)))
    );
    let mut dead = Vec::new();
    for row in work.rows(&counts).await? {
        let mut row = Columns::of(row);
        let (queue, count) = (row.int()? as u32, row.int()? as u64);
        let Some(definition) = work.state.queue_row(queue).map(|row| &row.queue) else { continue };
        let over = count.saturating_sub(definition.retain_dead_max).min(most as u64) as usize;
        let old = now.saturating_sub(micros(definition.retain_dead));
        let from = format!("FROM seriatim_ended j WHERE j.q = {queue} AND j.state = {DEAD}");
        let rest = "FOR UPDATE SKIP LOCKED";
        let mut ids = Vec::new();
        if over > 0 {
            let sql = format!("{from} ORDER BY j.at, j.seq LIMIT {over} {rest}");
            ids = work.read_ended(&sql, Bodies::None).await?;
        }
        let sql = format!("{from} AND j.at <= {old} ORDER BY j.at, j.seq LIMIT {most} {rest}");
        for id in work.read_ended(&sql, Bodies::None).await? {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        dead.extend(ids);
    }
    swept.more |= dead.len() > rows_max;
    dead.truncate(rows_max);
    for id in done.iter().chain(&dead) {
        let gone = work.state.done.remove(id).or_else(|| work.state.dead.remove(id));
        if let Some(gone) = gone {
            work.state.forget(&gone.entry);
        }
    }
    swept.dead = dead;
    Ok(())
}

/// Forgets idempotency keys past their time whose job is not known any more.
async fn forget_names(work: &mut Work<'_>, most: usize) -> Try<()> {
    let sql = format!(
        "SELECT DISTINCT job FROM seriatim_idempotency FORCE INDEX (idempotency_until) WHERE until <= {} LIMIT {most}",
        work.now.as_micros()
    );
    let mut ids = Vec::new();
    for row in work.rows(&sql).await? {
        let id = Columns::of(row).bytes()?.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        ids.extend(id.map(JobId::from_bytes));
    }
    let known: BTreeSet<JobId> = work.find(&ids).await?.into_iter().map(|(id, _)| id).collect();
    let gone = ids.iter().filter(|id| !known.contains(&work.state.resolve(**id)));
    let gone: Vec<String> = gone.map(|id| bytes(&id.to_bytes())).collect();
    for gone in gone.chunks(LIST_MAX / 10) {
        let sql = format!(
            "DELETE FROM seriatim_idempotency WHERE until <= {} AND job IN ({})",
            work.now.as_micros(),
            gone.join(",")
        );
        work.run(&sql).await?;
    }
    Ok(())
}

pub(super) async fn pause(work: &mut Work<'_>, queue: &str, paused: bool) -> Try<()> {
    work.state.pause_queue(queue, paused)?;
    work.save().await?;
    Ok(())
}
