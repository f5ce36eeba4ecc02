//! Heartbeats.

use std::collections::BTreeMap;

use super::Redis;
use super::args::Args;
use super::link::{BEAT, GLOBAL_FLAG, GLOBAL_UNFLAG};
use super::reply::{Fields, Shard, corrupt};
use crate::contract::{Beat, CancelNotice, Heartbeat};
use crate::model::limits::NAME_BYTES_MAX;
use crate::model::{Error, LaneId, Result, Token};

/// Longest id of a node, in bytes: its configured name and a unique suffix. In an index, its length has four digits.
const NODE_ID_BYTES_MAX: usize = 4 * NAME_BYTES_MAX;

/// Most turns of a heartbeat in one script.
const BEATS_MAX: usize = 300;

/// The part of a heartbeat for one shard.
#[derive(Default)]
pub(super) struct Part {
    /// Indexes of the beats in the request.
    beats: Vec<usize>,
    /// The version of the note that the shard has flagged jobs.
    flagged: Option<String>,
}

impl Part {
    /// Whether it extends a lease.
    pub(super) fn extends(&self, beats: &[Beat]) -> bool {
        self.beats.iter().any(|place| beats.get(*place).is_some_and(|beat| beat.extend.is_some()))
    }
}

impl Redis {
    /// Limits extensions of claims to what their queues allow.
    pub(super) async fn cap(&self, beats: &mut [Beat]) -> Result<()> {
        for beat in beats {
            let Some(length) = &mut beat.extend else { continue };
            if let Some(known) = self.numbered(beat.lane.queue).await? {
                *length = known.queue.lease_max.min(*length);
            }
        }
        Ok(())
    }

    /// A heartbeat in one shard.
    pub(super) async fn beat_in(
        &self,
        shard: Shard,
        request: &Heartbeat,
        part: &Part,
    ) -> Result<BeatReply> {
        let (mut reply, mut any_flagged) = (BeatReply::default(), true);
        let mut left = &part.beats[..];
        loop {
            let (places, rest) = left.split_at(left.len().min(BEATS_MAX));
            let args = beat_args(request, places);
            let mut answer = self.link.call(&BEAT, &self.key(shard, ""), &args).await?;
            let mut lost = answer.list()?;
            while !lost.is_empty() {
                let place = usize::try_from(lost.int()?).ok().and_then(|i| places.get(i));
                reply.lost.push(*place.ok_or_else(corrupt)?);
            }
            let mut notices = answer.list()?;
            while !notices.is_empty() {
                let notice = notice(notices.list()?, shard)?;
                if !reply.notices.contains(&notice) {
                    reply.notices.push(notice);
                }
            }
            any_flagged &= answer.flag()?;
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        if let Some(version) = part.flagged.as_ref().filter(|_| !any_flagged) {
            let mut args = Args::default();
            args.text(&flag_field(shard)).text(version);
            self.link.run(&GLOBAL_UNFLAG, &self.global(""), &args).await?;
        }
        Ok(reply)
    }

    /// Notes that a shard has flagged jobs, so that heartbeats check it.
    pub(super) async fn note_flags(&self, shard: Shard) -> Result<()> {
        let mut args = Args::default();
        args.text(&flag_field(shard)).text(&format!("{:016x}", fastrand::u64(..)));
        self.link.run(&GLOBAL_FLAG, &self.global(""), &args).await.map(drop)
    }
}

/// A shard's answer.
#[derive(Default)]
pub(super) struct BeatReply {
    pub(super) lost: Vec<usize>,
    pub(super) notices: Vec<CancelNotice>,
}

/// If no time is given, the shard's clock counts: by it the leases began that are extended.
fn beat_args(request: &Heartbeat, places: &[usize]) -> Args {
    let mut args = Args::at(request.now);
    args.text(&request.node.id.0);
    for beat in places.iter().filter_map(|place| request.beats.get(*place)) {
        args.int(beat.lane.number).int(beat.token.0).optional(beat.progress.as_deref());
        match beat.extend {
            Some(length) => args.micros(length),
            None => args.text(""),
        };
    }
    args
}

pub(super) fn parts(beats: &[Beat], mut flags: Fields) -> Result<BTreeMap<Shard, Part>> {
    let mut parts: BTreeMap<Shard, Part> = BTreeMap::new();
    for (place, beat) in beats.iter().enumerate() {
        parts.entry(Shard::of_lane(beat.lane)).or_default().beats.push(place);
    }
    while !flags.is_empty() {
        let (field, version) = (flags.text()?, flags.text()?);
        let shard = shard_of_flag(&field).ok_or_else(corrupt)?;
        parts.entry(shard).or_default().flagged = Some(version.to_string());
    }
    Ok(parts)
}

fn flag_field(shard: Shard) -> String {
    format!("{}:{}", shard.queue, shard.shard)
}

fn shard_of_flag(field: &str) -> Option<Shard> {
    let (queue, shard) = field.split_once(':')?;
    Some(Shard { queue: queue.parse().ok()?, shard: shard.parse().ok()? })
}

fn notice(mut fields: Fields, shard: Shard) -> Result<CancelNotice> {
    let lane: LaneId = shard.lane(fields.int()?);
    let token = Token(fields.int()?);
    Ok(CancelNotice { lane, token, jobs: fields.ids(shard)? })
}

pub(super) fn check(request: &Heartbeat) -> Result<()> {
    let id = request.node.id.0.len();
    if id > NODE_ID_BYTES_MAX {
        let message = format!("has {id} bytes; at most {NODE_ID_BYTES_MAX} are taken");
        return Err(Error::invalid("node", message));
    }
    request.validate()
}
