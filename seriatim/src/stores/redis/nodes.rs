//! The fleet role: heartbeats, rescue, release, commands, leadership, and the sweep.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde::Serialize;

use super::args::Args;
use super::beat::parts;
use super::having::Needs;
use super::link::{
    GLOBAL_BEAT, GLOBAL_COMMAND, GLOBAL_GONE, GLOBAL_LEAD, GLOBAL_SWEEP, PARK, RELEASE, SWEEP,
};
use super::memo::Known;
use super::reply::{Fields, Shard, single};
use super::rescue::Call;
use super::{LAYOUT_VERSION, Redis, beat};
use crate::contract::errors::no_living_node;
use crate::contract::release::NOBODY;
use crate::contract::{
    Command, DeclareDead, Fleet, Heartbeat, Lead, NodeInfo, Pulse, Release, Rescue, Sweep, Swept,
};
use crate::lock::lock;
use crate::model::limits::CLAIM_LANES_MAX;
use crate::model::{NodeId, Result, Timestamp, Turn};
use crate::stores::gone;
use crate::stores::gone::DEAD_NODE_SHOWN;
use crate::stores::json::json;

/// A node as it is stored. `raise.lua` reads the beginning: what its build can read.
#[derive(Serialize)]
struct Description<'a> {
    layout: i64,
    #[serde(flatten)]
    node: &'a NodeInfo,
}

/// Most rows of each kind that a script removes: a running script blocks all others.
const STEP_ROWS: usize = 200;
/// What a rescue looks for: claims, by the lease of a node or their own.
const CLAIMS: Needs = Needs { keys: &["holders", "leases"], lacks: None };
/// What a sweep removes when its time is over.
const ENDS: Needs = Needs { keys: &["expiring", "done", "dead", "idemold", "paced"], lacks: None };

