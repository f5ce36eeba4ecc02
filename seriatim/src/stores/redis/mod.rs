//! A store in Redis, for several nodes.
//!
//! Each operation of the contract is one Lua script per shard: atomic, and one round trip for a whole batch. The
//! `.lua` files here define them; `shard.lua`, `compact.lua`, `any_job.lua`, `lane.lua` and `any_lane.lua` have their common part. Scripts do not
//! roll back, so each checks everything before its first write. All keys of a shard are in one hash slot; data of no
//! shard (the register of queues, nodes, leaders) is in another.

mod actions;
mod address;
mod ahead;
mod args;
mod beat;
mod bodies;
mod by_due;
mod claim;
mod cluster;
mod compact;
mod confirming;
mod dead;
mod deletion;
mod durability;
mod entry;
mod fault;
mod having;
mod info;
mod job_pages;
mod layout;
mod line;
mod link;
mod living;
mod many;
mod marks;
mod memo;
mod nodes;
mod notes;
mod page;
mod push;
mod queues;
mod reply;
mod rescue;
mod reshard;
mod server;
mod settle;
mod slots;
#[cfg(test)]
mod tests;
mod turns;
mod views;
mod wake;
mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use args::Args;
use async_trait::async_trait;
use link::{GLOBAL_MIGRATE, Link};
use memo::Memo;
use redis::Value;
use reply::{Shard, corrupt, single};

use crate::contract::*;
use crate::model::{Error, ErrorKind, NodeId, Result, Timestamp};

/// The version of the stored format; a store written by a newer one is refused. One of an earlier one is raised when no
/// node of an earlier build lives (`raise.lua`); until then all write what that can read.
const LAYOUT_VERSION: i64 = 7;
/// The oldest version that this build reads.
const LAYOUT_VERSION_MIN: i64 = 4;
/// The first version whose readers know payloads that are apart, and jobs that failed and are otherwise plain.
const APART_SINCE: i64 = 5;
const FAILED_SINCE: i64 = 6;
/// The first version whose writers enter held and paused lanes in `parked`.
const PARKED_SINCE: i64 = 7;
/// Longest prefix of keys, in bytes.
const PREFIX_BYTES_MAX: usize = 64;

/// A store in a Redis server or cluster.
///
/// Several stores can share a server, each with its own prefix. The server's clock is the store's clock. The server's
/// configuration determines what survives a restart: at least `appendonly yes` and `maxmemory-policy noeviction` are
/// recommended.
pub struct Redis {
    url: String,
    link: Arc<Link>,
    prefix: String,
    memo: Arc<Memo>,
    /// Distributes jobs without a key, and claims, over the shards.
    rotation: AtomicU64,
    /// Shared with the connection for heartbeats, which receives the list of living nodes.
    living: Arc<living::Living>,
    /// Shared likewise.
    marks: Arc<marks::Marks>,
    /// Through all jobs of a queue.
    listings: ahead::Kept,
    /// Why the last rescue of a node did not ask every shard, if it was answered all the same.
    unanswered_rescues: Mutex<HashMap<NodeId, Error>>,
    /// The version of the stored format, as last read.
    version: Arc<AtomicI64>,
    /// The next rescue looks at all shards, whoever leads.
    walks: AtomicBool,
    bell: Bell,
    /// `None` on a connection for heartbeats.
    wake: Option<wake::Listener>,
}

impl Redis {
    /// Checks a URL without connecting.
    pub(crate) fn read_url(url: &str) -> Result<()> {
        address::read(url).map(drop)
    }

