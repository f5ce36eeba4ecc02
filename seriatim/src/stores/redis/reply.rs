//! Reading the answers of scripts.

use std::sync::Arc;

use redis::Value;

use super::args::Args;
use super::compact::{self, Begin, Plain};
use crate::model::{
    Error, ErrorKind, JobId, JobOptions, LaneId, Payload, Result, Timestamp, Token, Turn, TurnJob,
};

/// A shard of a queue; part of the ids of its jobs and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shard {
    pub queue: u32,
    pub shard: u16,
}

impl Shard {
    pub(super) fn of_job(id: JobId) -> Self {
        Self { queue: id.queue(), shard: id.shard() }
    }

    pub(super) fn of_lane(lane: LaneId) -> Self {
        Self { queue: lane.queue, shard: lane.shard }
    }

    pub(super) fn job(self, seq: i64, created: i64) -> JobId {
        JobId::new(Timestamp::from_micros(created), self.queue, self.shard, seq as u64)
    }

    pub(super) fn lane(self, number: i64) -> LaneId {
        LaneId { queue: self.queue, shard: self.shard, number: number as u64 }
    }
}

/// The arguments for a job: its number and the millisecond of its creation.
pub(super) fn name_job(args: &mut Args, id: JobId) -> &mut Args {
    args.int(id.seq()).int(id.created_at().as_micros() / 1_000)
}

/// An integer with the same order as the score.
pub(super) fn score_order(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// A score as 16 hex digits with the same order.
pub(super) fn score_hex(score: f64) -> String {
    format!("{:016x}", score_order(score))
}

pub(super) fn score_of_order(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

/// Decodes a score from 16 hex digits.
pub(super) fn score_of(hex: &str) -> Result<f64> {
    u64::from_str_radix(hex, 16).map(score_of_order).map_err(|_| corrupt())
}

/// The length of lane and job numbers in the store's keys, in bytes.
pub(super) const LANE_BYTES: usize = 7;

/// A lane's number in the format of the store's keys.
pub(super) fn lane_bytes(number: u64) -> [u8; LANE_BYTES] {
    let [_, bytes @ ..] = number.to_be_bytes();
    bytes
}

/// Decodes [`lane_bytes`].
pub(super) fn lane_number(bytes: &[u8]) -> Result<i64> {
    let bytes: [u8; LANE_BYTES] = bytes.try_into().map_err(|_| corrupt())?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | i64::from(*byte)))
}

pub(super) fn corrupt() -> Error {
    Error::new(ErrorKind::Corrupt, "a script returned an unexpected answer")
}

/// An answer with one part.
pub(super) fn single(value: Value) -> Result<Fields> {
    Fields::of(Value::Array(vec![value]))
}

/// Turns as a script answers them.
#[derive(Default)]
pub(super) struct Handed {
    pub(super) turns: Vec<Turn>,
    /// The numbers of the jobs whose payloads are still to be read.
    pub(super) apart: Vec<u64>,
}

/// The parts of an answer, read in order.
pub(super) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    pub(super) fn of(value: Value) -> Result<Self> {
        match value {
            Value::Array(list) => Ok(Self(list.into_iter())),
            Value::Nil => Ok(Self(Vec::new().into_iter())),
            _ => Err(corrupt()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The parts not read yet.
    pub(super) fn rest(self) -> impl Iterator<Item = Value> {
        self.0
    }

    pub(super) fn value(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(corrupt)
    }

    pub(super) fn opt_int(&mut self) -> Result<Option<i64>> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::Int(number) => Ok(Some(number)),
            Value::BulkString(text) => {
                let text = String::from_utf8(text).map_err(|_| corrupt())?;
                text.parse().map(Some).map_err(|_| corrupt())
            }
            _ => Err(corrupt()),
        }
    }

    pub(super) fn int(&mut self) -> Result<i64> {
        self.opt_int()?.ok_or_else(corrupt)
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        Ok(self.int()? == 1)
    }

    pub(super) fn time(&mut self) -> Result<Timestamp> {
        self.int().map(Timestamp::from_micros)
    }

    pub(super) fn opt_time(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.opt_int()?.map(Timestamp::from_micros))
    }

    pub(super) fn opt_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Err(corrupt()),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>> {
        self.opt_bytes()?.ok_or_else(corrupt)
    }

    pub(super) fn opt_text(&mut self) -> Result<Option<Arc<str>>> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => {
                String::from_utf8(bytes).map(|text| Some(text.into())).map_err(|_| corrupt())
            }
            _ => Err(corrupt()),
        }
    }

    pub(super) fn text(&mut self) -> Result<Arc<str>> {
        self.opt_text()?.ok_or_else(corrupt)
    }

    /// A name; the empty text is `None`, because names are never empty.
    pub(super) fn name(&mut self) -> Result<Option<Arc<str>>> {
        Ok(Some(self.text()?).filter(|name| !name.is_empty()))
    }

    pub(super) fn options(&mut self) -> Result<Option<Arc<JobOptions>>> {
        let Some(text) = self.name()? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|e| corrupt().because(e))
    }

    pub(super) fn list(&mut self) -> Result<Self> {
        Self::of(self.value()?)
    }

    /// Job ids from (seq, created) pairs.
    pub(super) fn ids(&mut self, shard: Shard) -> Result<Vec<JobId>> {
        self.list()?.ids_here(shard)
    }

    pub(super) fn ids_here(mut self, shard: Shard) -> Result<Vec<JobId>> {
        let mut ids = Vec::new();
        while !self.is_empty() {
            ids.push(shard.job(self.int()?, self.int()?));
        }
        Ok(ids)
    }

    /// The turns of a claim (`turns.lua`), made at `now`.
    pub(super) fn claimed(
        mut self,
        shard: Shard,
        queue: &Arc<str>,
        now: Timestamp,
    ) -> Result<Handed> {
        let (mut turns, mut apart) = (Vec::with_capacity(self.0.len() / 2), Vec::new());
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

#[cfg(test)]
mod tests {
    use super::{score_hex, score_of};

    #[test]
    fn score_digits_order_as_the_scores_do() {
        let smallest = f64::from_bits(1);
        let scores = [
            f64::MIN,
            -1e300,
            -2.5,
            -1.0,
            -f64::MIN_POSITIVE,
            -smallest,
            0.0,
            smallest,
            f64::MIN_POSITIVE,
            1.0,
            1.000_000_1,
            1_700_000_000.123_456,
            1e300,
            f64::MAX,
        ];
        let hex: Vec<String> = scores.iter().map(|score| score_hex(*score)).collect();
        assert!(hex.is_sorted() && hex.iter().all(|digits| digits.len() == 16), "{hex:?}");
        for (score, digits) in scores.iter().zip(&hex) {
            assert_eq!(score_of(digits).unwrap().to_bits(), score.to_bits());
        }
        assert_eq!(score_hex(-0.0), score_hex(0.0), "zero has one place");
    }
}
