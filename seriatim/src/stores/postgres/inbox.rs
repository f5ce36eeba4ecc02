//! The inbox role.

use async_trait::async_trait;
use tokio_postgres::{IsolationLevel, Row, Transaction};

use super::convert::column;
use super::params::{Param, typed};
use super::push::{PUSH, PushBatch, all_pushed, push_error};
use super::summons::Summons;
use super::{Postgres, error};
use crate::contract::{DrainInbox, Drained, Inbox, InboxView, RefusedRow};
use crate::model::limits::{INBOX_BYTES_MAX, INBOX_REFUSED_MAX, PAGE_ROWS_MAX, PAYLOAD_BYTES_MAX};
use crate::model::{Result, Timestamp};
use crate::stores::inbox::{self, Attempt, Ends, Step};

const WAITS: &str = "SELECT seriatim.inbox_waits()";
/// Whether this session drains the inbox now: one at a time. A process that is suspended meanwhile must not hold up
/// the others for ever.
const ALONE: &str = "SELECT set_config('idle_in_transaction_session_timeout', '10s', true), \
     pg_try_advisory_xact_lock(hashtext('inbox seriatim.')) AS alone, seriatim.clock() AS now";
const TAKE: &str = "SELECT * FROM seriatim.take_inbox($1, $2, $3)";
const END: &str = "SELECT seriatim.end_inbox($1, $2, $3, $4)";
const SLEEP: &str = "INSERT INTO seriatim.inbox_asleep VALUES (true) ON CONFLICT DO NOTHING";
const LIST: &str = "SELECT * FROM seriatim.list_inbox($1)";

#[async_trait]
impl Inbox for Postgres {
    async fn drain_inbox(&self, request: DrainInbox) -> Result<Drained> {
        if request.rows_max == 0 && request.ended.is_empty() {
            let more = column(&self.pool.query_one(WAITS, &[]).await?, 0)?;
            return Ok(Drained { more, ..Drained::default() });
        }
        let drained = self.pool.in_time(Box::pin(self.drain(&request))).await?;
        if !drained.pushed.is_empty() {
            self.rounds.count(&self.pool);
            self.summon(&Summons::of_jobs(&drained.jobs));
        }
        Ok(drained)
    }

    async fn inbox(&self) -> Result<InboxView> {
        let row = self.pool.query_one(LIST, &[&(PAGE_ROWS_MAX as i64)]).await?;
        let refused: Vec<&str> = column(&row, "o_refused")?;
        let waits_since = column::<_, Option<i64>>(&row, "o_since")?.map(Timestamp::from_micros);
        let refused = inbox::read_refused(refused.into_iter().map(str::as_bytes))?;
        Ok(InboxView { waits_since, refused })
    }
}

impl Postgres {
    async fn drain(&self, request: &DrainInbox) -> Result<Drained> {
        let mut rows_max = inbox::rows_max(request.rows_max);
        loop {
            match self.attempt(request, rows_max).await? {
                Attempt::Done(drained) => return Ok(drained),
                // Those before it are pushed; then it is the first.
                Attempt::Refused((_, Some(before))) => rows_max = before as i64,
                Attempt::Refused((row, None)) => return self.refuse(request, row).await,
            }
        }
    }

    /// One transaction. If it fails, or the process dies, nothing has happened.
    async fn attempt(&self, request: &DrainInbox, rows_max: i64) -> Result<Attempt> {
        let mut loan = self.pool.lend().await?;
        let Some(client) = loan.client() else { return Ok(Attempt::Done(Drained::default())) };
        let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let work = begun.start().await.map_err(error::of_driver)?;
        let attempt = self.step(&work, request, rows_max).await;
        let is_done = matches!(attempt, Ok(Attempt::Done(_)));
        match if is_done { work.commit().await } else { work.rollback().await } {
            Ok(()) => loan.ended(),
            Err(e) if is_done => return Err(error::of_driver(e)),
            // The session is lost, and with it the transaction.
            Err(_) => {}
        }
        attempt
    }

    async fn step(
        &self,
        work: &Transaction<'_>,
        request: &DrainInbox,
        rows_max: i64,
    ) -> Result<Attempt> {
        let first = self.run(work, ALONE, &[]).await?;
        // Also while another session drains: the caller does not tell them again.
        self.end(work, &Ends::of_deeds(&request.ended)).await?;
        let Some(first) = first.first().filter(|row| matches!(column(row, "alone"), Ok(true)))
        else {
            return Ok(Attempt::Done(Drained::default()));
        };
        let now = Timestamp::from_micros(column(first, "now")?);
        let limits: [&dyn Param; 3] =
            [&rows_max, &(INBOX_BYTES_MAX as i64), &(PAYLOAD_BYTES_MAX as i64)];
        let rows = documents(&self.run(work, TAKE, &limits).await?)?;
        let mut step = Step::of(&rows, now);
        let mut pushed = Vec::new();
        if rows.is_empty() {
            self.run(work, SLEEP, &[]).await?;
        } else if !step.jobs.is_empty() {
            let batch = PushBatch::new(request.now, &step.jobs)?;
            // Not by the pool, whose last connection this one may be. If it fails, the push says why.
            let _ = self.make_room(&self.pool.alone(), &batch, &step.jobs).await;
            let text = self.pool.text(PUSH);
            match work.query_typed(&text, &typed(&batch.params())).await {
                Ok(answer) => pushed = step.refuse_throttled(all_pushed(&answer)?, &rows, now),
                Err(e) => {
                    let refused = inbox::refusal(push_error(e, &step.jobs), &step, &rows, now)?;
                    return Ok(Attempt::Refused(refused));
                }
            }
        }
        self.end(work, &Ends::of_step(&step)).await?;
        Ok(Attempt::Done(step.drained(pushed, &rows, rows_max)))
    }

    /// Refuses a row because of the state of the store. What the attempt noted of deeds is undone with it.
    async fn refuse(&self, request: &DrainInbox, row: RefusedRow) -> Result<Drained> {
        let (done, refused, why) = arrays(&Ends::of_refused(&request.ended, &row));
        let most = INBOX_REFUSED_MAX as i64;
        self.pool.query(END, &[&done, &refused, &why, &most]).await?;
        Ok(Drained { refused: vec![row], more: true, ..Drained::default() })
    }

    async fn end(&self, work: &Transaction<'_>, ends: &Ends) -> Result<()> {
        if ends.is_empty() {
            return Ok(());
        }
        let (done, refused, why) = arrays(ends);
        let params: [&dyn Param; 4] = [&done, &refused, &why, &(INBOX_REFUSED_MAX as i64)];
        self.run(work, END, &params).await.map(drop)
    }

    async fn run(
        &self,
        work: &Transaction<'_>,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>> {
        let rows = work.query_typed(&self.pool.text(sql), &typed(params)).await;
        rows.map_err(error::common)
    }
}

fn arrays(ends: &Ends) -> (Vec<i64>, Vec<i64>, Vec<Option<String>>) {
    let refused = ends.refused.iter().map(|(row, _)| *row).collect();
    (ends.done.clone(), refused, ends.refused.iter().map(|(_, why)| Some(why.clone())).collect())
}

fn documents(rows: &[Row]) -> Result<Vec<inbox::Row>> {
    let texts: Result<Vec<&str>> = rows.iter().map(|row| column(row, 0)).collect();
    inbox::read(texts?.into_iter().map(str::as_bytes))
}