    /// Opens the store with prefix `seriatim` on the server at `url`: `redis://…`, `rediss://…`,
    /// `redis-cluster://a:port,b:port` or `redis-sentinel://a:port,b:port/MASTER`; for the options after a `?` see
    /// `docs/redis-layout.md`.
    ///
    /// Fails with `Unavailable` if the server cannot be reached. Does not set up the store: see [`Store::migrate`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_in(url, "seriatim").await
    }

    /// Sends a command to the server, to measure it without the store.
    #[doc(hidden)]
    pub async fn send(&self, command: &redis::Cmd) -> Result<redis::Value> {
        self.link.query(command).await
    }

    /// Opens a connection to the server of `url` for commands that are not the store's, with the sockets and certificates
    /// of a store. A cluster is refused.
    #[doc(hidden)]
    pub async fn dial(url: &str) -> Result<redis::aio::MultiplexedConnection> {
        wire::dial(url).await
    }

    /// The same by RESP3: what the server tells without being asked goes to `heard`. Redis before 6 refuses it.
    #[doc(hidden)]
    pub async fn dial_hearing(
        url: &str,
        heard: tokio::sync::mpsc::UnboundedSender<redis::PushInfo>,
    ) -> Result<redis::aio::MultiplexedConnection> {
        wire::dial_hearing(url, heard).await
    }

    /// Opens the store with another prefix: 1 to 64 of `A-Z a-z 0-9 _ - . :`.
    pub async fn connect_in(url: &str, prefix: &str) -> Result<Self> {
        check_prefix(prefix)?;
        let mut link = Link::open(url).await?;
        let channels = wake::channels(prefix, link.listen());
        let mut store = Self::on(link, url, prefix);
        let servers = store.link.wake_servers();
        let (bell, memo) = (store.bell.clone(), store.memo.clone());
        store.wake = Some(wake::Listener::open(servers, channels, bell, memo));
        Ok(store)
    }

    /// A store that receives no wake-ups.
    fn on(link: Link, url: &str, prefix: &str) -> Self {
        let (memo, rotation) = (Arc::default(), AtomicU64::new(fastrand::u64(..)));
        Self {
            url: url.to_owned(),
            link: Arc::new(link),
            prefix: prefix.to_owned(),
            memo,
            rotation,
            living: Arc::default(),
            marks: Arc::default(),
            listings: ahead::Kept::default(),
            unanswered_rescues: Mutex::default(),
            version: Arc::default(),
            walks: AtomicBool::new(true),
            bell: Bell::default(),
            wake: None,
        }
    }

    /// A key of a shard; all of them are in one hash slot.
    fn key(&self, shard: Shard, name: &str) -> String {
        format!("{}:{{q{}:{}}}:{name}", self.prefix, shard.queue, shard.shard)
    }

    /// A key outside all shards.
    fn global(&self, name: &str) -> String {
        format!("{}:{{g}}:{name}", self.prefix)
    }

    /// Takes note of the version of the stored format.
    fn read_version(&self, there: i64) -> Result<()> {
        check_version(there)?;
        self.version.store(there, Ordering::Relaxed);
        Ok(())
    }

    /// Whether long payloads are stored apart: all who read the store know that.
    fn sets_apart(&self) -> bool {
        self.version.load(Ordering::Relaxed) >= APART_SINCE
    }

    /// Whether a plain job stays one when it fails: the same.
    fn keeps_failed(&self) -> bool {
        self.version.load(Ordering::Relaxed) >= FAILED_SINCE
    }

    /// Whether all who write know `parked`.
    fn parks(&self) -> bool {
        self.version.load(Ordering::Relaxed) >= PARKED_SINCE
    }

    fn rotate(&self) -> u64 {
        self.rotation.fetch_add(1, Ordering::Relaxed)
    }

    async fn kept_secret(&self) -> Result<Option<Secret>> {
        let cmd = redis::cmd("HGET").arg(self.global("meta")).arg("secret").to_owned();
        let bytes = match self.link.query(&cmd).await? {
            Value::Nil => return Ok(None),
            there => single(there)?.bytes()?,
        };
        bytes.try_into().map(|bytes| Some(Secret(bytes))).map_err(|_| corrupt())
    }
}

fn check_version(there: i64) -> Result<()> {
    if there < LAYOUT_VERSION_MIN {
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
    // Braces would change the hash slot.
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
        Capabilities {
            name: "redis",
            shared: true,
            claim_split: None,
            inbox: false,
            store_scope: !self.link.is_cluster(),
            batches: false,
            series: true,
            finished_by_time: false,
        }
    }

    async fn now(&self) -> Result<Timestamp> {
        let mut parts = self.link.fields(&redis::cmd("TIME")).await?;
        let (seconds, micros) = (parts.int()?, parts.int()?);
        Ok(Timestamp::from_micros(seconds * 1_000_000 + micros))
    }

    async fn migrate(&self) -> Result<()> {
        let mut args = Args::default();
        args.int(LAYOUT_VERSION);
        let there = self.link.run(&GLOBAL_MIGRATE, &self.global(""), &args).await?;
        self.read_version(single(there)?.int()?)
    }

    async fn check(&self) -> Result<()> {
        let version = redis::cmd("HGET").arg(self.global("meta")).arg("version").to_owned();
        if let Some(there) = single(self.link.query(&version).await?)?.opt_int()? {
            return self.read_version(there);
        }
        // After a wipe, a push may come before a node that migrates.
        let queues = redis::cmd("EXISTS").arg(self.global("queues")).to_owned();
        match single(self.link.query(&queues).await?)?.int()? {
            0 => {
                let message = format!("there is no store with prefix {:?} here", self.prefix);
                Err(Error::new(ErrorKind::NotFound, message))
            }
            _ => Ok(()),
        }
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        if let Some(secret) = self.kept_secret().await? {
            return Ok(secret);
        }
        let mut cmd = redis::cmd("HSETNX");
        cmd.arg(self.global("meta")).arg("secret").arg(&offered.0[..]);
        self.link.query(&cmd).await?;
        self.kept_secret().await?.ok_or_else(corrupt)
    }

    fn wakeups(&self) -> Wakeups {
        self.bell.listen()
    }

    fn pass_on(&self, queue: &str) {
        let Some(known) = self.memo.get(queue) else { return };
        let keys = known.open_shards().map(|shard| self.key(shard, "")).collect();
        wake::pass_on(self.link.clone(), keys);
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let (url, prefix) = (self.url.clone(), self.prefix.clone());
        let (living, marks, version) =
            (self.living.clone(), self.marks.clone(), self.version.clone());
        Some(Box::pin(async move {
            let line = Self::on(Link::open_again(&url, line::ANSWER_SOON).await?, &url, &prefix);
            let line = Self { living, marks, version, ..line };
            Ok(Arc::new(line) as SharedStore)
        }))
    }

    async fn close(&self) -> Result<()> {
        if let Some(wake) = &self.wake {
            wake.close();
        }
        self.link.close();
        Ok(())
    }
}
