//! A store in Redis, for several nodes at once.
//!
//! Each step of the contract is one Lua script for each shard that it touches, and so atomic and
//! one round trip for a whole batch: the `.lua` files beside this one hold them, `shard.lua`,
//! `compact.lua` and `lane.lua` what they share. Scripts do not roll back, so each checks everything
//! before its first write. All keys of a shard lie in one hash slot; what belongs to no shard (the
//! register of queues, nodes, leaders) lies in another.

mod address;
mod args;
mod beat;
mod claim;
mod compact;
mod dead;
mod deletion;
mod durability;
mod fault;
mod fleet;
mod layout;
mod link;
mod nodes;
mod page;
mod people;
mod push;
mod queues;
mod reply;
mod rescue;
mod reshard;
mod settle;
mod sweep;
#[cfg(test)]
mod tests;
mod views;
mod wake;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use args::Args;
use async_trait::async_trait;
use link::{GLOBAL_MIGRATE, Link};
use queues::Memo;
use reply::{Shard, single};

use crate::contract::request::*;
use crate::contract::view::*;
use crate::contract::wake::{Bell, Wakeups};
use crate::contract::{Opening, SharedStore, Store};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::turn::Turn;

/// The version of what is kept; a store written by a newer one is refused.
const LAYOUT_VERSION: i64 = 3;
/// Longest prefix, in bytes: it stands in front of every key.
const PREFIX_BYTES_MAX: usize = 64;

/// A store in a Redis server, or in a cluster of them.
///
/// Several stores can share a server, each with a prefix of its own. The server's clock decides.
/// What survives a restart of the server is what its configuration says: at least
/// `appendonly yes` and `maxmemory-policy noeviction` are recommended.
pub struct Redis {
    url: String,
    link: Link,
    prefix: String,
    memo: Memo,
    /// Spreads over the shards what has no key, and claims.
    rotation: AtomicU64,
    /// Shared with the connection for heartbeats, which are told who lives.
    fleet: Arc<fleet::Fleet>,
    bell: Bell,
    /// None on a connection for heartbeats alone.
    wake: Option<wake::Listener>,
}

impl Redis {
    /// Reads a URL and connects to nothing.
    #[cfg(test)]
    pub(crate) fn read_url(url: &str) -> Result<()> {
        address::read(url).map(drop)
    }

    /// Opens the store with prefix `seriatim` on the server at `url`: `redis://…`, `rediss://…`,
    /// `redis-cluster://a:port,b:port` or `redis-sentinel://a:port,b:port/MASTER`; `docs/redis-layout.md`
    /// says what may stand behind a `?`.
    ///
    /// Fails as `Unavailable` when the server cannot be reached. Does not set the store up: see
    /// [`Store::migrate`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_in(url, "seriatim").await
    }

    /// A command to the server, to measure what it does without the store.
    #[doc(hidden)]
    pub async fn send(&self, command: &redis::Cmd) -> Result<redis::Value> {
        self.link.query(command).await
    }

    /// Opens the store with another prefix: 1 to 64 of `A-Z a-z 0-9 _ - . :`.
    pub async fn connect_in(url: &str, prefix: &str) -> Result<Self> {
        check_prefix(prefix)?;
        let mut store = Self::on(Link::open(url).await?, url, prefix);
        let (ears, channel) = (store.link.ears(), wake::channel(prefix));
        store.wake = Some(wake::Listener::open(ears, channel, store.bell.clone()));
        Ok(store)
    }

    /// A store that hears no wake-ups.
    fn on(link: Link, url: &str, prefix: &str) -> Self {
        let (memo, rotation) = (Memo::default(), AtomicU64::new(fastrand::u64(..)));
        Self {
            url: url.to_owned(),
            link,
            prefix: prefix.to_owned(),
            memo,
            rotation,
            fleet: Arc::default(),
            bell: Bell::default(),
            wake: None,
        }
    }

    /// A key of a shard; all of them lie in one hash slot.
    fn key(&self, shard: Shard, name: &str) -> String {
        format!("{}:{{q{}:{}}}:{name}", self.prefix, shard.queue, shard.shard)
    }

    /// A key of what belongs to no shard.
    fn global(&self, name: &str) -> String {
        format!("{}:{{g}}:{name}", self.prefix)
    }

    fn rotate(&self) -> u64 {
        self.rotation.fetch_add(1, Ordering::Relaxed)
    }

    async fn do_migrate(&self) -> Result<()> {
        let mut args = Args::default();
        args.int(LAYOUT_VERSION);
        let there = self.link.run(&GLOBAL_MIGRATE, &self.global(""), &args).await?;
        check_version(single(there)?.int()?)
    }

    async fn do_check(&self) -> Result<()> {
        let version = redis::cmd("HGET").arg(self.global("meta")).arg("version").to_owned();
        if let Some(there) = single(self.link.query(&version).await?)?.opt_int()? {
            return check_version(there);
        }
        // After a wipe a push may come before a node that migrates.
        let queues = redis::cmd("EXISTS").arg(self.global("queues")).to_owned();
        match single(self.link.query(&queues).await?)?.int()? {
            0 => {
                let message = format!("no key of a store with prefix {:?} is here", self.prefix);
                Err(Error::new(ErrorKind::NotFound, message))
            }
            _ => Ok(()),
        }
    }

    async fn server_time(&self) -> Result<Timestamp> {
        let mut parts = self.link.fields(&redis::cmd("TIME")).await?;
        let (seconds, micros) = (parts.int()?, parts.int()?);
        Ok(Timestamp::from_micros(seconds * 1_000_000 + micros))
    }
}

