//! Compact records: lanes of one fresh job, kept as one value. `shard.lua` says what is in it.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{LaneId, Token};
use crate::payload::Payload;
use crate::turn::{Turn, TurnJob};

use super::reply::{Shard, corrupt, score_of_order};

/// What a claim says of such a lane besides its record.
pub(super) struct Compact<'a> {
    pub lane: LaneId,
    pub queue: &'a Arc<str>,
    pub token: Token,
    pub now: Timestamp,
}

/// The turn that a claim has made of a record.
pub(super) fn turn(claim: Compact<'_>, record: Vec<u8>) -> Result<Turn> {
    let mut rest = Reader(&record);
    rest.take(1)?;
    let (created, run_at) = (rest.number(7)?, rest.number(7)?);
    let (priority, score) = (rest.number(2)?, rest.number(8)?);
    let lengths = [rest.number(2)?, rest.number(2)?, rest.number(1)?, rest.number(4)?];
    let [key, task, _digest, options] = lengths.map(|length| rest.take(length as usize));
    let shard = Shard::of_lane(claim.lane);
    let job = TurnJob {
        id: shard.job(claim.lane.number as i64, created as i64),
        task: name(task?)?,
        score: score_of_order(score),
        priority: priority as u16,
        run_at: Timestamp::from_micros(run_at as i64),
        attempt: 1,
        options: match options? {
            [] => None,
            text => Some(serde_json::from_slice(text).map_err(|e| corrupt().because(e))?),
        },
        payload: Payload::from_bytes(rest.0.to_vec()),
    };
    Ok(Turn {
        lane: claim.lane,
        queue: claim.queue.clone(),
        key: name(key?)?,
        token: claim.token,
        retry_count: -1,
        crashes: 0,
        error: None,
        claimed_at: claim.now,
        jobs: vec![job],
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, bytes: usize) -> Result<u64> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

fn name(bytes: &[u8]) -> Result<Option<Arc<str>>> {
    let text = std::str::from_utf8(bytes).map_err(|_| corrupt())?;
    Ok((!text.is_empty()).then(|| text.into()))
}
