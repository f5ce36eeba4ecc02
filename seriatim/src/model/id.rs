//! Ids of jobs, lanes, claims and nodes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::clock::Timestamp;
use crate::model::error::{Error, Result};

const SEQ_BITS: u32 = 48;
const QUEUE_BITS: u32 = 14;
const SHARD_BITS: u32 = 12;

/// The id of a job: a `UUIDv7` (RFC 9562) that the store assigns when it accepts the job.
///
/// Its 74 free bits are not random: they encode where the job is stored (shard, queue, arrival), so that a store
/// finds a job by its id without an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

impl JobId {
    /// The id of the job that arrived as number `seq` (48 bits: 89 years of 100,000 a second) in `queue` (14 bits), `shard` (12 bits).
    pub fn new(created_at: Timestamp, queue: u32, shard: u16, seq: u64) -> Self {
        debug_assert!(queue < 1 << QUEUE_BITS && shard < 1 << SHARD_BITS && seq < 1 << SEQ_BITS);
        let millis = (created_at.as_micros().max(0) / 1_000) as u128 & 0xffff_ffff_ffff;
        let low = (2 << 62) | (u128::from(queue) << SEQ_BITS) | u128::from(seq);
        Self((millis << 80) | (7 << 76) | (u128::from(shard) << 64) | low)
    }

    /// The job's number in the order of arrival; unique within its queue and shard.
    pub fn seq(self) -> u64 {
        self.0 as u64 & ((1 << SEQ_BITS) - 1)
    }

    /// The number of the queue.
    pub fn queue(self) -> u32 {
        (self.0 as u64 >> SEQ_BITS) as u32 & ((1 << QUEUE_BITS) - 1)
    }

    /// The shard to which the job was pushed.
    pub fn shard(self) -> u16 {
        (self.0 >> 64) as u16 & ((1 << SHARD_BITS) - 1)
    }

    /// When the job was accepted, to the millisecond.
    pub fn created_at(self) -> Timestamp {
        Timestamp::from_micros((self.0 >> 80) as i64 * 1_000)
    }

    /// The 16 bytes, big-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// An id from its 16 bytes. Accepts any bytes: an id that no store assigned is simply not found.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v = self.0;
        let (a, b, c) = ((v >> 96) as u32, (v >> 80) as u16, (v >> 64) as u16);
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", (v >> 48) as u16, v & ((1 << 48) - 1))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("job_id", "a job id is a UUID, as push returned it");
        let dashes = |i| matches!(i, 8 | 13 | 18 | 23);
        let shaped = text.len() == 36
            && text.bytes().enumerate().all(|(i, b)| (b == b'-') == dashes(i))
            && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
        if !shaped {
            return Err(wrong());
        }
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        u128::from_str_radix(&digits, 16).map(Self).map_err(|_| wrong())
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The id of a lane, opaque to all but its store. Never reused: a lane ends when its last job is settled, and the
/// next push of the key opens a new lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    /// The number of the queue.
    pub queue: u32,
    /// The shard of the queue.
    pub shard: u16,
    /// The number of the lane within its queue and shard.
    pub number: u64,
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.queue, self.shard, self.number)
    }
}

impl FromStr for LaneId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("lane", "a lane is an id as the claim returned it");
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().ok_or_else(wrong);
        let (queue, shard, number) = (next()?, next()?, next()?);
        Ok(Self {
            queue: queue.parse().map_err(|_| wrong())?,
            shard: shard.parse().map_err(|_| wrong())?,
            number: number.parse().map_err(|_| wrong())?,
        })
    }
}

impl Serialize for LaneId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LaneId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The fencing token of a claim: 1 … 2^53 − 1. It only grows for each lane and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub i64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The prefix of remote workers' names. No engine's name starts with it, so neither can claim jobs bound to the
/// other.
pub const REMOTE_NAME_START: &str = "remote:";

/// Refuses a name that the node of an engine may not have: `Invalid` (field `node_name`).
pub fn check_node_name(name: &str) -> Result<()> {
    let wrong = |message| Err(Error::invalid("node_name", message));
    match name {
        "" => wrong("is empty".to_owned()),
        name if name.starts_with(REMOTE_NAME_START) => {
            wrong(format!("names of remote workers begin with {REMOTE_NAME_START:?}"))
        }
        _ => Ok(()),
    }
}

/// The id of a running process: unique for each start, unlike the node's configured name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub Arc<str>);

impl From<&str> for NodeId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
