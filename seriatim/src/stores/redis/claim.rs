//! Claiming lanes, settling turns, and giving calls up.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::Redis;
use super::args::{Args, routes, turn_args};
use super::link::{CLAIM, GIVE_UP};
use super::memo::Known;
use super::queues::{ATTEMPTS, changing};
use super::reply::{Fields, Shard, corrupt};
use super::settle::Part;
use crate::contract::errors::{node_gone, undeclared};
use crate::contract::{Claim, Claimed, Consumer, GiveUp, Settle, Settled};
use crate::model::limits::{CLAIM_JOB_BYTES, CLAIM_LANES_MAX, PROMOTE_LANES_MAX};
use crate::model::{Error, NodeId, Result, Timestamp, Turn};

#[async_trait]
impl Consumer for Redis {
    async fn claim(&self, request: Claim) -> Result<Claimed> {
        // In a cluster the node registry may be on another server than the lanes. If the node is declared dead between
        // this check and the claim, its claim expires after the ttl.
        if self.link.is_cluster() {
            self.check_node(&request.node).await?;
        }
        let mut known = self.existing(&request.queue).await?;
        let mut unanswered = false;
        for _ in 0..ATTEMPTS {
            let refused = request.declared && !known.declared;
            if !refused {
                known.queue.check_lease(request.lease.ttl())?;
                let mut tally = self.claim_as_known(&known, &request).await?;
                if let Some(error) = tally.failed.take_if(|_| !tally.is_answered) {
                    return Err(error);
                }
                unanswered |= tally.claimed.unanswered;
                tally.claimed.unanswered = unanswered;
                if !tally.stale {
                    return Ok(tally.claimed);
                }
                if let Some(turn) = tally.claimed.turns.first() {
                    tally.claimed.next_due = Some(turn.claimed_at);
                    return Ok(tally.claimed);
                }
            }
            // The queue may have another definition than this process knows, or more shards, or some shards have not
            // adopted it yet. After a wipe of the store it does not exist.
            known = self.current(&request.queue).await?;
            if refused && !known.declared {
                return Err(undeclared(&request.queue));
            }
            self.adopt_in_reach(&known).await?;
        }
        Err(changing(&request.queue))
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let turns = &request.turns;
        request.validate()?;
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (place, turn) in turns.iter().enumerate() {
            shards.entry(Shard::of_lane(turn.lane)).or_default().push(place);
        }
        let mut settled = vec![Settled::Stale; turns.len()];
        let part = async |(shard, places): (Shard, Vec<usize>)| {
            let mut part = Part::of(places, turns);
            let end = self.settle_in(shard, &mut part, &request).await;
            (part, end)
        };
        // Wait for all of them: an error of one shard must not abort the others.
        for (part, end) in join_all(shards.into_iter().map(part)).await {
            let mut answer = |place: usize, answer| -> Result<()> {
                *settled.get_mut(place).ok_or_else(corrupt)? = answer;
                Ok(())
            };
            match end {
                // What earlier steps settled and claimed must be answered.
                Err(error)
                    if request.skip_locked && (part.has_begun || self.is_of_one_server(&error)) =>
                {
                    let turns = part.left().count();
                    tracing::debug!(%error, turns, "a step of a settle was not answered");
                    part.left().try_for_each(|place| answer(place, Settled::Unanswered))?;
                }
                end => end?,
            }
            part.settled.into_iter().try_for_each(|(place, settled)| answer(place, settled))?;
        }
        Ok(settled)
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        // In every shard: each of them refuses independently.
        let mut args = Args::default();
        args.text(&request.node.0).int(request.ticket);
        let (queues, missing) = match &request.queue {
            Some(queue) => (self.known(queue).await?.into_iter().collect(), None),
            None => {
                let (all, missing) = self.known_queues().await?;
                (all.queues, missing)
            }
        };
        let keys: Vec<String> = queues
            .iter()
            .flat_map(|queue| queue.shards())
            .map(|shard| self.key(shard, ""))
            .collect();
        let calls = keys.iter().map(|key| self.link.run(&GIVE_UP, key, &args));
        // One that is away must not keep the others from being told.
        let failed = join_all(calls).await.into_iter().find_map(Result::err);
        failed.or(missing).map_or(Ok(()), Err)
    }
}

