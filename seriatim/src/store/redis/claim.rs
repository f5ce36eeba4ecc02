//! Claiming lanes.

use super::Redis;
use super::link::{Args, CLAIM, TURN};
use super::queues::Known;
use super::reply::{Fields, Shard};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{LaneId, NodeId, Token};
use crate::limits::{CLAIM_LANES_MAX, PROMOTE_LANES_MAX, TURN_BYTES_MAX, TURN_JOBS_MAX};
use crate::store::request::{Claim, Claimed, Lease};
use crate::turn::Turn;

impl Redis {
    pub(super) async fn do_claim(&self, request: Claim) -> Result<Claimed> {
        // In a cluster the registry may lie on another server than the lanes. A node that is declared dead between
        // this look and the claim loses what it took as soon as its ttl has passed.
        if self.link.is_cluster() {
            self.check_node(&request.node).await?;
        }
        let known = self.existing(&request.queue).await?;
        let lanes_max = request.lanes_max.min(CLAIM_LANES_MAX);
        let mut crashed_left = request.crashed_max.min(CLAIM_LANES_MAX);
        let mut claimed = Claimed::default();
        let mut earliest: Option<Timestamp> = None;
        for shard in self.shards_of_claim(&known, request.shard) {
            let lanes_left = lanes_max - claimed.turns.len().min(lanes_max);
            let got = self.claim_in(shard, &request, lanes_left, crashed_left).await?;
            let crashed = got.turns.iter().filter(|turn| turn.crashes > 0).count();
            crashed_left -= crashed.min(crashed_left);
            claimed.turns.extend(got.turns);
            earliest = earliest.into_iter().chain(got.next_due).min();
        }
        claimed.next_due = earliest;
        Ok(claimed)
    }

    /// The shards in turn, so that none starves behind a full one.
    fn shards_of_claim(&self, known: &Known, only: Option<u16>) -> Vec<Shard> {
        let mut shards: Vec<Shard> =
            known.shards().filter(|shard| only.is_none_or(|only| shard.shard == only)).collect();
        let first = self.rotate() as usize % shards.len().max(1);
        shards.rotate_left(first);
        shards
    }

    async fn claim_in(
        &self,
        shard: Shard,
        request: &Claim,
        lanes_max: usize,
        crashed_max: usize,
    ) -> Result<Claimed> {
        let mut args = Args::at(request.now);
        args.text(&request.node.0);
        args.text(match request.lease {
            Lease::Node { .. } => "node",
            Lease::Own { .. } => "own",
        });
        args.micros(request.lease.ttl()).int(lanes_max as i64).int(crashed_max as i64);
        args.int(PROMOTE_LANES_MAX as i64).int(TURN_JOBS_MAX as i64).int(TURN_BYTES_MAX as i64);
        let alive = (!self.link.is_cluster()).then(|| self.global("alive"));
        args.flag(alive.is_some());
        routes(&mut args, request);
        let key = self.key(shard, "");
        let answer = self.link.run_with(&CLAIM, &key, alive.as_deref(), &args).await?;
        if answer == redis::Value::Int(0) {
            return Err(node_gone(&request.node));
        }
        let mut answer = Fields::of(answer)?;
        if answer.is_empty() {
            return Ok(Claimed::default());
        }
        let (now, turns, next_due) = (answer.time()?, answer.list()?, answer.opt_time()?);
        let token = if turns.is_empty() { Token(0) } else { Token(answer.int()?) };
        let turns = turns.claimed(shard, &request.queue, now, token)?;
        Ok(Claimed { turns, next_due })
    }

    /// A node that never beat or was declared dead may not hold anything.
    async fn check_node(&self, node: &NodeId) -> Result<()> {
        let mut cmd = redis::cmd("ZSCORE");
        cmd.arg(self.global("alive")).arg(&*node.0);
        match self.link.query(&cmd).await? {
            redis::Value::Nil => Err(node_gone(node)),
            _ => Ok(()),
        }
    }

    pub(super) async fn read_turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let Some(known) = self.numbered(lane.queue).await? else { return Ok(None) };
        let shard = Shard::of_lane(lane);
        let mut args = Args::default();
        args.int(lane.number).int(token.0);
        let answer = self.link.run(&TURN, &self.key(shard, ""), &args).await?;
        match answer {
            redis::Value::Nil => Ok(None),
            turn => Fields::of(turn)?.turn(shard, &known.name).map(Some),
        }
    }
}

pub(super) fn node_gone(node: &NodeId) -> Error {
    let message = format!("node {node} has not registered or was declared dead: take a new id");
    Error::new(ErrorKind::NodeGone, message)
}

/// What the caller may take besides what is bound to nobody: node, NUL, group.
fn routes(args: &mut Args, request: &Claim) {
    let name = request.node_name.as_deref();
    args.0.extend(name.map(|name| format!("{name}\0").into_bytes()));
    for group in &request.groups {
        args.text(&format!("\0{group}"));
        args.0.extend(name.map(|name| format!("{name}\0{group}").into_bytes()));
    }
}
