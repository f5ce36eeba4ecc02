//! A store in `PostgreSQL`, for several nodes at once.
//!
//! Each step of the contract is one function in the database, and so one atomic statement and one
//! round trip for a whole batch: the `.sql` files beside this one hold them and say why they are as
//! they are. What stands here turns requests into parameters and rows into answers.

mod claim;
mod convert;
mod error;
mod migrate;
mod nodes;
mod options;
mod params;
mod people;
mod pool;
mod push;
mod settle;
#[cfg(test)]
mod tests;
mod tls;
mod transaction;
mod views;
mod wake;

use std::sync::Arc;

use async_trait::async_trait;
use options::Options;
use pool::Pool;

use crate::contract::request::*;
use crate::contract::view::*;
use crate::contract::wake::{Bell, Wakeups};
use crate::contract::{Opening, SharedStore, Store};
use crate::model::clock::Timestamp;
use crate::model::error::Result;
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::turn::Turn;

/// See [`Capabilities::claim_split`]: two sessions at once keep two of the server's cores busy, and share
/// a flush of its log.
const CLAIM_SPLIT: usize = 500;

/// A store in a schema of a `PostgreSQL` database.
///
/// Several stores can share a database, each in a schema of its own. The server's clock decides.
pub struct Postgres {
    pool: Pool,
    bell: Bell,
    wake: wake::Link,
}

impl Postgres {
    /// Reads a URL and connects to nothing.
    #[cfg(test)]
    pub(crate) fn read_url(url: &str) -> Result<()> {
        Options::parse(url).map(drop)
    }

    /// Opens the store that `url` names: `postgres://user:password@host:port/database`.
    ///
    /// Behind a `?` it may hold what the driver knows (`connect_timeout`, in seconds, 10 when it is
    /// missing; `keepalives_idle`, …), and of ours:
    ///
    /// - `schema`: 1 to 40 of `a-z 0-9 _`, beginning with a letter; `seriatim`
    /// - `connections`: most at once, besides the one that listens and one for the heartbeats of each
    ///   engine, 1 to 200; 8
    /// - `call_timeout`: how long a call may take, the wait for a connection included; `30s`
    /// - `sslmode`: `disable`, `prefer` (the default), `require` (encrypted, whoever answers),
    ///   `verify-full` (the server must prove its name, to an authority that `sslrootcert`, a file in
    ///   PEM, or else this machine trusts)
    /// - `listen`: `off`, or `host:port` of the server itself where a pooler stands between
    ///
    /// Fails as `Unavailable` when the server cannot be reached, and as `Invalid` when the URL is
    /// wrong; no error shows a password. Does not set the store up: see [`Store::migrate`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::open(Options::parse(url)?).await
    }

    /// Opens the store in `schema`, whatever the URL says of one.
    pub async fn connect_in(url: &str, schema: &str) -> Result<Self> {
        let mark = if url.contains('?') { '&' } else { '?' };
        options::check_schema(schema)?;
        Self::open(Options::parse(&format!("{url}{mark}schema={schema}"))?).await
    }

    async fn open(options: Options) -> Result<Self> {
        let bell = Bell::default();
        let (listen, tls) = (options.listen.clone(), options.tls.clone());
        let wake = wake::Link::open(listen, tls, &options.schema, bell.clone());
        let store = Self { pool: Pool::new(options), bell, wake };
        store.pool.lend().await?;
        Ok(store)
    }

    /// A session as the store's own are, to measure what the server does without the store.
    #[doc(hidden)]
    pub async fn session(&self) -> Result<tokio_postgres::Client> {
        self.pool.connect().await
    }

    /// SQL of the schema `seriatim`, for that of this store.
    #[doc(hidden)]
    pub fn in_schema(&self, sql: &str) -> String {
        pool::in_schema(sql, &self.pool.schema)
    }

    /// Tells all nodes that something may be claimable.
    fn ring(&self) {
        self.bell.ring();
        self.wake.tell_others();
    }
}

#[async_trait]
impl Store for Postgres {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "postgres", shared: true, claim_split: Some(CLAIM_SPLIT) }
    }

    async fn now(&self) -> Result<Timestamp> {
        self.server_time().await
    }

    async fn migrate(&self) -> Result<()> {
        migrate::migrate(&self.pool).await
    }

    async fn check(&self) -> Result<()> {
        migrate::check(&self.pool).await
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        self.keep_secret(offered).await
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.declare_queues(request).await?;
        self.ring();
        Ok(())
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        let pushed = self.push_jobs(request).await?;
        self.ring();
        Ok(pushed)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.claim_lanes(request).await
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let settled = self.settle_turns(request).await?;
        self.ring();
        Ok(settled)
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.beat(request).await
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.rescue_lanes(request).await
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        self.release_lanes(request).await
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.give_calls_up(request).await
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.sweep_old(request).await
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.cancel_jobs(request).await
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        let acted = self.requeue_dead(request).await?;
        self.ring();
        Ok(acted)
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.delete_dead_jobs(request).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        let acted = self.act_on(request).await?;
        self.ring();
        Ok(acted)
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.amend_job(request).await?;
        self.ring();
        Ok(())
    }

    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        self.pause(queue, paused).await?;
        self.ring();
        Ok(())
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        self.delete_whole_queue(request).await
    }

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        self.tell_node(node, command).await
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        self.bury_node(request).await
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        self.take_lead(request).await
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

    fn wakeups(&self) -> Wakeups {
        self.bell.listen()
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let bell = Bell::default();
        let wake = wake::Link::none();
        let line = Arc::new(Self { pool: self.pool.alone(), bell, wake });
        Some(Box::pin(async move { Ok(line as SharedStore) }))
    }

    fn native(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.wake.close().await;
        self.pool.close();
        Ok(())
    }
}