fn check_version(there: i64) -> Result<()> {
    if there < LAYOUT_VERSION {
        let message = format!(
            "the store in Redis has version {there}, which no release wrote and this build \
             cannot read: use another prefix, or empty it"
        );
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    if there > LAYOUT_VERSION {
        let message = format!(
            "the store in Redis has version {there} and this build knows version \
             {LAYOUT_VERSION}: use the build that wrote it, or a newer one"
        );
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    Ok(())
}

fn check_prefix(prefix: &str) -> Result<()> {
    // Braces would move the hash slot.
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    if !prefix.is_empty() && prefix.len() <= PREFIX_BYTES_MAX && prefix.bytes().all(plain) {
        return Ok(());
    }
    let message = format!("must be 1 to {PREFIX_BYTES_MAX} of the characters A-Z a-z 0-9 _ - . :");
    Err(Error::invalid("prefix", message))
}

#[async_trait]
impl Store for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "redis", shared: true, claim_split: None }
    }

    async fn now(&self) -> Result<Timestamp> {
        self.server_time().await
    }

    async fn migrate(&self) -> Result<()> {
        self.do_migrate().await
    }

    async fn check(&self) -> Result<()> {
        self.do_check().await
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        self.keep_secret(offered).await
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.do_declare(request).await?;
        self.bell.ring();
        Ok(())
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        let pushed = self.do_push(request).await?;
        self.bell.ring();
        Ok(pushed)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.do_claim(request).await
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        // The scripts ring when something became claimable by it.
        self.do_settle(request).await
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.do_beat(request).await
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.do_rescue(request).await
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        self.do_release(request).await
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.do_give_up(request).await
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.do_sweep(request).await
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.do_cancel(request).await
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let acted = self.requeue_dead(request).await?;
        self.bell.ring();
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.delete_from_morgue(request).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let acted = self.do_act(request).await?;
        self.bell.ring();
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.do_amend(request).await?;
        self.bell.ring();
        Ok(())
    }

    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        self.do_pause(queue, paused).await?;
        self.bell.ring();
        Ok(())
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        self.do_delete_queue(request).await
    }

    async fn reshard(&self, queue: &str, shards: u16) -> Result<Resharded> {
        self.do_reshard(queue, shards).await
    }

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        self.do_command(node, command).await
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        self.bury_node(request).await
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        self.do_lead(request).await
    }

    async fn due(&self, request: DueQuery) -> Result<Vec<SourceDue>> {
        self.due_sources(request).await
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        self.queue_views().await
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.queue_stats(now).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.lane_page(query).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        self.job_page(query).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        self.read_job(id).await
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        self.read_turn(lane, token).await
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        self.node_views().await
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let (url, prefix, fleet) = (self.url.clone(), self.prefix.clone(), self.fleet.clone());
        Some(Box::pin(async move {
            let line = Self { fleet, ..Self::on(Link::open_again(&url).await?, &url, &prefix) };
            Ok(Arc::new(line) as SharedStore)
        }))
    }

    fn wakeups(&self) -> Wakeups {
        self.bell.listen()
    }

    async fn close(&self) -> Result<()> {
        if let Some(wake) = &self.wake {
            wake.close();
        }
        self.link.close();
        Ok(())
    }
}
