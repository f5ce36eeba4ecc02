//! Reading the answers of scripts.

use std::sync::Arc;

use redis::Value;

use super::args::Args;
use crate::model::{Error, ErrorKind, JobId, JobOptions, LaneId, Result, Timestamp};

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

/// The parts of an answer, read in order.
pub(super) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    pub(super) fn of(value: Value) -> Result<Self> {
        match value {
            Value::Array(list) => Ok(Self(list.into_iter())),
            Value::Nil => Ok(Self(Vec::new().into_iter())),
            // By RESP3, which a URL may ask for (`protocol=resp3`).
            Value::Map(pairs) => {
                let parts = pairs.into_iter().flat_map(|(name, value)| [name, value]);
                Ok(Self(parts.collect::<Vec<_>>().into_iter()))
            }
            _ => Err(corrupt()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
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
