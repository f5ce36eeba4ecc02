//! Removing expired rows.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};

use super::bodies::Bodies;
use super::error::Try;
use super::job_row::DEAD;
use super::load::Need;
use super::push::{NAMES_MAX, delete_names};
use super::sql::{Columns, LIST_MAX, bytes, delete, list, literals};
use super::tally::Figure;
use super::work::Work;
use crate::contract::Swept;
use crate::model::JobId;
use crate::model::clock::micros;
use crate::stores::gone::DEAD_NODE_SHOWN;

/// Pages of expired jobs that a sweep looks at to find lanes that nobody has locked.
const LOCKED_PAGES_MAX: usize = 10;

pub(super) async fn sweep(
    work: &mut Work<'_>,
    rows_max: usize,
    names_seen: &AtomicI64,
) -> Try<Swept> {
    let (now, at, most) = (work.now, work.now.as_micros(), rows_max + 1);
    let more = lock_expired(work, rows_max).await?;
    let lanes: Vec<u64> = work.lanes.keys().copied().collect();
    work.load_jobs(&lanes, Need::Removal, true, Bodies::None, &HashMap::new()).await?;
    let mut swept = work.state.sweep(now, rows_max);
    swept.more |= more;
    sweep_ended(work, rows_max, &mut swept).await?;
    work.save().await?;
    swept.more |= forget_names(work, most, names_seen).await?;
    swept.more |= work.fold_figures().await?;
    let expired = format!("DELETE FROM seriatim_extension WHERE until < {at} LIMIT {rows_max}");
    work.run(&expired).await?;
    forget_shares(work, rows_max).await?;
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

/// Locks the lanes of expired jobs, but for those that other transactions have locked: their jobs are passed by, up to
/// [`LOCKED_PAGES_MAX`] pages of them. Returns whether there may be more jobs to end now.
async fn lock_expired(work: &mut Work<'_>, rows_max: usize) -> Try<bool> {
    let (now, most) = (work.now.as_micros(), rows_max + 1);
    let (mut last, mut found, mut more, mut stale) = ((0, 0), 0, true, Vec::new());
    for _ in 0..LOCKED_PAGES_MAX {
        let (at, seq) = last;
        // Without those that run.
        let sql = format!(
            "SELECT e.at, e.seq, IF(COALESCE(j.attempts, l.j_attempts) = 0, l.id, NULL) \
             FROM seriatim_expiry e FORCE INDEX (expiry_at) LEFT JOIN seriatim_job j ON j.seq = e.seq \
             LEFT JOIN seriatim_lane l ON l.id = COALESCE(j.lane, e.seq) \
             WHERE e.at BETWEEN {at} AND {now} AND (e.at > {at} OR e.seq > {seq}) \
             AND IFNULL(COALESCE(j.gen, l.j_gen) < l.open OR e.seq = l.taken, 0) = 0 \
             ORDER BY e.at, e.seq LIMIT {most}"
        );
        let (rows, mut expired) = (work.rows(&sql).await?, Vec::new());
        more = rows.len() > rows_max;
        for row in rows {
            let mut row = Columns::of(row);
            last = (row.int()?, row.int()?);
            let seq = last.1 as u64;
            match row.maybe_int()? {
                Some(lane) => {
                    work.leaving.entry(lane as u64).or_default().push(seq);
                    expired.push(lane as u64);
                }
                // It was tried, or is gone: earlier builds kept the entry.
                None => stale.push(seq),
            }
        }
        work.lock_lanes(&expired.iter().copied().collect()).await?;
        // Jobs, of which a lane may have many.
        found += expired.iter().filter(|lane| work.lanes.contains_key(lane)).count();
        if !more || found >= rows_max {
            break;
        }
    }
    for seqs in stale.chunks(LIST_MAX) {
        work.write(&delete("seriatim_expiry", "seq", seqs, "")).await?;
    }
    // If all are locked, the next sweep is soon enough.
    Ok(more && (found > 0 || !stale.is_empty()))
}

/// Deletes finished and dead jobs after their retention, and dead ones above the queue's limit.
async fn sweep_ended(work: &mut Work<'_>, rows_max: usize, swept: &mut Swept) -> Try<()> {
    let (now, most) = (work.now.as_micros(), rows_max + 1);
    let done = format!(
        "FROM seriatim_ended j FORCE INDEX (ended_until) WHERE j.until <= {now} ORDER BY j.until LIMIT {most} FOR UPDATE SKIP LOCKED"
    );
    let mut done = work.read_ended(&done, Bodies::None).await?;
    swept.more |= done.len() > rows_max;
    done.truncate(rows_max);
    swept.completed = done.len() as u64;
    let figures = work.figures().await?;
    let mut dead = Vec::new();
    for queue in work.state.queues.keys().copied().collect::<Vec<_>>() {
        let (count, most) = (figures.get(queue, Figure::Dead), most.saturating_sub(dead.len()));
        let Some(definition) = work.state.queue_row(queue).map(|row| &row.queue) else { continue };
        if count == 0 || most == 0 {
            continue;
        }
        let limit = definition.retain_dead_max;
        let over = count.saturating_sub(limit).min(most as u64) as usize;
        let old = now.saturating_sub(micros(definition.retain_dead));
        let from = format!("FROM seriatim_ended j WHERE j.q = {queue} AND j.state = {DEAD}");
        let rest = "FOR UPDATE SKIP LOCKED";
        let mut ids = Vec::new();
        if over > 0 {
            ids = dead_above(work, queue, limit, over).await?;
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

/// Reads and locks the oldest of the dead jobs above the limit, `most` at most. It leaves out those that another
/// session has locked, and takes no younger ones for them: if that session removes them, the younger ones are within
/// the limit.
async fn dead_above(work: &mut Work<'_>, queue: u32, limit: u64, most: usize) -> Try<Vec<JobId>> {
    let sql = format!(
        "SELECT seq FROM seriatim_ended FORCE INDEX (ended_state) WHERE q = {queue} AND state = {DEAD} \
         ORDER BY at, seq LIMIT {most}"
    );
    let rows = work.rows(&sql).await?;
    let seqs: Try<Vec<u64>> =
        rows.into_iter().map(|row| Ok(Columns::of(row).int()? as u64)).collect();
    let mut seqs = seqs?;
    // Counted again: since the first time, older ones may have gone.
    let count = work.figures().await?.get(queue, Figure::Dead);
    seqs.truncate(count.saturating_sub(limit) as usize);
    let mut ids = Vec::new();
    for seqs in seqs.chunks(LIST_MAX) {
        let seqs = list(seqs);
        let from = format!(
            "FROM seriatim_ended j FORCE INDEX (PRIMARY) WHERE j.seq IN ({seqs}) AND j.q = {queue} AND j.state = {DEAD} \
             FOR UPDATE SKIP LOCKED"
        );
        ids.extend(work.read_ended(&from, Bodies::None).await?);
    }
    Ok(ids)
}

/// Forgets groups whose rates hold nothing back.
async fn forget_shares(work: &mut Work<'_>, rows_max: usize) -> Try<()> {
    let sql = format!(
        "SELECT q, grp FROM seriatim_share WHERE grp >= 0 AND paced <= {} LIMIT {rows_max} FOR UPDATE SKIP LOCKED",
        work.now.as_micros().saturating_mul(1_000)
    );
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        let (queue, group) = (row.int()?, row.int()?);
        work.write(&format!("DELETE FROM seriatim_share WHERE q = {queue} AND grp = {group}"))
            .await?;
    }
    Ok(())
}

/// Deletes expired idempotency keys whose job is no longer stored. Looks at about `most` of those behind `seen`, the time
/// up to which the last call looked, so that names of stored jobs are not in the way of others. Returns whether to go on.
async fn forget_names(work: &mut Work<'_>, most: usize, seen: &AtomicI64) -> Try<bool> {
    let (from, now) = (seen.load(Ordering::Relaxed), work.now.as_micros());
    let expired = "FROM seriatim_idempotency FORCE INDEX (idempotency_until) WHERE until";
    let end = format!(
        "SELECT until {expired} > {from} AND until <= {now} ORDER BY until LIMIT 1 OFFSET {most}"
    );
    let end = work.rows(&end).await?.into_iter().next();
    let end = end.map(|row| Columns::of(row).int()).transpose()?;
    // Names of one push have the same time, and are looked at together.
    let sql = format!("SELECT DISTINCT job {expired} > {from} AND until <= {}", end.unwrap_or(now));
    let mut ids = Vec::new();
    for row in work.rows(&sql).await? {
        let id = Columns::of(row).bytes()?.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        ids.extend(id.map(JobId::from_bytes));
    }
    let known: BTreeSet<JobId> = work.find(&ids).await?.into_iter().map(|(id, _)| id).collect();
    let gone = ids.iter().filter(|id| !known.contains(&work.state.resolve(**id)));
    let gone: Vec<String> = gone.map(|id| bytes(&id.to_bytes())).collect();
    for gone in gone.chunks(NAMES_MAX) {
        // One that a transaction pushes again is locked, and will no longer be old.
        let sql = format!(
            "SELECT q, k, name {expired} > {from} AND until <= {} AND job IN ({}) FOR UPDATE SKIP LOCKED",
            end.unwrap_or(now),
            gone.join(",")
        );
        let mut names = Vec::new();
        for row in work.rows(&sql).await? {
            let mut row = Columns::of(row);
            let (queue, key, name) = (row.int()? as u32, row.text()?, row.text()?);
            names.push((queue, Some(key.to_string()), name.to_string()));
        }
        delete_names(work, names, "").await?;
    }
    // At the end, the next sweep begins again.
    seen.store(end.unwrap_or_default(), Ordering::Relaxed);
    Ok(end.is_some() && 2 * gone.len() > ids.len())
}