#[async_trait]
impl Fleet for Redis {
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        beat::check(&request)?;
        let mut args = Args::at(request.now);
        let mut request = request;
        let info = json(&Description { layout: LAYOUT_VERSION, node: &request.node })?;
        args.text(&request.node.id.0).micros(request.node.lease).text(&info);
        let mut answer = self.link.call(&GLOBAL_BEAT, &self.global(""), &args).await?;
        answer.time()?;
        let alive = answer.flag()?;
        let command = answer.opt_text()?.as_deref().and_then(Command::named);
        let mut pulse = Pulse { alive, command, ..Pulse::default() };
        let mut lost = Vec::new();
        let flags = answer.list()?;
        let (mut list, mut living) = (answer.list()?, Vec::new());
        while !list.is_empty() {
            living.push(NodeId(list.text()?));
        }
        self.living.set(living);
        if let Some(there) = answer.opt_int()? {
            self.read_version(there)?;
        }
        // Behind the node's own lease, which needs no queue to be read.
        self.cap(&mut request.beats).await?;
        let shards = parts(&request.beats, flags)?;
        let replies = shards.iter().map(|(shard, part)| self.beat_in(*shard, &request, part));
        for ((shard, part), reply) in shards.iter().zip(join_all(replies).await) {
            match reply {
                Ok(reply) => {
                    pulse.cancel.extend(reply.notices);
                    lost.extend(reply.lost);
                }
                // The node is alive anyway. Own leases end if the caller does not learn that they are not extended.
                Err(error) if self.is_of_one_server(&error) && !part.extends(&request.beats) => {
                    let (queue, shard) = (shard.queue, shard.shard);
                    tracing::debug!(%error, queue, shard, "a shard does not answer a heartbeat");
                }
                Err(error) => return Err(error),
            }
        }
        lost.sort_unstable();
        pulse.lost = lost.into_iter().filter_map(|i| Some(request.beats.get(i)?.lane)).collect();
        pulse.cancel.sort_by_key(|notice| notice.lane);
        pulse.moved = self.marks.changed(&request.node.id, self.link.marks().await);
        Ok(pulse)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        if let Some(error) = lock(&self.unanswered_rescues).remove(&request.node) {
            return Err(error);
        }
        let Some((now, mut beats)) = self.declare_dying(&request).await? else {
            return Ok(Vec::new());
        };
        let (all, mut failed) = self.known_queues().await?;
        let mut turns = Vec::new();
        let claimed = self.needing(all.queues.iter().map(|known| &**known), &CLAIMS).await?;
        for known in &*all.queues {
            for shard in known.shards().filter(|shard| claimed.contains(shard)) {
                let lanes_left = request.lanes_max.min(CLAIM_LANES_MAX) - turns.len();
                if lanes_left == 0 {
                    break;
                }
                let call = Call { now, request: &request, lanes_left };
                let taken = self.rescue_in(shard, call, &mut beats).await;
                match taken.and_then(|taken| taken.turns(shard, &known.name)) {
                    Ok(taken) => turns.extend(taken),
                    // Those behind a shard that fails must not wait for it.
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
        }
        if !turns.is_empty() {
            // A script may have left some to the next one.
            self.walks.store(true, Ordering::Release);
        }
        match failed {
            // The caller must get what it holds now, and must learn that it may hold more.
            Some(error) if turns.is_empty() => Err(error),
            failed => {
                let unanswered = failed.map(|error| (request.node, error));
                lock(&self.unanswered_rescues).extend(unanswered);
                Ok(turns)
            }
        }
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let ((what, name, places), mut failed) = self.places_of(&request.claims).await?;
        let made_by = request.made_by.unwrap_or(Timestamp::MAX);
        let (most, mut turns) = (request.lanes_max.min(CLAIM_LANES_MAX), Vec::new());
        for (queue, shard) in places {
            let mut from = String::new();
            while turns.len() < most {
                let mut args = Args::at(request.now);
                args.text(NOBODY).int((most - turns.len()) as i64).time(made_by);
                args.text(what).text(&name).text(&from);
                let key = self.key(shard, "");
                let mut answer = match self.link.call_durably(&RELEASE, &key, &args).await {
                    Err(error) if self.spares_others(&error) => {
                        failed = Some(error);
                        break;
                    }
                    answer => answer?,
                };
                let taken = answer.list()?.turns(shard, &queue)?;
                from = answer.text()?.to_string();
                // A second step in a queue could release what the first one has.
                let is_done = from.is_empty() || what == "queue" && !taken.is_empty();
                turns.extend(taken);
                if is_done {
                    break;
                }
            }
        }
        match failed {
            // The caller must get what is released, and learns at its next call that this was not all.
            Some(error) if turns.is_empty() => Err(error),
            _ => Ok(turns),
        }
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        let mut args = Args::at(request.now);
        args.text(&request.node.0).int(request.heartbeat_at.as_micros());
        args.int(gone::set_back(request.heartbeat_at).as_micros());
        let declared =
            single(self.link.run(&GLOBAL_GONE, &self.global(""), &args).await?)?.flag()?;
        self.walks.fetch_or(declared, Ordering::AcqRel);
        Ok(declared)
    }

    async fn command_node(&self, node: NodeId, command: Command) -> Result<()> {
        let mut args = Args::default();
        args.text(&node.0).text(command.kept().map_or("", Command::as_str));
        let sent = self.link.run(&GLOBAL_COMMAND, &self.global(""), &args).await?;
        match single(sent)?.flag()? {
            true => Ok(()),
            false => Err(no_living_node(&node)),
        }
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        let mut args = Args::at(request.now);
        args.text(&request.role).text(&request.node.0).micros(request.ttl);
        args.micros(request.longest());
        single(self.link.run(&GLOBAL_LEAD, &self.global(""), &args).await?)?.flag()
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        let (mut swept, mut names) = (Swept::default(), 0);
        let (all, mut failed) = self.known_queues().await?;
        let lacks = self.parks().then_some("parks");
        let needs = Needs { lacks, ..ENDS };
        let due = self.needing(all.queues.iter().map(|known| &**known), &needs).await?;
        for known in &*all.queues {
            match self.sweep_queue(known, request, &due, (&mut swept, &mut names)).await {
                Err(error) if self.spares_others(&error) => failed = Some(error),
                answer => answer?,
            }
        }
        swept.more |= self.sweep_store(request).await?;
        match failed {
            // The caller goes on where it can, and learns at the end that some shards were not reached.
            Some(error) if !swept.more => Err(error),
            _ => Ok(swept),
        }
    }
}

impl Redis {
    /// What belongs to no queue. Answers whether there is more.
    async fn sweep_store(&self, request: Sweep) -> Result<bool> {
        let mut left = request.most();
        loop {
            let some = left.min(STEP_ROWS);
            let mut args = Args::at(request.now);
            args.micros(DEAD_NODE_SHOWN).int(some as i64).int(LAYOUT_VERSION);
            let more = self.link.run(&GLOBAL_SWEEP, &self.global(""), &args).await?;
            let more = single(more)?.flag()?;
            left -= some;
            if !more || left == 0 {
                return Ok(more);
            }
        }
    }

