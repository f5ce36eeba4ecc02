//! The inbox role.

use async_trait::async_trait;
use rusqlite::{Row, params};

use super::Sqlite;
use super::flush::Flush;
use super::line::Rank;
use super::row::Sql;
use super::tx::Tx;
use crate::contract::{DrainInbox, Drained, Inbox, InboxView, Pushed};
use crate::model::limits::{INBOX_BYTES_MAX, INBOX_REFUSED_MAX, PAGE_ROWS_MAX, PAYLOAD_BYTES_MAX};
use crate::model::{Job, Result, Timestamp};
use crate::stores::inbox::{self, Ends, Step};

const WAITS: &str =
    "SELECT 1 FROM seriatim_inbox INDEXED BY inbox_waiting WHERE refused IS NULL LIMIT 1";
const OLDEST: &str =
    "SELECT CAST(round((julianday(inserted_at) - 2440587.5) * 86400000.0) AS INTEGER) * 1000
    FROM seriatim_inbox INDEXED BY inbox_waiting WHERE refused IS NULL ORDER BY id LIMIT 1";
const REFUSE: &str =
    "UPDATE seriatim_inbox SET refused = ?2, refused_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
    WHERE id = ?1";
const FORGET: &str =
    "DELETE FROM seriatim_inbox WHERE id IN (SELECT id FROM seriatim_inbox INDEXED BY inbox_refused
    WHERE refused IS NOT NULL ORDER BY id DESC LIMIT 1000 OFFSET ?1)";
const REFUSED: &str = "SELECT json_object('row', id, 'queue', substr(CAST(queue AS TEXT), 1, 1024),
      'key', substr(CAST(key AS TEXT), 1, 1024), 'why', substr(CAST(refused AS TEXT), 1, 1024),
      'at', coalesce(CAST(round((julianday(refused_at) - 2440587.5) * 86400000.0) AS INTEGER) * 1000, 0))
    FROM seriatim_inbox INDEXED BY inbox_refused WHERE refused IS NOT NULL ORDER BY id DESC LIMIT ?1";

#[async_trait]
impl Inbox for Sqlite {
    async fn drain_inbox(&self, request: DrainInbox) -> Result<Drained> {
        if request.rows_max == 0 && request.ended.is_empty() {
            let more = self.look(|tx| Ok(tx.first(WAITS, [], |_| Ok(()))?.is_some())).await?;
            return Ok(Drained { more, ..Drained::default() });
        }
        let body = move |tx: &mut Tx<'_>| tx.at(request.now).drain_inbox(&request);
        self.write.call(Rank::Usual, INBOX_BYTES_MAX, Flush::Now, body).await
    }

    async fn inbox(&self) -> Result<InboxView> {
        self.look(|tx| tx.inbox_view()).await
    }
}

impl Tx<'_> {
    /// There is one writer, so rows appear in the order of their numbers, and nobody else drains them meanwhile.
    fn drain_inbox(&mut self, request: &DrainInbox) -> Result<Drained> {
        self.end_inbox(&Ends::of_deeds(&request.ended))?;
        let rows_max = inbox::rows_max(request.rows_max);
        let rows = self.oldest_of_inbox(rows_max)?;
        let now = Timestamp::from_micros(self.now);
        let mut most = rows.len();
        loop {
            let mut step = Step::of(&rows[..most], now);
            let refused = match self.push_or_undo(&step.jobs)? {
                Ok(pushed) => {
                    let pushed = step.refuse_throttled(pushed, &rows, now);
                    self.end_inbox(&Ends::of_step(&step))?;
                    return Ok(step.drained(pushed, &rows, rows_max));
                }
                Err(error) => inbox::refusal(error, &step, &rows, now)?,
            };
            match refused {
                // Those before it are pushed; then it is the first.
                (_, Some(before)) => most = before,
                (row, None) => {
                    self.end_inbox(&Ends::of_refused(&[], &row))?;
                    return Ok(Drained { refused: vec![row], more: true, ..Drained::default() });
                }
            }
        }
    }

    /// Pushes jobs: all or none.
    pub(super) fn push_or_undo(&mut self, jobs: &[Job]) -> Result<Result<Vec<Pushed>>> {
        if jobs.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let before = self.mark();
        self.execute("SAVEPOINT pushed", [])?;
        let pushed = self.push(jobs);
        if pushed.is_err() {
            self.execute("ROLLBACK TO pushed", [])?;
            self.back_to(before);
        }
        self.execute("RELEASE pushed", [])?;
        Ok(pushed)
    }

    fn oldest_of_inbox(&self, rows_max: i64) -> Result<Vec<inbox::Row>> {
        let (mut rows, mut bytes, mut failed) = (Vec::new(), 0, Ok(()));
        let values = params![rows_max, PAYLOAD_BYTES_MAX as i64];
        self.while_rows(include_str!("sql/take_inbox.sql"), values, |row| {
            let is_text =
                std::str::from_utf8(row.get_ref(0)?.as_bytes().unwrap_or_default()).is_ok();
            match inbox::read([&*document(row)?]) {
                Ok(mut read) => {
                    if let (false, Some(last)) = (is_text, read.last_mut()) {
                        last.bad_text = last.replaced().map(str::to_owned);
                    }
                    rows.extend(read);
                }
                Err(error) => failed = Err(error),
            }
            bytes += rows.last().map_or(0, inbox::Row::payload_bytes);
            Ok(failed.is_ok() && bytes <= INBOX_BYTES_MAX)
        })?;
        failed.map(|()| rows)
    }

    fn end_inbox(&self, ends: &Ends) -> Result<()> {
        for row in &ends.done {
            self.execute("DELETE FROM seriatim_inbox WHERE id = ?1", [row])?;
        }
        for (row, why) in &ends.refused {
            self.execute(REFUSE, params![row, why])?;
        }
        if !ends.refused.is_empty() {
            self.execute(FORGET, [INBOX_REFUSED_MAX as i64])?;
        }
        Ok(())
    }

    fn inbox_view(&self) -> Result<InboxView> {
        let waits_since = self.first(OLDEST, [], |row| row.get::<_, Option<i64>>(0))?;
        let refused = self.rows(REFUSED, [PAGE_ROWS_MAX as i64], document)?;
        Ok(InboxView {
            waits_since: waits_since.map(|at| Timestamp::from_micros(at.unwrap_or_default())),
            refused: inbox::read_refused(refused.iter().map(|text| &**text))?,
        })
    }
}

/// A JSON document made of whatever is in the row: bytes that are no text too.
fn document(row: &Row<'_>) -> Sql<Vec<u8>> {
    let text = row.get_ref(0)?.as_bytes().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned().into_bytes())
}
