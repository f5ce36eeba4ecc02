//! Deleting a whole queue.

use rusqlite::params;

use super::tx::Tx;
use crate::contract::errors::is_claimed;
use crate::contract::{Acted, DeleteQueue};
use crate::model::error::Result;
use crate::model::limits::ACTION_ROWS_MAX;

/// Where the lanes of a queue are found, cheapest first: only what is in none of these indexes, a held or paused lane
/// without a key, needs a look through all lanes.
const LANES: [&str; 4] = ["key IS NOT NULL", "st = 0", "wake IS NOT NULL", "true"];

/// The jobs of the lanes in a JSON array.
const JOBS_OF: &str =
    "SELECT seq FROM lane WHERE id IN (SELECT value FROM json_each(?1)) AND seq IS NOT NULL
     UNION ALL SELECT seq FROM item WHERE lane IN (SELECT value FROM json_each(?1))";

impl Tx<'_> {
    pub(super) fn delete_queue(&mut self, request: &DeleteQueue) -> Result<Acted> {
        let row = self.known_queue(&request.queue)?;
        let number = row.number;
        self.flush()?;
        let sql = "SELECT running FROM queue WHERE number = ?1";
        let running: i64 = self.first(sql, [number], |row| row.get(0))?.unwrap_or_default();
        if running > 0 {
            return Err(is_claimed(&request.queue, running as u64));
        }
        self.close_queue(row)?;
        let rows_max = request.rows_max.clamp(1, ACTION_ROWS_MAX);
        let (lanes, lanes_left) = self.delete_lanes(number, rows_max)?;
        let (ended, ended_left) = self.delete_ended(number, rows_max)?;
        let names_left = self.delete_names(number, rows_max)?;
        let more = lanes_left || ended_left || names_left;
        if !more {
            self.execute("DELETE FROM claim WHERE q = ?1", [number])?;
            self.remove_queue(number)?;
        }
        Ok(Acted { count: lanes + ended, more })
    }

    fn delete_lanes(&mut self, queue: u32, rows_max: usize) -> Result<(u64, bool)> {
        let mut jobs = 0;
        for found in LANES {
            if self.lanes_of(queue)? == 0 {
                break;
            }
            let sql = format!("SELECT id, n FROM lane WHERE q = ?1 AND {found} LIMIT ?2");
            let limit = params![queue, rows_max as i64];
            let lanes: Vec<(i64, i64)> =
                self.rows(&sql, limit, |row| Ok((row.get(0)?, row.get(1)?)))?;
            let mut rows = jobs as usize;
            let fits = |(_, items): &&(i64, i64)| {
                let fits = rows < rows_max;
                rows += 1 + *items as usize;
                fits
            };
            let lanes: Vec<i64> = lanes.iter().take_while(fits).map(|(id, _)| *id).collect();
            jobs += self.delete_these(queue, &lanes)?;
        }
        Ok((jobs, self.lanes_of(queue)? > 0))
    }

    fn lanes_of(&mut self, queue: u32) -> Result<i64> {
        self.flush()?;
        let sql = "SELECT lanes FROM queue WHERE number = ?1";
        Ok(self.first(sql, [queue], |row| row.get(0))?.unwrap_or_default())
    }

    fn delete_these(&mut self, queue: u32, lanes: &[i64]) -> Result<u64> {
        if lanes.is_empty() {
            return Ok(0);
        }
        let ids = serde_json::Value::from(lanes).to_string();
        let count = format!("SELECT count(*) FROM ({JOBS_OF})");
        let jobs: i64 = self.first(&count, [&ids], |row| row.get(0))?.unwrap_or_default();
        self.execute(&format!("DELETE FROM alias WHERE target IN ({JOBS_OF})"), [&ids])?;
        self.execute(&format!("DELETE FROM body WHERE seq IN ({JOBS_OF})"), [&ids])?;
        let of_lanes = "IN (SELECT value FROM json_each(?1))";
        self.execute(&format!("DELETE FROM item WHERE lane {of_lanes}"), [&ids])?;
        self.execute(&format!("DELETE FROM lane WHERE id {of_lanes}"), [&ids])?;
        let delta = self.delta(queue);
        delta.lanes -= lanes.len() as i64;
        delta.jobs -= jobs;
        Ok(jobs as u64)
    }

    fn delete_ended(&mut self, queue: u32, rows_max: usize) -> Result<(u64, bool)> {
        let sql = "SELECT seq, dead FROM ended WHERE q = ?1 LIMIT ?2";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut found: Vec<(i64, i64)> =
            self.rows(sql, params![queue, rows_max as i64 + 1], read)?;
        let more = found.len() > rows_max;
        found.truncate(rows_max);
        if found.is_empty() {
            return Ok((0, false));
        }
        let seqs: Vec<i64> = found.iter().map(|(seq, _)| *seq).collect();
        let seqs = serde_json::Value::from(seqs).to_string();
        for (table, column) in [("alias", "target"), ("body", "seq"), ("ended", "seq")] {
            let these = "SELECT value FROM json_each(?1)";
            let sql = format!("DELETE FROM {table} WHERE {column} IN ({these})");
            self.execute(&sql, [&seqs])?;
        }
        self.delta(queue).dead -= found.iter().map(|(_, dead)| dead).sum::<i64>();
        Ok((found.len() as u64, more))
    }

    /// Whether idempotency keys are left.
    fn delete_names(&mut self, queue: u32, rows_max: usize) -> Result<bool> {
        let sql = "DELETE FROM idempotency WHERE (q, key, name) IN
                     (SELECT q, key, name FROM idempotency WHERE q = ?1 LIMIT ?2)";
        Ok(self.execute(sql, params![queue, rows_max as i64])? == rows_max)
    }
}