    async fn sweep_queue(
        &self,
        known: &Arc<Known>,
        request: Sweep,
        due: &HashSet<Shard>,
        (swept, names): (&mut Swept, &mut usize),
    ) -> Result<()> {
        let mut end = self.retire_older(known).await;
        for shard in known.shards().filter(|shard| due.contains(shard)) {
            match self.sweep_shard(shard, request, (&mut *swept, &mut *names)).await {
                Err(error) if self.spares_others(&error) => end = Err(error),
                answer => answer?,
            }
        }
        end
    }

    async fn retire_older(&self, known: &Arc<Known>) -> Result<()> {
        if !known.layout.older.is_empty() {
            self.adopt(known).await?;
            self.retire(known.clone()).await?;
        }
        Ok(())
    }

    async fn sweep_shard(
        &self,
        shard: Shard,
        request: Sweep,
        (swept, names): (&mut Swept, &mut usize),
    ) -> Result<()> {
        let rows_max = request.most();
        loop {
            let mut args = Args::at(request.now);
            let counts = |swept: &Swept, names: usize| {
                [swept.expired.len(), swept.completed as usize, swept.dead.len(), names]
            };
            let before = counts(swept, *names);
            for taken in before {
                args.int(rows_max.saturating_sub(taken).min(STEP_ROWS) as i64);
            }
            let mut answer = self.link.call(&SWEEP, &self.key(shard, ""), &args).await?;
            swept.expired.extend(answer.ids(shard)?);
            swept.completed += answer.int()? as u64;
            swept.dead.extend(answer.ids(shard)?);
            *names += answer.int()? as usize;
            let (more, lacks_parked) = (answer.flag()?, answer.flag()?);
            if lacks_parked && self.parks() {
                self.park(shard).await?;
            }
            if !more || counts(swept, *names) == before {
                swept.more |= more;
                return Ok(());
            }
        }
    }

    /// Enters the held and paused lanes of a shard that earlier builds did not enter.
    async fn park(&self, shard: Shard) -> Result<()> {
        let mut from = String::new();
        loop {
            let mut args = Args::default();
            args.text(&from);
            let answer = self.link.run(&PARK, &self.key(shard, ""), &args).await?;
            from = single(answer)?.text()?.to_string();
            if from.is_empty() {
                return Ok(());
            }
        }
    }

    pub(super) async fn pairs(&self, name: &str) -> Result<Vec<(Arc<str>, Arc<str>)>> {
        let mut cmd = redis::cmd("HGETALL");
        let mut fields: Fields = self.link.fields(cmd.arg(self.global(name))).await?;
        let mut pairs = Vec::new();
        while !fields.is_empty() {
            pairs.push((fields.text()?, fields.text()?));
        }
        Ok(pairs)
    }
}
