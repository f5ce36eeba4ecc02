//! Turns, as the scripts that claim lanes answer them.

use std::sync::Arc;

use redis::Value;

use super::compact::{self, Begin, Plain};
use super::reply::{Fields, Shard, score_of, single};
use crate::model::{Payload, Result, Timestamp, Token, Turn, TurnJob};

/// The turns of an answer.
#[derive(Default)]
pub(super) struct Handed {
    pub(super) turns: Vec<Turn>,
    /// The numbers of the jobs whose payloads are still to be read.
    pub(super) apart: Vec<u64>,
}

impl Fields {
    /// The turns of a claim (`turns.lua`), made at `now`.
    pub(super) fn claimed(
        mut self,
        shard: Shard,
        queue: &Arc<str>,
        now: Timestamp,
    ) -> Result<Handed> {
        let (mut turns, mut apart) = (Vec::with_capacity(self.len() / 2), Vec::new());
        let mut token = Token(0);
        while !self.is_empty() {
            let claim = Plain { shard, queue, token, now };
            turns.push(match self.value()? {
                Value::Int(of_the_next) => {
                    token = Token(of_the_next);
                    continue;
                }
                Value::BulkString(bytes) => match Begin::of(&bytes)? {
                    Begin::Lane(lane) => compact::turn(claim, lane, &self.bytes()?, &mut apart)?,
                    Begin::Job => compact::listed_turn(claim, [Ok(bytes)], &mut apart)?,
                },
                Value::Array(records) if matches!(records[..], [Value::BulkString(_), ..]) => {
                    let records = records.into_iter().map(|record| single(record)?.bytes());
                    compact::listed_turn(claim, records, &mut apart)?
                }
                turn => Self::of(turn)?.turn(shard, queue, &mut apart)?,
            });
        }
        Ok(Handed { turns, apart })
    }

    /// The turns of a script that answers no payloads.
    pub(super) fn turns(mut self, shard: Shard, queue: &Arc<str>) -> Result<Vec<Turn>> {
        let mut turns = Vec::new();
        while !self.is_empty() {
            turns.push(self.list()?.turn(shard, queue, &mut Vec::new())?);
        }
        Ok(turns)
    }

    /// A turn; adds the jobs whose payloads are apart.
    pub(super) fn turn(
        mut self,
        shard: Shard,
        queue: &Arc<str>,
        apart: &mut Vec<u64>,
    ) -> Result<Turn> {
        let (lane, key, token) = (self.int()?, self.name()?, self.int()?);
        let (retry_count, crashes, error) = (self.int()?, self.int()?, self.opt_text()?);
        let claimed_at = self.time()?;
        let (mut list, mut jobs) = (self.list()?, Vec::new());
        while !list.is_empty() {
            jobs.push(match list.value()? {
                Value::BulkString(record) => compact::listed_job(shard, &record, apart)?,
                job => Self::of(job)?.turn_job(shard, apart)?,
            });
        }
        if !self.is_empty() {
            self.list()?.falls(&mut jobs)?;
            compact::sort(&mut jobs);
        }
        Ok(Turn {
            lane: shard.lane(lane),
            queue: queue.clone(),
            key,
            token: Token(token),
            retry_count: retry_count as i32,
            crashes: crashes as u32,
            error,
            claimed_at,
            jobs,
        })
    }

    /// Adds turns that jobs had together: the number of the last one that had some, how many, and so on.
    fn falls(mut self, jobs: &mut [TurnJob]) -> Result<()> {
        while !self.is_empty() {
            let (last, attempts) = (self.int()? as u64, self.int()? as u32);
            let had = jobs.iter_mut().filter(|job| job.id.seq() <= last);
            had.for_each(|job| job.attempt += attempts);
        }
        Ok(())
    }

    fn turn_job(mut self, shard: Shard, apart: &mut Vec<u64>) -> Result<TurnJob> {
        let (id, task) = (shard.job(self.int()?, self.int()?), self.name()?);
        let body = self.opt_bytes()?;
        apart.extend(body.is_none().then_some(id.seq()));
        Ok(TurnJob {
            id,
            task,
            payload: Payload::from_bytes(body.unwrap_or_default()),
            score: score_of(&self.text()?)?,
            priority: self.int()? as u16,
            run_at: self.time()?,
            attempt: self.int()? as u32 + 1,
            options: self.options()?,
        })
    }
}
