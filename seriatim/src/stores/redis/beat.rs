//! Heartbeats.

use std::collections::BTreeMap;

use super::Redis;
use super::args::Args;
use super::link::{BEAT, GLOBAL_BEAT, GLOBAL_FLAG, GLOBAL_UNFLAG};
use super::nodes::command_of;
use super::reply::{Fields, Shard, corrupt};
use crate::contract::{Beat, CancelNotice, Heartbeat, Pulse};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{LaneId, NodeId, Token};
use crate::model::limits::{NAME_BYTES_MAX, PROGRESS_BYTES_MAX};

/// Longest id of a node: its configured name and what makes it unique. Four digits are its length
/// in an index.
const NODE_ID_BYTES_MAX: usize = 4 * NAME_BYTES_MAX;

/// Of a heartbeat, what concerns one shard.
#[derive(Default)]
struct Part {
    /// Places of the beats in the request.
    beats: Vec<usize>,
    /// Under which version the shard is noted to hold flagged jobs.
    flagged: Option<String>,
}

impl Redis {
    pub(super) async fn do_beat(&self, request: Heartbeat) -> Result<Pulse> {
        check(&request)?;
        let mut args = Args::at(request.now);
        let mut request = request;
        self.cap(&mut request.beats).await?;
        let info = serde_json::to_string(&request.node)
            .map_err(|e| Error::new(ErrorKind::Internal, "a node cannot be written").because(e))?;
        args.text(&request.node.id.0).micros(request.node.lease).text(&info);
        let mut answer = self.link.call(&GLOBAL_BEAT, &self.global(""), &args).await?;
        let (now, alive) = (answer.time()?, answer.flag()?);
        let command = answer.opt_text()?.as_deref().and_then(command_of);
        let mut pulse = Pulse { alive, command, ..Pulse::default() };
        let mut lost = Vec::new();
        let flags = answer.list()?;
        let (mut list, mut living) = (answer.list()?, Vec::new());
        while !list.is_empty() {
            living.push(NodeId(list.text()?));
        }
        self.fleet.set(living);
        for (shard, part) in parts(&request.beats, flags)? {
            let told = self.beat_in(shard, now, &request, &part).await?;
            pulse.cancel.extend(told.notices);
            lost.extend(told.lost);
        }
        lost.sort_unstable();
        pulse.lost = lost.into_iter().filter_map(|i| Some(request.beats.get(i)?.lane)).collect();
        pulse.cancel.sort_by_key(|notice| notice.lane);
        Ok(pulse)
    }

    /// Cuts how much longer claims shall stand to what their queues allow.
    async fn cap(&self, beats: &mut [Beat]) -> Result<()> {
        for beat in beats {
            let Some(length) = &mut beat.extend else { continue };
            if let Some(known) = self.numbered(beat.lane.queue).await? {
                *length = known.queue.lease_max.min(*length);
            }
        }
        Ok(())
    }

    async fn beat_in(
        &self,
        shard: Shard,
        now: Timestamp,
        request: &Heartbeat,
        part: &Part,
    ) -> Result<Told> {
        let args = beat_args(now, &request.node.id, part, &request.beats);
        let mut answer = self.link.call(&BEAT, &self.key(shard, ""), &args).await?;
        let mut told = Told::default();
        let mut lost = answer.list()?;
        while !lost.is_empty() {
            let place = usize::try_from(lost.int()?).ok().and_then(|i| part.beats.get(i));
            told.lost.push(*place.ok_or_else(corrupt)?);
        }
        let mut notices = answer.list()?;
        while !notices.is_empty() {
            told.notices.push(notice(notices.list()?, shard)?);
        }
        let any_flagged = answer.flag()?;
        if let Some(version) = part.flagged.as_ref().filter(|_| !any_flagged) {
            let mut args = Args::default();
            args.text(&flag_field(shard)).text(version);
            self.link.run(&GLOBAL_UNFLAG, &self.global(""), &args).await?;
        }
        Ok(told)
    }

    /// Notes that a shard holds flagged jobs, so that heartbeats look there.
    pub(super) async fn note_flags(&self, shard: Shard) -> Result<()> {
        let mut args = Args::default();
        args.text(&flag_field(shard)).text(&format!("{:016x}", fastrand::u64(..)));
        self.link.run(&GLOBAL_FLAG, &self.global(""), &args).await.map(drop)
    }
}

/// What a shard told.
#[derive(Default)]
struct Told {
    lost: Vec<usize>,
    notices: Vec<CancelNotice>,
}

fn beat_args(now: Timestamp, node: &NodeId, part: &Part, beats: &[Beat]) -> Args {
    let mut args = Args::default();
    args.time(now).text(&node.0);
    for beat in part.beats.iter().filter_map(|place| beats.get(*place)) {
        args.int(beat.lane.number).int(beat.token.0).optional(beat.progress.as_deref());
        match beat.extend {
            Some(length) => args.micros(length),
            None => args.text(""),
        };
    }
    args
}

fn parts(beats: &[Beat], mut flags: Fields) -> Result<BTreeMap<Shard, Part>> {
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

fn check(request: &Heartbeat) -> Result<()> {
    let id = request.node.id.0.len();
    if id > NODE_ID_BYTES_MAX {
        let message = format!("has {id} bytes; at most {NODE_ID_BYTES_MAX} are taken");
        return Err(Error::invalid("node", message));
    }
    let sizes = request.beats.iter().filter_map(|beat| Some(beat.progress.as_ref()?.len()));
    match sizes.max() {
        Some(bytes) if bytes > PROGRESS_BYTES_MAX => {
            let message = format!("has {bytes} bytes; at most {PROGRESS_BYTES_MAX} are kept");
            Err(Error::invalid("progress", message))
        }
        _ => Ok(()),
    }
}
