//! Reading the records of plain jobs, and of lanes with one such job, as claims return them. `compact.lua` defines the
//! format.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::{Payload, Result, Timestamp, Token, Turn, TurnJob};

use super::reply::{LANE_BYTES, Shard, corrupt, lane_number, score_of_order};

/// What the turns of a claim have in common that are returned as records.
#[derive(Clone, Copy)]
pub(super) struct Plain<'a> {
    pub shard: Shard,
    pub queue: &'a Arc<str>,
    pub token: Token,
    pub now: Timestamp,
}

/// The first value of a turn.
pub(super) enum Begin {
    /// A lane's number; its record follows.
    Lane(i64),
    /// The record of the turn's only job.
    Job,
}

impl Begin {
    pub(super) fn of(bytes: &[u8]) -> Result<Self> {
        match bytes {
            lane if lane.len() == LANE_BYTES => lane_number(lane).map(Self::Lane),
            [b'J' | b'F', ..] => Ok(Self::Job),
            _ => Err(corrupt()),
        }
    }
}

/// The turn of a lane of one job. Here and below, `apart` gets the jobs whose payloads are not in their records.
pub(super) fn turn(
    claim: Plain<'_>,
    lane: i64,
    record: &[u8],
    apart: &mut Vec<u64>,
) -> Result<Turn> {
    let mut rest = Reader(record);
    rest.take(1)?;
    let (key, job) = read_job(claim.shard, lane, rest, apart)?;
    Ok(claim.turn(lane, key, vec![job]))
}

/// The turn of a list, from job records in any order.
pub(super) fn listed_turn(
    claim: Plain<'_>,
    records: impl IntoIterator<Item = Result<Vec<u8>>>,
    apart: &mut Vec<u64>,
) -> Result<Turn> {
    let (mut lane, mut key, mut jobs, mut trouble) = (0, None, Vec::new(), None);
    for record in records {
        let record = record?;
        let (record, failed) = match record.first() {
            Some(b'F') => Trouble::of(&record).map(|(rest, trouble)| (rest, Some(trouble)))?,
            _ => (&record[..], None),
        };
        let (of_lane, of_job, mut job) = read_listed(claim.shard, record, apart)?;
        job.attempt += failed.as_ref().map_or(0, |failed| failed.attempts);
        (lane, key) = (of_lane, of_job);
        jobs.push(job);
        trouble = trouble.or(failed);
    }
    sort(&mut jobs);
    let mut turn = claim.turn(lane, key, jobs);
    if let Some(trouble) = trouble {
        (turn.retry_count, turn.error) = (trouble.retry_count, trouble.error);
    }
    Ok(turn)
}

/// A job of a list, from its record.
pub(super) fn listed_job(shard: Shard, record: &[u8], apart: &mut Vec<u64>) -> Result<TurnJob> {
    read_listed(shard, record, apart).map(|(_, _, job)| job)
}

/// Sorts jobs as they run.
pub(super) fn sort(jobs: &mut [TurnJob]) {
    jobs.sort_by(|a, b| a.score.total_cmp(&b.score).then(a.id.seq().cmp(&b.id.seq())));
}

/// The number of its lane, its key, and the job.
fn read_listed(
    shard: Shard,
    record: &[u8],
    apart: &mut Vec<u64>,
) -> Result<(i64, Option<Arc<str>>, TurnJob)> {
    let mut rest = Reader(record);
    rest.take(1)?;
    let (lane, seq) = (rest.number(LANE_BYTES)? as i64, rest.number(LANE_BYTES)? as i64);
    let (key, job) = read_job(shard, seq, rest, apart)?;
    Ok((lane, key, job))
}

impl Plain<'_> {
    fn turn(self, lane: i64, key: Option<Arc<str>>, jobs: Vec<TurnJob>) -> Turn {
        Turn {
            lane: self.shard.lane(lane),
            queue: self.queue.clone(),
            key,
            token: self.token,
            retry_count: -1,
            crashes: 0,
            error: None,
            claimed_at: self.now,
            jobs,
        }
    }
}

/// Reads a job and its key, from the creation time in its record.
fn read_job(
    shard: Shard,
    seq: i64,
    mut rest: Reader,
    apart: &mut Vec<u64>,
) -> Result<(Option<Arc<str>>, TurnJob)> {
    let (created, run_at) = (rest.number(7)?, rest.number(7)?);
    let (priority, score) = (rest.number(2)?, rest.number(8)?);
    let lengths = [rest.number(2)?, rest.number(2)?, rest.number(1)?, rest.number(4)?];
    let [key, task, _digest, options] = lengths.map(|length| rest.take(length as usize));
    let (options, is_apart) = unmarked(options?);
    apart.extend(is_apart.then_some(seq as u64));
    let job = TurnJob {
        id: shard.job(seq, created as i64),
        task: name(task?)?,
        score: score_of_order(score),
        priority: priority as u16,
        run_at: Timestamp::from_micros(run_at as i64),
        attempt: 1,
        options: match &options[..] {
            [] => None,
            text => Some(serde_json::from_slice(text).map_err(|e| corrupt().because(e))?),
        },
        payload: Payload::from_bytes(rest.0.to_vec()),
    };
    Ok((name(key?)?, job))
}

/// Payloads of at least this length are apart. Below it, what the command and the second field cost is not regained.
pub(super) const APART_BYTES_MIN: usize = 1_024;

/// What the options of a job begin with in its record if its payload is apart: its length follows, and then `,` or `}`.
const MARK: &str = "{\"batch\":";

/// A job's options in its record, with the length of a payload that is apart.
pub(super) fn marked(options: &str, payload_bytes: usize) -> String {
    match options.strip_prefix('{') {
        Some(fields) => format!("{MARK}{payload_bytes},{fields}"),
        None => format!("{MARK}{payload_bytes}}}"),
    }
}

/// The options of a record without that mark, and whether they had it.
fn unmarked(options: &[u8]) -> (Cow<'_, [u8]>, bool) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let marked =
        options.strip_prefix(MARK.as_bytes()).filter(|rest| rest.first().is_some_and(is_digit));
    let Some(rest) = marked else { return (options.into(), false) };
    let end = rest.iter().position(|byte| !is_digit(byte)).unwrap_or(rest.len());
    match &rest[end..] {
        [b',', fields @ ..] => ([b"{", fields].concat().into(), true),
        _ => (Cow::default(), true),
    }
}

/// What the record of a job that failed ends with: `TROUBLE` of `compact.lua`.
struct Trouble {
    retry_count: i32,
    attempts: u32,
    error: Option<Arc<str>>,
}

impl Trouble {
    const BYTES: usize = 19;

    /// The rest of a record, and its trouble.
    fn of(record: &[u8]) -> Result<(&[u8], Self)> {
        let at = record.len().checked_sub(Self::BYTES).ok_or_else(corrupt)?;
        let (rest, end) = record.split_at(at);
        let mut end = Reader(end);
        let (retry_count, attempts) = (end.number(4)? as i32, end.number(4)? as u32);
        let (_started, length) = (end.number(7)?, end.number(4)? as usize);
        let at = rest.len().checked_sub(length.saturating_sub(1)).ok_or_else(corrupt)?;
        let (rest, text) = rest.split_at(at);
        let text = std::str::from_utf8(text).map_err(|_| corrupt())?;
        Ok((rest, Self { retry_count, attempts, error: (length > 0).then(|| text.into()) }))
    }
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
