//! The inbox role.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;

use super::error::Try;
use super::fold::count_call;
use super::gates::{Gates, Lock};
use super::push::push;
use super::sql::{Columns, INBOX_WAITS, delete, list, text};
use super::work::Work;
use super::{Inner, Mysql};
use crate::contract::{Batches, DrainInbox, Drained, Inbox, InboxView, RefusedRow, Wake};
use crate::model::limits::{INBOX_BYTES_MAX, INBOX_REFUSED_MAX, PAGE_ROWS_MAX, PAYLOAD_BYTES_MAX};
use crate::model::{Result, Timestamp};
use crate::stores::inbox::{self, Attempt, Ends, Row, Step};

/// One caller drains at a time.
const GATE: &str = "INSERT INTO seriatim_leader (role, node, until) VALUES ('inbox gate', '', 0) \
     ON DUPLICATE KEY UPDATE role = role";

/// How often a step that finds only rows which other transactions have locked looks behind them.
const LOOKS_MAX: usize = 10;

/// Rows whose lengths are read first, then as many as fit if the others are as long: the server reads all of a payload to
/// know its length, and a step ends at its bytes.
const LENGTHS_MIN: usize = 16;

/// The oldest rows, as one moment shows them.
#[derive(Default)]
pub(super) struct Oldest {
    pub rows: Vec<i64>,
    queues: BTreeSet<Arc<str>>,
}

/// What an attempt finds.
#[derive(Default)]
struct Found {
    /// Those of the oldest rows that are gone, or that another transaction has locked to change them.
    missing: Vec<i64>,
    /// What the store refuses to push.
    refused: Option<(Step, Vec<Row>, Timestamp)>,
}

/// There are none in MySQL.
impl Batches for Mysql {}

#[async_trait]
impl Inbox for Mysql {
    async fn drain_inbox(&self, request: DrainInbox) -> Result<Drained> {
        if request.rows_max == 0 && request.ended.is_empty() {
            let waits = transact!(self.inner, Lock::Look, None, work => work.rows(INBOX_WAITS))?;
            return Ok(Drained { more: !waits.is_empty(), ..Drained::default() });
        }
        let drained = drain(&self.inner, &request).await?;
        if !drained.pushed.is_empty() {
            self.inner.ring(&Wake::of_jobs(&drained.jobs));
            count_call(&self.inner);
        }
        Ok(drained)
    }

    async fn inbox(&self) -> Result<InboxView> {
        transact!(self.inner, Lock::Look, None, work => view(work))
    }
}

async fn drain(store: &Inner, request: &DrainInbox) -> Result<Drained> {
    let mut rows_max = inbox::rows_max(request.rows_max);
    let (mut missing, mut looks) = (BTreeSet::new(), 0);
    let is_nothing = |drained: &Drained| {
        drained.pushed.is_empty() && drained.refused.is_empty() && drained.deeds.is_empty()
    };
    loop {
        let known = missing.len();
        match attempt(store, request, rows_max, &mut missing).await? {
            Attempt::Done(drained)
                if is_nothing(&drained) && missing.len() > known && looks < LOOKS_MAX =>
            {
                looks += 1;
            }
            Attempt::Done(drained) => return Ok(drained),
            // Those before it are pushed; then it is the first.
            Attempt::Refused((_, Some(before))) => rows_max = before as i64,
            Attempt::Refused((row, None)) => {
                // What the attempt noted of deeds is undone with it.
                let ends = Ends::of_refused(&request.ended, &row);
                transact!(store, Lock::FREE, None, work => end(work, &ends))?;
                return Ok(Drained { refused: vec![row], more: true, ..Drained::default() });
            }
        }
    }
}

