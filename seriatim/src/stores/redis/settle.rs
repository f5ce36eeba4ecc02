//! Settling turns.

use super::Redis;
use super::args::{Args, micros};
use super::link::SETTLE;
use super::reply::{Fields, Shard, lane_bytes};
use crate::contract::{Settle, Settled};
use crate::model::error::Result;
use crate::model::settle::{Due, Fate, Settlement};

/// Matches no job: job numbers start at 1.
const NO_JOB: u64 = 0;

impl Redis {
    pub(super) async fn settle_in(
        &self,
        shard: Shard,
        places: Vec<usize>,
        request: &Settle,
    ) -> Result<Vec<(usize, Settled)>> {
        let turns = &request.turns;
        let (simple, others): (Vec<usize>, Vec<usize>) =
            places.into_iter().partition(|place| is_simple(&turns[*place]));
        let mut args = Args::at(request.now);
        args.int(simple.len() as i64);
        simple.iter().for_each(|place| simple_args(&mut args, &turns[*place]));
        others.iter().for_each(|place| turn_args(&mut args, shard, &turns[*place]));
        let mut answer = self.link.call_durably(&SETTLE, &self.key(shard, ""), &args).await?;
        let mut settled = Vec::new();
        for place in simple.into_iter().chain(others) {
            let cancelled = match answer.value()? {
                cancelled @ redis::Value::Array(_) => Fields::of(cancelled)?.ids_here(shard)?,
                _ => continue,
            };
            settled.push((place, Settled::ok(cancelled)));
        }
        Ok(settled)
    }
}

/// Whether the turn has the simple form, with all jobs done.
fn is_simple(turn: &Settlement) -> bool {
    turn.rest == Fate::Done && turn.exceptions.is_empty() && !turn.keep.counted && turn.token.0 > 0
}

fn simple_args(args: &mut Args, turn: &Settlement) {
    let token = lane_bytes(turn.token.0 as u64);
    args.bytes([lane_bytes(turn.lane.number), token].concat());
}

/// The arguments of `settle.lua` for one turn. Jobs of other shards cannot be in it.
fn turn_args(args: &mut Args, shard: Shard, turn: &Settlement) {
    let keep = &turn.keep;
    args.int(turn.lane.number).int(turn.token.0).text(fate(turn.rest));
    match keep.job {
        Some(job) if Shard::of_job(job) == shard => args.int(job.seq()),
        Some(_) => args.int(NO_JOB),
        None => args.text(""),
    };
    match keep.due {
        Due::Unchanged => args.text("u"),
        Due::Now => args.text("n"),
        Due::In(length) => args.int(micros(length)),
    };
    args.int(keep.retry_count).int(keep.crashes).optional(keep.error.as_deref());
    args.flag(keep.counted).flag(keep.hold);
    let here = turn.exceptions.iter().filter(|(job, _)| Shard::of_job(*job) == shard);
    args.int(here.clone().count() as i64);
    for (job, of_job) in here {
        args.int(job.seq()).text(fate(*of_job));
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Done => "done",
        Fate::Bury => "bury",
        Fate::Cancel => "cancel",
        Fate::Expire => "expire",
        Fate::Drop => "drop",
        Fate::Keep => "keep",
    }
}
