//! Removing expired rows.

use rusqlite::params;

use super::push::job_id;
use super::tx::Tx;
use crate::contract::Swept;
use crate::model::clock::micros;
use crate::model::{Fate, JobId, Result};
use crate::stores::gone::DEAD_NODE_SHOWN;

/// A kept idempotency key is looked at again after as long as it has outlived its time, within these limits: so a job
/// that stays for months costs a look a day.
const LOOK_AGAIN_MIN_US: i64 = 60_000_000;
const LOOK_AGAIN_MAX_US: i64 = 86_400_000_000;

impl Tx<'_> {
    pub(super) fn sweep(&mut self, rows_max: usize) -> Result<Swept> {
        self.flush()?;
        let mut swept = Swept::default();
        self.sweep_expired(rows_max, &mut swept)?;
        self.sweep_done(rows_max, &mut swept)?;
        self.sweep_dead(rows_max, &mut swept)?;
        self.sweep_idempotency(rows_max, &mut swept)?;
        self.sweep_shares(rows_max)?;
        self.sweep_batches(rows_max, &mut swept)?;
        let sql = "DELETE FROM node WHERE dead_at IS NOT NULL AND dead_at <= ?1";
        self.execute(sql, [self.now - micros(DEAD_NODE_SHOWN)])?;
        Ok(swept)
    }

    fn sweep_expired(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let limit = rows_max as i64 + 1;
        let slots = "SELECT id, seq, q, created FROM lane INDEXED BY lane_expires
                     WHERE expires IS NOT NULL AND expires <= ?1 AND attempts = 0 AND (st <> 2 OR gen >= open) LIMIT ?2";
        let items = "SELECT l.id, i.seq, l.q, i.created FROM item i INDEXED BY item_expires JOIN lane l ON l.id = i.lane
                     WHERE i.expires IS NOT NULL AND i.expires <= ?1 AND i.attempts = 0 AND i.gen >= l.open LIMIT ?2";
        let mut found: Vec<(i64, i64, u32, i64)> = Vec::new();
        for sql in [slots, items] {
            let read =
                |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
            found.extend(self.rows(sql, params![self.now, limit], read)?);
        }
        found.sort_unstable_by_key(|(_, seq, _, _)| *seq);
        swept.more |= found.len() > rows_max;
        for (lane, seq, queue, created) in found.into_iter().take(rows_max) {
            if self.end_waiting(lane, seq, Fate::Expire)? {
                swept.expired.push(job_id(created, queue, seq));
            }
        }
        Ok(())
    }

    fn sweep_done(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let sql = "DELETE FROM ended WHERE seq IN
                   (SELECT seq FROM ended WHERE until IS NOT NULL AND until <= ?1 ORDER BY until LIMIT ?2)
                   RETURNING seq, aliases IS NOT NULL, payload IS NULL";
        let most = rows_max as i64;
        let gone: Vec<(i64, bool, bool)> = self.rows(sql, params![self.now, most], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        for (seq, has_aliases, has_body) in &gone {
            if *has_aliases {
                self.execute("DELETE FROM alias WHERE target = ?1", [seq])?;
            }
            if *has_body {
                self.delete_body(*seq)?;
            }
        }
        swept.completed = gone.len() as u64;
        swept.more |= gone.len() == rows_max;
        Ok(())
    }

    fn sweep_dead(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let numbers: Vec<(u32, i64)> =
            self.rows("SELECT number, dead FROM queue", [], |r| Ok((r.get(0)?, r.get(1)?)))?;
        for (number, dead) in numbers.into_iter().filter(|(_, dead)| *dead > 0) {
            let Some(queue) = self.queue_number(number)? else { continue };
            let most = i64::try_from(queue.queue.retain_dead_max).unwrap_or(i64::MAX);
            let over = dead.saturating_sub(most).max(0);
            let old = self.now.saturating_sub(micros(queue.queue.retain_dead));
            let sql =
                "SELECT seq, created, at FROM ended WHERE q = ?1 AND dead = 1 ORDER BY at, seq";
            let left = rows_max.saturating_sub(swept.dead.len());
            let mut oldest: Vec<(i64, i64)> = Vec::new();
            self.while_rows(sql, [number], |row| {
                let goes = (oldest.len() as i64) < over || row.get::<_, i64>(2)? <= old;
                if goes {
                    oldest.push((row.get(0)?, row.get(1)?));
                }
                Ok(goes && oldest.len() <= left)
            })?;
            for (i, (seq, created)) in oldest.into_iter().enumerate() {
                if i == left {
                    swept.more = true;
                    return Ok(());
                }
                self.remove_dead(number, seq)?;
                swept.dead.push(job_id(created, number, seq));
            }
        }
        Ok(())
    }

    /// Forgets groups that use nothing of their limits.
    fn sweep_shares(&mut self, rows_max: usize) -> Result<()> {
        let sql = "DELETE FROM share WHERE (q, grp) IN (SELECT q, grp FROM share
                   WHERE grp >= 0 AND running = 0 AND paced <= ?1 LIMIT ?2)";
        let values = params![self.now.saturating_mul(1_000), rows_max as i64];
        self.execute(sql, values).map(drop)
    }

    fn sweep_idempotency(&mut self, rows_max: usize, swept: &mut Swept) -> Result<()> {
        let sql = "SELECT q, key, name, job, until FROM idempotency
                   WHERE look_at <= ?1 ORDER BY look_at LIMIT ?2";
        type Name = (u32, String, String, [u8; 16], i64);
        let old: Vec<Name> = self.rows(sql, params![self.now, rows_max as i64], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })?;
        swept.more |= old.len() == rows_max;
        for (queue, key, name, job, until) in old {
            if self.find(JobId::from_bytes(job))?.is_some() {
                let sql =
                    "UPDATE idempotency SET look_at = ?4 WHERE q = ?1 AND key = ?2 AND name = ?3";
                let wait = (self.now - until).clamp(LOOK_AGAIN_MIN_US, LOOK_AGAIN_MAX_US);
                self.execute(sql, params![queue, key, name, self.now.saturating_add(wait)])?;
            } else {
                let sql = "DELETE FROM idempotency WHERE q = ?1 AND key = ?2 AND name = ?3";
                self.execute(sql, params![queue, key, name])?;
            }
        }
        Ok(())
    }
}