/// Which rows are the oldest is read without locks, in one moment: a locking read would pass by a row that is committed
/// while it runs, and take later ones. The transaction locks these rows, and no others. `missing`: rows to pass by.
async fn attempt(
    store: &Inner,
    request: &DrainInbox,
    rows_max: i64,
    missing: &mut BTreeSet<i64>,
) -> Result<Attempt> {
    let passed: Vec<i64> = missing.iter().copied().collect();
    let oldest = transact!(store, Lock::Look, None, work => oldest(work, rows_max, &passed))?;
    if oldest.rows.is_empty() && request.ended.is_empty() {
        return Ok(Attempt::Done(Drained::default()));
    }
    let lock = Lock::Write(Gates::Named(oldest.queues.clone()));
    let mut found = Found::default();
    let drained = transact!(
        store, lock.clone(), request.now, work => carry_out(work, request, &oldest, &mut found, rows_max)
    );
    missing.extend(found.missing);
    match (drained, found.refused) {
        (Err(error), Some((step, rows, now))) => {
            inbox::refusal(error, &step, &rows, now).map(Attempt::Refused)
        }
        (drained, _) => drained.map(Attempt::Done),
    }
}

pub(super) async fn oldest(work: &mut Work<'_>, rows_max: i64, passed: &[i64]) -> Try<Oldest> {
    let but = match passed.is_empty() {
        true => String::new(),
        false => format!(" AND id NOT IN ({})", list(passed)),
    };
    let sql = format!(
        "SELECT id, LEFT(queue, 1024) FROM seriatim_inbox FORCE INDEX (inbox_waiting) \
         WHERE waits = 1{but} ORDER BY id LIMIT {rows_max}"
    );
    let (mut rows, mut queues) = (Vec::new(), Vec::new());
    for row in work.rows(&sql).await? {
        let mut row = Columns::of(row);
        rows.push(row.int()?);
        queues.push(row.maybe_text()?);
    }
    rows.truncate(fitting(work, &rows).await?);
    queues.truncate(rows.len());
    Ok(Oldest { rows, queues: queues.into_iter().flatten().collect() })
}

/// How many of these rows a step has bytes for.
async fn fitting(work: &mut Work<'_>, rows: &[i64]) -> Try<usize> {
    let (mut fit, mut bytes, mut most) = (0, 0, LENGTHS_MIN);
    while fit < rows.len() {
        let some = &rows[fit..rows.len().min(fit + most)];
        let sql = format!(
            "SELECT id, COALESCE(LENGTH(payload), 0) FROM seriatim_inbox FORCE INDEX (PRIMARY) WHERE id IN ({})",
            list(some)
        );
        let mut lengths = HashMap::new();
        for row in work.rows(&sql).await? {
            let mut row = Columns::of(row);
            lengths.insert(row.int()?, row.int()?);
        }
        for row in some {
            // One that is gone has none.
            let length = lengths.remove(row).unwrap_or_default();
            bytes += length.min(PAYLOAD_BYTES_MAX as i64);
            if bytes > INBOX_BYTES_MAX as i64 {
                return Ok(fit);
            }
            fit += 1;
        }
        let average = (bytes / fit as i64).max(1);
        most = LENGTHS_MIN.max(((INBOX_BYTES_MAX as i64 - bytes) / average) as usize);
    }
    Ok(fit)
}

/// Pushes and deletes these rows, but not the missing ones.
async fn carry_out(
    work: &mut Work<'_>,
    request: &DrainInbox,
    oldest: &Oldest,
    found: &mut Found,
    rows_max: i64,
) -> Try<Drained> {
    *found = Found::default();
    work.run(GATE).await?;
    end(work, &Ends::of_deeds(&request.ended)).await?;
    let mut rows = read(work, &oldest.rows).await?;
    let here: BTreeSet<i64> = rows.iter().map(|row| row.id).collect();
    found.missing = oldest.rows.iter().copied().filter(|row| !here.contains(row)).collect();
    // The queue of a row may have been changed since, and that one is not locked.
    let is_known = |row: &Row| row.queue.as_deref().is_none_or(|name| oldest.queues.contains(name));
    rows.truncate(rows.iter().position(|row| !is_known(row)).unwrap_or(rows.len()));
    let (mut step, now) = (Step::of(&rows, work.now), work.now);
    let mut pushed = Vec::new();
    if !step.jobs.is_empty() {
        match push(work, &step.jobs).await {
            Ok(answer) => pushed = step.refuse_throttled(answer, &rows, now),
            Err(fail) => {
                found.refused = Some((step, rows, now));
                return Err(fail);
            }
        }
    }
    end(work, &Ends::of_step(&step)).await?;
    Ok(step.drained(pushed, &rows, rows_max))
}