impl Redis {
    async fn claim_as_known(&self, known: &Known, request: &Claim) -> Result<Tally> {
        let mut tally = Tally {
            seen: Seen { version: known.version, lease_max: known.queue.lease_max },
            stale: false,
            is_answered: false,
            failed: None,
            left: Share {
                lanes: request.lanes_max.min(CLAIM_LANES_MAX),
                crashed: request.crashed_max.min(CLAIM_LANES_MAX),
                bytes: request.bytes_max,
            },
            claimed: Claimed::default(),
        };
        let (own, others) = self.shards_of_claim(known, request);
        self.claim_among(&own, request, &mut tally).await?;
        if tally.claimed.turns.is_empty() {
            // Take what other nodes leave.
            let due = tally.claimed.next_due;
            self.claim_among(&others, request, &mut tally).await?;
            tally.claimed.next_due = due.into_iter().chain(tally.claimed.next_due).min();
        } else if let (false, Some(turn)) = (others.is_empty(), tally.claimed.turns.first()) {
            // The other nodes' shards were not checked.
            tally.claimed.next_due = Some(turn.claimed_at);
        }
        Ok(tally)
    }

    /// First claims an equal part of the request from each shard, concurrently; then the rest from one shard after
    /// another, if there is more, until it has enough. A request for fewer lanes than there are shards first asks all of them which have any.
    async fn claim_among(
        &self,
        shards: &[Shard],
        request: &Claim,
        tally: &mut Tally,
    ) -> Result<()> {
        let count = shards.len().max(1);
        let part = tally.left.part(count);
        let mut rest: Vec<_> = shards.iter().map(|shard| (None, *shard)).collect();
        if count > 1 {
            let claims =
                shards.iter().map(|shard| self.claim_in(*shard, request, tally.seen, part));
            // A shard may have had more than its part.
            let whole = part.lanes > 0
                && part.bytes.is_none()
                && (part.crashed > 0 || tally.left.crashed == 0);
            let answers = join_all(claims).await;
            rest = shards_with_more(shards, &answers);
            for got in answers {
                self.add(tally, got)?;
            }
            let nothing = tally.claimed.turns.is_empty();
            if tally.left.lanes == 0 || whole && (tally.is_idle() || nothing) || rest.is_empty() {
                return Ok(());
            }
        }
        tally.claimed.next_due = None;
        for (due, shard) in rest {
            if tally.left.is_nothing() && !tally.claimed.turns.is_empty() {
                // The other shards have nothing that is due sooner.
                tally.claimed.next_due = due.into_iter().chain(tally.claimed.next_due).min();
                break;
            }
            let got = self.claim_in(shard, request, tally.seen, tally.left).await;
            self.add(tally, got)?;
        }
        Ok(())
    }

