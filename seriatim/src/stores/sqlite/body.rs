//! Large payloads, in a table of their own. A lane's row is rewritten whenever the lane changes, so it must stay
//! small.

use rusqlite::params;

use super::row::Job;
use super::tx::Tx;
use crate::model::{Error, ErrorKind, Result};

/// Payloads up to this size are stored in the row of their job, in bytes.
pub(super) const INLINE_BYTES_MAX: usize = 2_000;

impl Tx<'_> {
    /// Stores the payload of a new job and returns the part that goes into the job's row. `None` if the payload is
    /// large.
    pub(super) fn store_body(&self, seq: i64, payload: &[u8]) -> Result<Option<Vec<u8>>> {
        if payload.len() <= INLINE_BYTES_MAX {
            return Ok(Some(payload.to_vec()));
        }
        let sql = "INSERT INTO body (seq, payload) VALUES (?1, ?2)";
        self.execute(sql, params![seq, payload])?;
        Ok(None)
    }

    /// Reads a large payload. `Corrupt` if it is missing.
    pub(super) fn body(&self, seq: i64) -> Result<Vec<u8>> {
        let sql = "SELECT payload FROM body WHERE seq = ?1";
        self.first(sql, [seq], |row| row.get(0))?.ok_or_else(missing)
    }

    pub(super) fn payload_of(&self, job: &Job) -> Result<Vec<u8>> {
        match &job.payload {
            Some(payload) => Ok(payload.clone()),
            None => self.body(job.seq),
        }
    }

    /// A payload and its length; empty if it is longer than `bytes_max`.
    pub(super) fn payload_to_show(
        &self,
        job: &Job,
        bytes_max: Option<usize>,
    ) -> Result<(Vec<u8>, usize)> {
        let Some(most) = bytes_max else {
            let payload = self.payload_of(job)?;
            let length = payload.len();
            return Ok((payload, length));
        };
        if let Some(payload) = &job.payload {
            let shown = if payload.len() > most { Vec::new() } else { payload.clone() };
            return Ok((shown, payload.len()));
        }
        let sql =
            "SELECT CASE WHEN length(payload) <= ?2 THEN payload ELSE x'' END, length(payload)
                   FROM body WHERE seq = ?1";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize));
        self.first(sql, params![job.seq, most as i64], read)?.ok_or_else(missing)
    }

    pub(super) fn delete_body(&self, seq: i64) -> Result<()> {
        self.execute("DELETE FROM body WHERE seq = ?1", [seq]).map(drop)
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::Corrupt, "the payload of a job is missing: restore a backup")
}
