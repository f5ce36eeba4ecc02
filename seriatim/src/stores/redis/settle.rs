//! Settling turns.

use std::collections::{HashMap, VecDeque};

use redis::Value;

use super::Redis;
use super::args::{Args, micros, routes, turn_args};
use super::link::SETTLE;
use super::reply::{Fields, Shard, corrupt, lane_bytes};
use crate::contract::{GoOn, Settle, Settled, Wake};
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{Due, Fate, Result, Settlement, Turn};

/// Matches no job: job numbers start at 1.
const NO_JOB: u64 = 0;

/// Most turns of a script that are not simply done: a running script blocks all others. Those whose records do not suffice take up
/// to 50 µs, the others 12. The script leaves to the next one what would make it long: some of these, and turns of many jobs.
const STEP_TURNS: usize = 250;
/// Most turns of a script that are simply done: 2 to 3 µs each.
const STEP_SIMPLE_TURNS: usize = 1_000;

/// The turns of a shard, while they are settled.
#[derive(Default)]
pub(super) struct Part {
    pub(super) settled: Vec<(usize, Settled)>,
    /// Those that are left; the first ones are simply done.
    simple: VecDeque<usize>,
    others: VecDeque<usize>,
    /// Whether a script has answered.
    pub(super) has_begun: bool,
    /// How many lanes went on, and whether no more may.
    gone_on: usize,
    no_more: bool,
}

impl Part {
    pub(super) fn of(places: Vec<usize>, turns: &[Settlement]) -> Self {
        let (simple, others): (Vec<usize>, Vec<usize>) =
            places.into_iter().partition(|place| is_simple(&turns[*place]));
        Self { simple: simple.into(), others: others.into(), ..Self::default() }
    }

    /// The places of the turns that no script has settled.
    pub(super) fn left(&self) -> impl Iterator<Item = usize> {
        self.simple.iter().chain(&self.others).copied()
    }
}

impl Redis {
    /// Settles the turns of a shard in steps, each one script. If one fails, the earlier ones have taken effect.
    pub(super) async fn settle_in(
        &self,
        shard: Shard,
        part: &mut Part,
        request: &Settle,
    ) -> Result<()> {
        while part.left().next().is_some() {
            self.settle_step(shard, part, request).await?;
        }
        Ok(())
    }

    async fn settle_step(&self, shard: Shard, part: &mut Part, request: &Settle) -> Result<()> {
        let turns = &request.turns;
        let first = |places: &VecDeque<usize>, most| -> Vec<usize> {
            places.iter().take(most).copied().collect()
        };
        let simple = first(&part.simple, STEP_SIMPLE_TURNS);
        let others = first(&part.others, STEP_TURNS);
        let going_on = match part.no_more {
            true => None,
            false => self.going_on(shard, &simple, part.gone_on, request).await,
        };
        let alive = going_on.as_ref().and_then(|going_on| going_on.alive.as_deref());
        let go_on = going_on.as_ref().map(|going_on| going_on.go_on);
        let claims = by_claim(turns, &simple, |place| {
            go_on.is_some_and(|go_on| go_on.places.binary_search(&place).is_ok())
        });
        let mut args = Args::at(request.now);
        args.flag(self.keeps_failed()).int(simple.len() as i64);
        let about = going_on.as_ref().map_or(&[][..], |going_on| &going_on.args.0);
        args.int(about.len() as i64).0.extend_from_slice(about);
        claims.iter().for_each(|claim| claim.add_to(&mut args, turns));
        others.iter().for_each(|place| turn_args_of(&mut args, shard, &turns[*place]));
        let key = self.key(shard, "");
        let answer = self.link.run_durably(&SETTLE, &key, alive, &args).await?;
        part.has_begun = true;
        let mut answer = Fields::of(answer)?;
        let (mut answers, now, next) = (answer.list()?, answer.time()?, answer.list()?);
        let mut next: HashMap<u64, Turn> = match go_on {
            Some(GoOn { claim, .. }) => {
                let turns = next.claimed(shard, &claim.queue, now)?;
                let known = self.existing(&claim.queue).await?;
                let of = (shard, &known.queue);
                let turns = self.claimed_with_bodies(of, turns, request.now).await?;
                turns.into_iter().map(|turn| (turn.lane.number, turn)).collect()
            }
            None if next.is_empty() => HashMap::new(),
            None => return Err(corrupt()),
        };
        part.gone_on += next.len();
        let mut postponed = Vec::new();
        part.simple.drain(..simple.len());
        part.others.drain(..others.len());
        for place in simple.into_iter().chain(others) {
            let cancelled = match answers.value()? {
                cancelled @ Value::Array(_) => Fields::of(cancelled)?.ids_here(shard)?,
                Value::Int(_) => {
                    postponed.push(place);
                    continue;
                }
                _ => continue,
            };
            let next = next.remove(&turns[place].lane.number).map(Box::new);
            part.settled.push((place, Settled::Ok { cancelled, next }));
        }
        for place in postponed.into_iter().rev() {
            let left = if is_simple(&turns[place]) { &mut part.simple } else { &mut part.others };
            left.push_front(place);
        }
        if answer.flag()? {
            let known = self.memo.by_number(shard.queue);
            self.bell.ring(&known.map_or(Wake::All, |known| Wake::of([&*known.name])));
        }
        part.no_more |= answer.flag()?;
        Ok(())
    }

