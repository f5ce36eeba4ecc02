//! Nodes as people see them, what people tell them, and leadership.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::Value;

use super::Redis;
use super::args::Args;
use super::link::{GIVE_UP, GLOBAL_COMMAND, GLOBAL_GONE, GLOBAL_LEAD};
use super::reply::{Fields, corrupt, single};
use crate::contract::{Command, DeclareDead, GiveUp, Lead, NodeInfo, NodeView, Secret};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::NodeId;
use crate::stores::gone;

/// For how long a shard refuses what was given up: much longer than a call can be on its way.
const GIVEN_UP_SECONDS: i64 = 86_400;

impl Redis {
    pub(super) async fn do_command(&self, node: &NodeId, command: Command) -> Result<()> {
        let mut args = Args::default();
        args.text(&node.0).text(match command.kept() {
            Some(Command::Stop) => "stop",
            Some(_) => "quiet",
            None => "",
        });
        let told = self.link.run(&GLOBAL_COMMAND, &self.global(""), &args).await?;
        match single(told)?.flag()? {
            true => Ok(()),
            false => {
                let message = format!("there is no living node {node}");
                Err(Error::new(ErrorKind::NotFound, message))
            }
        }
    }

    /// In every shard, as each of them refuses by itself.
    pub(super) async fn do_give_up(&self, request: GiveUp) -> Result<()> {
        let mut args = Args::default();
        args.text(&request.node.0).int(request.ticket).int(GIVEN_UP_SECONDS);
        let queues = self.all_queues().await?;
        let keys: Vec<String> = queues
            .iter()
            .flat_map(|queue| queue.shards())
            .map(|shard| self.key(shard, ""))
            .collect();
        let calls = keys.iter().map(|key| self.link.run(&GIVE_UP, key, &args));
        try_join_all(calls).await.map(drop)
    }

    pub(super) async fn bury_node(&self, request: DeclareDead) -> Result<bool> {
        let mut args = Args::at(request.now);
        args.text(&request.node.0).int(request.heartbeat_at.as_micros());
        args.int(gone::set_back(request.heartbeat_at).as_micros());
        single(self.link.run(&GLOBAL_GONE, &self.global(""), &args).await?)?.flag()
    }

    pub(super) async fn do_lead(&self, request: Lead) -> Result<bool> {
        let mut args = Args::at(request.now);
        args.text(&request.role).text(&request.node.0).micros(request.ttl);
        single(self.link.run(&GLOBAL_LEAD, &self.global(""), &args).await?)?.flag()
    }

    pub(super) async fn keep_secret(&self, offered: Secret) -> Result<Secret> {
        if let Some(secret) = self.kept_secret().await? {
            return Ok(secret);
        }
        let mut cmd = redis::cmd("HSETNX");
        cmd.arg(self.global("meta")).arg("secret").arg(&offered.0[..]);
        self.link.query(&cmd).await?;
        self.kept_secret().await?.ok_or_else(corrupt)
    }

    async fn kept_secret(&self) -> Result<Option<Secret>> {
        let cmd = redis::cmd("HGET").arg(self.global("meta")).arg("secret").to_owned();
        let bytes = match self.link.query(&cmd).await? {
            Value::Nil => return Ok(None),
            there => single(there)?.bytes()?,
        };
        bytes.try_into().map(|bytes| Some(Secret(bytes))).map_err(|_| corrupt())
    }

    pub(super) async fn node_views(&self) -> Result<Vec<NodeView>> {
        let infos: BTreeMap<Arc<str>, Arc<str>> = self.pairs("nodes").await?.into_iter().collect();
        let beats: HashMap<_, _> = self.pairs("beats").await?.into_iter().collect();
        let commands: HashMap<_, _> = self.pairs("commands").await?.into_iter().collect();
        let mut cmd = redis::cmd("ZRANGE");
        let mut list = self.link.fields(cmd.arg(self.global("dead")).arg(0).arg(-1)).await?;
        let mut dead = HashSet::new();
        while !list.is_empty() {
            dead.insert(list.text()?);
        }
        let view = |(id, info): (Arc<str>, Arc<str>)| {
            let info: NodeInfo = serde_json::from_str(&info).map_err(|e| corrupt().because(e))?;
            let beat = beats.get(&id).and_then(|beat| beat.parse().ok()).unwrap_or_default();
            Ok(NodeView {
                info,
                heartbeat_at: gone::as_it_was(Timestamp::from_micros(beat)),
                dead: dead.contains(&id),
                command: commands.get(&id).and_then(|text| command_of(text)),
            })
        };
        infos.into_iter().map(view).collect()
    }

    async fn pairs(&self, name: &str) -> Result<Vec<(Arc<str>, Arc<str>)>> {
        let mut cmd = redis::cmd("HGETALL");
        let mut fields: Fields = self.link.fields(cmd.arg(self.global(name))).await?;
        let mut pairs = Vec::new();
        while !fields.is_empty() {
            pairs.push((fields.text()?, fields.text()?));
        }
        Ok(pairs)
    }
}

pub(super) fn command_of(text: &str) -> Option<Command> {
    match text {
        "quiet" => Some(Command::Quiet),
        "stop" => Some(Command::Stop),
        _ => None,
    }
}