async fn read(work: &mut Work<'_>, rows: &[i64]) -> Try<Vec<Row>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        include_str!("take_inbox.sql"),
        payload_max = PAYLOAD_BYTES_MAX,
        rows = list(rows.iter().copied())
    );
    let rows = work.rows(&sql).await?;
    rows.into_iter().map(|row| row_of(&mut Columns::of(row))).collect()
}

fn row_of(row: &mut Columns) -> Try<Row> {
    let id = row.int()?;
    let mut text = || row.maybe_text().map(|text| text.map(|text| text.to_string()));
    Ok(Row {
        id,
        action: text()?,
        queue: text()?,
        key: text()?,
        payload: text()?,
        task: text()?,
        score: text()?,
        priority: text()?,
        idempotency_key: text()?,
        node: text()?,
        consumer_group: text()?,
        partition_key: text()?,
        producer: text()?,
        job_id: text()?,
        max_retries: text()?,
        key_group: text()?,
        bytes: row.maybe_int()?,
        run_at: row.maybe_int()?,
        expires_at: row.maybe_int()?,
        bad_time: None,
        bad_text: None,
    })
}

/// Deletes rows that were carried out, and marks those that were refused, of which the latest are kept.
async fn end(work: &mut Work<'_>, ends: &Ends) -> Try<()> {
    if !ends.done.is_empty() {
        work.write(&delete("seriatim_inbox", "id", &ends.done, "")).await?;
    }
    for (row, why) in &ends.refused {
        let why = text(why);
        let sql = format!(
            "UPDATE seriatim_inbox SET refused = CONVERT({why} USING utf8mb4), refused_at = CURRENT_TIMESTAMP(6) \
             WHERE id = {row}"
        );
        work.write(&sql).await?;
    }
    if ends.refused.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "SELECT id FROM seriatim_inbox FORCE INDEX (inbox_waiting) WHERE waits = 0 ORDER BY id DESC \
         LIMIT 1000 OFFSET {INBOX_REFUSED_MAX}"
    );
    let rows = work.rows(&sql).await?;
    let rows: Try<Vec<i64>> = rows.into_iter().map(|row| Columns::of(row).int()).collect();
    let rows = rows?;
    if rows.is_empty() {
        Ok(())
    } else {
        work.write(&delete("seriatim_inbox", "id", &rows, "")).await
    }
}

async fn view(work: &mut Work<'_>) -> Try<InboxView> {
    let sql = "SELECT CAST(UNIX_TIMESTAMP(inserted_at) * 1000000 AS SIGNED) FROM seriatim_inbox \
               FORCE INDEX (inbox_waiting) WHERE waits = 1 ORDER BY id LIMIT 1";
    let first = work.rows(sql).await?.into_iter().next();
    let waits_since = first.map(|row| Columns::of(row).int()).transpose()?;
    let sql = format!(
        "SELECT id, LEFT(queue, 1024), LEFT(`key`, 1024), LEFT(refused, 1024), \
         COALESCE(CAST(UNIX_TIMESTAMP(refused_at) * 1000000 AS SIGNED), 0) FROM seriatim_inbox \
         FORCE INDEX (inbox_waiting) WHERE waits = 0 ORDER BY id DESC LIMIT {PAGE_ROWS_MAX}"
    );
    let refused = |row| {
        let mut row = Columns::of(row);
        let row_id = row.int()?;
        let mut text = || row.maybe_text().map(|text| text.map(|text| text.to_string()));
        let (queue, key, why) = (text()?, text()?, text()?.unwrap_or_default());
        Ok(RefusedRow { row: row_id, queue, key, why, at: Timestamp::from_micros(row.int()?) })
    };
    let refused: Try<Vec<_>> = work.rows(&sql).await?.into_iter().map(refused).collect();
    Ok(InboxView { waits_since: waits_since.map(Timestamp::from_micros), refused: refused? })
}
