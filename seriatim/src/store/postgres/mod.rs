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
mod people;
mod pool;
mod push;
mod settle;
#[cfg(test)]
mod tests;
mod views;
mod wake;

use async_trait::async_trait;
use pool::Pool;

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{JobId, LaneId, NodeId, Token};
use crate::store::Store;
use crate::store::request::*;
use crate::store::view::*;
use crate::store::wake::{Bell, Wakeups};
use crate::turn::Turn;

/// A store in a schema of a `PostgreSQL` database.
///
/// Several stores can share a database, each in a schema of its own. The server's clock decides.
/// Connections are not encrypted yet.
pub struct Postgres {
    pool: Pool,
    bell: Bell,
    wake: wake::Link,
}

impl Postgres {
    /// Opens the store in schema `seriatim` of the database at `url` (`postgres://…`).
    ///
    /// Fails as `Unavailable` when the server cannot be reached. Does not set the store up: see
    /// [`Store::migrate`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_in(url, "seriatim").await
    }

    /// Opens the store in another schema: 1 to 40 of `a-z 0-9 _`, beginning with a letter.
    pub async fn connect_in(url: &str, schema: &str) -> Result<Self> {
        check_schema(schema)?;
        // The driver's words for a URL that it cannot read may quote the password.
        let mut config: tokio_postgres::Config = url
            .parse()
            .map_err(|_| Error::invalid("store", "is not a URL of a PostgreSQL database"))?;
        config.application_name(format!("seriatim {schema}"));
        let bell = Bell::default();
        let wake = wake::Link::open(config.clone(), schema, bell.clone());
        let store = Self { pool: Pool::new(config, schema.to_owned()), bell, wake };
        store.pool.lend().await?;
        Ok(store)
    }

    /// Tells all nodes that something may be claimable.
    fn ring(&self) {
        self.bell.ring();
        self.wake.tell_others();
    }
}

fn check_schema(schema: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins = schema.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if begins && schema.len() <= 40 && schema.bytes().all(plain) && !schema.starts_with("pg_") {
        return Ok(());
    }
    let message =
        "must be 1 to 40 of the characters a-z 0-9 _, begin with a letter and not with pg_";
    Err(Error::invalid("schema", message))
}

#[async_trait]
impl Store for Postgres {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "postgres",
            durable: true,
            shared: true,
            shards: false,
            transactions: false,
            complete: true,
        }
    }

    async fn now(&self) -> Result<Timestamp> {
        self.server_time().await
    }

    async fn migrate(&self) -> Result<()> {
        migrate::migrate(&self.pool).await
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

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        self.tell_node(node, command).await
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

    async fn close(&self) -> Result<()> {
        self.wake.close();
        self.pool.close();
        Ok(())
    }
}
