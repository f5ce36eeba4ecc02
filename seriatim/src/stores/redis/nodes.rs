//! The fleet role: heartbeats, rescue, release, commands, leadership, and the sweep.

use std::sync::Arc;

use async_trait::async_trait;

use super::args::Args;
use super::beat::parts;
use super::link::{
    GLOBAL_BEAT, GLOBAL_COMMAND, GLOBAL_GONE, GLOBAL_LEAD, GLOBAL_SWEEP, RELEASE, SWEEP,
};
use super::reply::{Fields, single};
use super::rescue::Call;
use super::{Redis, beat};
use crate::contract::errors::no_living_node;
use crate::contract::release::NOBODY;
use crate::contract::{
    Command, DeclareDead, Fleet, Heartbeat, Lead, Pulse, Release, Rescue, Sweep, Swept,
};
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::NodeId;
use crate::model::limits::{ACTION_ROWS_MAX, CLAIM_LANES_MAX};
use crate::model::turn::Turn;
use crate::stores::gone;
use crate::stores::gone::DEAD_NODE_SHOWN;
use crate::stores::json::json;

#[async_trait]
impl Fleet for Redis {
    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        beat::check(&request)?;
        let mut args = Args::at(request.now);
        let mut request = request;
        self.cap(&mut request.beats).await?;
        let info = json(&request.node)?;
        args.text(&request.node.id.0).micros(request.node.lease).text(&info);
        let mut answer = self.link.call(&GLOBAL_BEAT, &self.global(""), &args).await?;
        let (now, alive) = (answer.time()?, answer.flag()?);
        let command = answer.opt_text()?.as_deref().and_then(Command::named);
        let mut pulse = Pulse { alive, command, ..Pulse::default() };
        let mut lost = Vec::new();
        let flags = answer.list()?;
        let (mut list, mut living) = (answer.list()?, Vec::new());
        while !list.is_empty() {
            living.push(NodeId(list.text()?));
        }
        self.living.set(living);
        for (shard, part) in parts(&request.beats, flags)? {
            let reply = self.beat_in(shard, now, &request, &part).await?;
            pulse.cancel.extend(reply.notices);
            lost.extend(reply.lost);
        }
        lost.sort_unstable();
        pulse.lost = lost.into_iter().filter_map(|i| Some(request.beats.get(i)?.lane)).collect();
        pulse.cancel.sort_by_key(|notice| notice.lane);
        Ok(pulse)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let (now, mut beats) = self.declare_dying(&request).await?;
        let mut turns = Vec::new();
        for known in self.all_queues().await? {
            for shard in known.shards() {
                let lanes_left = request.lanes_max.min(CLAIM_LANES_MAX) - turns.len();
                if lanes_left == 0 {
                    return Ok(turns);
                }
                let call = Call { now, request: &request, lanes_left };
                let taken = self.rescue_in(shard, call, &mut beats).await?;
                turns.extend(taken.turns(shard, &known.name)?);
            }
        }
        Ok(turns)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let (what, name, places) = self.places_of(&request.claims).await?;
        let made_by = request.made_by.unwrap_or(Timestamp::MAX);
        let (most, mut turns) = (request.lanes_max.min(CLAIM_LANES_MAX), Vec::new());
        for (queue, shard) in places {
            if turns.len() == most {
                break;
            }
            let mut args = Args::at(request.now);
            args.text(NOBODY).int((most - turns.len()) as i64).time(made_by);
            args.text(what).text(&name);
            let taken = self.link.call_durably(&RELEASE, &self.key(shard, ""), &args).await?;
            turns.extend(taken.turns(shard, &queue)?);
        }
        Ok(turns)
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        let mut args = Args::at(request.now);
        args.text(&request.node.0).int(request.heartbeat_at.as_micros());
        args.int(gone::set_back(request.heartbeat_at).as_micros());
        single(self.link.run(&GLOBAL_GONE, &self.global(""), &args).await?)?.flag()
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
        single(self.link.run(&GLOBAL_LEAD, &self.global(""), &args).await?)?.flag()
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        let rows_max = request.rows_max.min(ACTION_ROWS_MAX);
        let (mut swept, mut names) = (Swept::default(), 0);
        for known in self.all_queues().await? {
            if !known.layout.older.is_empty() {
                self.adopt(&known).await?;
                self.retire(known.clone()).await?;
            }
            for shard in known.shards() {
                let mut args = Args::at(request.now);
                for taken in
                    [swept.expired.len(), swept.completed as usize, swept.dead.len(), names]
                {
                    args.int(rows_max.saturating_sub(taken) as i64);
                }
                let mut answer = self.link.call(&SWEEP, &self.key(shard, ""), &args).await?;
                swept.expired.extend(answer.ids(shard)?);
                swept.completed += answer.int()? as u64;
                swept.dead.extend(answer.ids(shard)?);
                names += answer.int()? as usize;
                swept.more |= answer.flag()?;
            }
        }
        let mut args = Args::at(request.now);
        args.micros(DEAD_NODE_SHOWN);
        self.link.run(&GLOBAL_SWEEP, &self.global(""), &args).await?;
        Ok(swept)
    }
}

impl Redis {
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