    /// What the script needs to know about lanes of this shard that go on. `None` if none of these can.
    async fn going_on<'r>(
        &self,
        shard: Shard,
        simple: &[usize],
        gone_on: usize,
        request: &'r Settle,
    ) -> Option<GoingOn<'r>> {
        let turns = &request.turns;
        let is_here = |place: &usize| {
            turns.get(*place).is_some_and(|turn| Shard::of_lane(turn.lane) == shard)
        };
        // One of another queue that names these places goes on with nothing.
        let mut known = None;
        for go_on in &request.go_on {
            let there = self.known(&go_on.claim.queue).await.ok().flatten();
            if there.as_ref().is_some_and(|there| there.number == shard.queue) {
                known = there.zip(Some(go_on));
            }
        }
        let (known, go_on) = known?;
        let claim = &go_on.claim;
        let refused = claim.declared && !known.declared
            || known.queue.check_lease(claim.lease.ttl()).is_err()
            || !go_on.places.iter().any(|place| is_here(place) && simple.contains(place));
        if refused || self.link.is_cluster() && self.check_node(&claim.node).await.is_err() {
            return None;
        }
        let alive = (!self.link.is_cluster()).then(|| self.global("alive"));
        let mut args = Args::default();
        turn_args(&mut args, claim, known.queue.lease_max);
        let lanes_max = claim.lanes_max.min(CLAIM_LANES_MAX).saturating_sub(gone_on);
        args.int(lanes_max as i64).int(known.version);
        args.int(claim.ticket).flag(alive.is_some());
        routes(&mut args, claim);
        Some(GoingOn { go_on, alive, args })
    }
}

/// The lanes of a shard that may go on.
struct GoingOn<'r> {
    go_on: &'r GoOn,
    /// The key with the living nodes; `None` if another server may have it, and the node was checked.
    alive: Option<String>,
    args: Args,
}

/// Whether the turn has the simple form, with all jobs done.
fn is_simple(turn: &Settlement) -> bool {
    turn.is_all_done() && turn.token.0 > 0
}

/// Turns of one claim that follow one another and are simply done.
struct OfClaim {
    token: u64,
    goes_on: bool,
    places: Vec<usize>,
}

/// The turns at these places, those of one claim together if they follow one another: the order says which lanes go on if
/// not all may.
fn by_claim(
    turns: &[Settlement],
    places: &[usize],
    goes_on: impl Fn(usize) -> bool,
) -> Vec<OfClaim> {
    let kind = |place: &usize| (turns[*place].token, goes_on(*place));
    let claim = |places: &[usize]| {
        let (token, goes_on) = kind(&places[0]);
        OfClaim { token: token.0 as u64, goes_on, places: places.to_vec() }
    };
    places.chunk_by(|a, b| kind(a) == kind(b)).map(claim).collect()
}

impl OfClaim {
    fn add_to(&self, args: &mut Args, turns: &[Settlement]) {
        let mut token = lane_bytes(self.token).to_vec();
        token.extend(self.goes_on.then_some(b'+'));
        args.bytes(token).int(self.places.len() as i64);
        for place in &self.places {
            args.bytes(lane_bytes(turns[*place].lane.number));
        }
    }
}

/// The arguments of `settle.lua` for one turn. Jobs of other shards cannot be in it.
fn turn_args_of(args: &mut Args, shard: Shard, turn: &Settlement) {
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
    args.flag(keep.counted).flag(keep.hold).flag(keep.others_unstarted);
    args.optional(turn.left_by(Fate::Done).as_deref());
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
