//! Rescuing expired claims.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::Redis;
use super::args::Args;
use super::link::{GLOBAL_DYING, RESCUE};
use super::memo::Known;
use super::reply::{Fields, Shard};
use crate::contract::errors::node_gone;
use crate::contract::{ClaimSelection, Rescue};
use crate::model::{Error, Result, Timestamp};

/// Last heartbeats by node; `-` for a forgotten node.
pub(super) type Beats = BTreeMap<String, String>;

/// How long a node leads the rescues, unless it dies sooner: more than two rounds.
const LEADS_FOR: Duration = Duration::from_secs(25);
/// Most calls per shard: it is asked again if it knows holders that registered meanwhile.
const ATTEMPTS: usize = 3;

impl Redis {
    /// The arguments of `release.lua` that select these claims, and the shards where they may be, with their queues. And why
    /// some queues are missing, if so.
    pub(super) async fn places_of(
        &self,
        claims: &ClaimSelection,
    ) -> Result<(Places, Option<Error>)> {
        let all = |known: &Arc<Known>| -> Vec<(Arc<str>, Shard)> {
            known.shards().map(|shard| (known.name.clone(), shard)).collect()
        };
        let places = match claims {
            ClaimSelection::Key { queue, key } => {
                ("key", key.clone(), all(&self.current(queue).await?))
            }
            ClaimSelection::Lane(lane) => {
                let known = self.numbered(lane.queue).await?;
                let shard = |known: Arc<Known>| (known.name.clone(), Shard::of_lane(*lane));
                ("lane", lane.number.to_string(), known.map(shard).into_iter().collect())
            }
            ClaimSelection::Queue(queue) => {
                ("queue", String::new(), all(&self.current(queue).await?))
            }
            ClaimSelection::Node(node) => {
                let (known, missing) = self.known_queues().await?;
                let places = known.queues.iter().flat_map(all).collect();
                return Ok((("node", node.0.to_string(), places), missing));
            }
        };
        Ok((places, None))
    }

    /// Declares silent nodes dead; the caller may be among them. `None`: another node looks at the shards, or none may
    /// now. A caller that names the time is no engine among others: it looks at all shards.
    pub(super) async fn declare_dying(
        &self,
        request: &Rescue,
    ) -> Result<Option<(Timestamp, Beats)>> {
        let mut args = Args::at(request.now);
        args.text(&request.node.0);
        let walks = request.now.is_some() || self.walks.swap(false, Ordering::AcqRel);
        match walks {
            true => args.text(""),
            false => args.micros(LEADS_FOR),
        };
        let mut answer = self.link.call(&GLOBAL_DYING, &self.global(""), &args).await?;
        let (now, lives) = (answer.time()?, answer.flag()?);
        let walks = answer.flag()?;
        if !lives {
            return Err(node_gone(&request.node));
        }
        let (mut list, mut beats) = (answer.list()?, Beats::new());
        while !list.is_empty() {
            beats.insert(list.text()?.to_string(), list.text()?.to_string());
        }
        Ok(walks.then_some((now, beats)))
    }

    pub(super) async fn rescue_in(
        &self,
        shard: Shard,
        call: Call<'_>,
        beats: &mut Beats,
    ) -> Result<Fields> {
        let mut taken = Vec::new();
        for _ in 0..ATTEMPTS {
            let mut args = Args::at(call.request.now);
            args.text(&call.request.node.0).micros(call.request.lease);
            args.int((call.lanes_left - taken.len()) as i64).int(call.request.ticket);
            args.time(call.now);
            for (node, beat) in &*beats {
                args.text(node).text(beat);
            }
            let mut answer = self.link.call_durably(&RESCUE, &self.key(shard, ""), &args).await?;
            taken.extend(answer.list()?.rest());
            let unknown = answer.list()?;
            if unknown.is_empty() || taken.len() >= call.lanes_left {
                break;
            }
            self.look_up(unknown, beats).await?;
        }
        Fields::of(Value::Array(taken))
    }

    /// Adds the heartbeats of holders that were not among the nodes: registered since, or forgotten.
    async fn look_up(&self, mut unknown: Fields, beats: &mut Beats) -> Result<()> {
        let mut names = Vec::new();
        while !unknown.is_empty() {
            names.push(unknown.text()?);
        }
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(self.global("beats"));
        for name in &names {
            cmd.arg(&**name);
        }
        let mut found = self.link.fields(&cmd).await?;
        for name in names {
            let beat = found.opt_text()?.map_or_else(|| "-".to_owned(), |beat| beat.to_string());
            beats.insert(name.to_string(), beat);
        }
        Ok(())
    }
}

/// How claims are selected, the name to match, and the shards where they may be.
pub(super) type Places = (&'static str, String, Vec<(Arc<str>, Shard)>);

/// The part of a rescue that is the same for every shard.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    /// By the clock that heartbeats have. A lease of a claim's own has that of its shard.
    pub(super) now: Timestamp,
    pub(super) request: &'a Rescue,
    pub(super) lanes_left: usize,
}