    /// Adds what a shard gave. Of a shard that does not answer it is not known whether it was claimed from: that must
    /// not hide what others gave.
    fn add(&self, tally: &mut Tally, got: Result<(Claimed, Option<i64>)>) -> Result<()> {
        match got {
            Ok(got) => tally.add(got),
            Err(error) if tally.claimed.turns.is_empty() && !self.is_of_one_server(&error) => {
                return Err(error);
            }
            Err(error) => {
                tally.claimed.unanswered = true;
                tally.failed.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Whether other servers may work although one failed with this error.
    pub(super) fn is_of_one_server(&self, error: &Error) -> bool {
        self.link.is_cluster() && error.is_transient()
    }

    /// Whether upkeep of other shards may work although that of one failed with this error: they must not wait for it.
    pub(super) fn spares_others(&self, error: &Error) -> bool {
        self.link.is_cluster() || !error.is_transient()
    }

    /// The shards that this node prefers, and the others, each starting at a rotating shard, so that none starves
    /// behind a full one. The preference follows from the living nodes and is never needed for safety.
    fn shards_of_claim(&self, known: &Known, request: &Claim) -> (Vec<Shard>, Vec<Shard>) {
        let mut shards: Vec<Shard> = known.open_shards().collect();
        let first = self.rotate() as usize % shards.len().max(1);
        shards.rotate_left(first);
        if shards.len() < 2 {
            return (shards, Vec::new());
        }
        self.living.split(&request.node, shards)
    }

    async fn claim_in(
        &self,
        shard: Shard,
        request: &Claim,
        seen: Seen,
        share: Share,
    ) -> Result<(Claimed, Option<i64>)> {
        let mut args = Args::at(request.now);
        turn_args(&mut args, request, seen.lease_max);
        args.int(share.lanes as i64).int(share.crashed as i64).int(PROMOTE_LANES_MAX as i64);
        args.int(request.ticket);
        let alive = (!self.link.is_cluster()).then(|| self.global("alive"));
        args.flag(alive.is_some()).int(seen.version);
        args.text(&share.bytes.map(|bytes| bytes.to_string()).unwrap_or_default());
        args.int(CLAIM_JOB_BYTES as i64);
        routes(&mut args, request);
        let key = self.key(shard, "");
        // If a failover lost the token, the one before it would be valid again.
        let answer = self.link.run_durably(&CLAIM, &key, alive.as_deref(), &args).await?;
        if answer == redis::Value::Int(0) {
            return Err(node_gone(&request.node));
        }
        let mut answer = Fields::of(answer)?;
        if answer.is_empty() {
            return Ok((Claimed::default(), None));
        }
        let (now, turns, next_due) = (answer.time()?, answer.list()?, answer.opt_time()?);
        let (version, dangling) = (answer.int()?, answer.int()?);
        let cut = answer.int()? == 1;
        if dangling > 0 {
            let (queue, shard) = (&*request.queue, shard.shard);
            tracing::error!(
                queue,
                shard,
                dangling,
                "removed index entries of lanes that do not exist"
            );
        }
        let turns = turns.claimed(shard, &request.queue, now)?;
        let known = self.existing(&request.queue).await?;
        let turns = self.claimed_with_bodies((shard, &known.queue), turns, request.now).await?;
        Ok((Claimed { turns, next_due, cut, unanswered: false }, Some(version)))
    }

    /// Refuses a node that has sent no heartbeat or is dead. If the server that knows it is away, that is like a node that is declared
    /// dead after this check.
    pub(super) async fn check_node(&self, node: &NodeId) -> Result<()> {
        let mut cmd = redis::cmd("ZSCORE");
        cmd.arg(self.global("alive")).arg(&*node.0);
        match self.link.query(&cmd).await {
            Ok(redis::Value::Nil) => Err(node_gone(node)),
            Err(error) if !self.is_of_one_server(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The part of a definition that a claim uses, as this process knows it.
#[derive(Clone, Copy)]
struct Seen {
    version: i64,
    lease_max: Duration,
}

/// The turns claimed so far, and what may still be claimed.
struct Tally {
    seen: Seen,
    /// Whether a shard has another version, or does not know the queue.
    stale: bool,
    /// Whether any shard answered, and why another did not.
    is_answered: bool,
    failed: Option<Error>,
    left: Share,
    claimed: Claimed,
}

/// The shards that have more than they gave, with when it is due: the longest due first.
fn shards_with_more(
    shards: &[Shard],
    answers: &[Result<(Claimed, Option<i64>)>],
) -> Vec<(Option<Timestamp>, Shard)> {
    let due = |(shard, answer): (&Shard, &Result<(Claimed, Option<i64>)>)| {
        Some((Some(answer.as_ref().ok()?.0.next_due?), *shard))
    };
    let mut due: Vec<_> = shards.iter().zip(answers).filter_map(due).collect();
    due.sort_by_key(|(due, _)| *due);
    due
}

/// The limits for one shard, or for all together.
#[derive(Clone, Copy)]
struct Share {
    lanes: usize,
    crashed: usize,
    bytes: Option<usize>,
}

impl Share {
    fn part(self, of: usize) -> Self {
        let bytes = self.bytes.map(|bytes| bytes / of);
        Self { lanes: self.lanes / of, crashed: self.crashed / of, bytes }
    }

    fn is_nothing(self) -> bool {
        self.lanes == 0 || self.bytes == Some(0)
    }

    fn take(&mut self, turns: &[Turn]) {
        let crashed = turns.iter().filter(|turn| turn.crashes > 0).count();
        self.lanes = self.lanes.saturating_sub(turns.len());
        self.crashed = self.crashed.saturating_sub(crashed);
        let bytes: usize = turns.iter().map(Turn::bytes).sum();
        self.bytes = self.bytes.map(|left| left.saturating_sub(bytes));
    }
}

impl Tally {
    fn add(&mut self, (got, version): (Claimed, Option<i64>)) {
        self.is_answered = true;
        self.stale |= version != Some(self.seen.version);
        self.left.take(&got.turns);
        self.claimed.cut |= got.cut;
        self.claimed.turns.extend(got.turns);
        let due = self.claimed.next_due;
        self.claimed.next_due = due.into_iter().chain(got.next_due).min();
    }

    /// Whether nothing more is due.
    fn is_idle(&self) -> bool {
        let now = self.claimed.turns.iter().map(|turn| turn.claimed_at).max();
        self.claimed.next_due.is_none_or(|due| now.is_some_and(|now| due > now))
    }
}
