//! A store in `PostgreSQL`, for several nodes.
//!
//! Each operation of the contract is one function in the database: one atomic statement and one round trip for a whole
//! batch. The `.sql` files here define them and explain their design. The Rust code converts requests into parameters
//! and rows into answers.

mod actions;
mod batches;
mod claim;
mod convert;
mod error;
mod inbox;
mod job_pages;
mod lane_pages;
mod migrate;
mod names;
mod nodes;
mod notes;
mod options;
mod params;
mod pool;
mod push;
mod queues;
mod rounds;
mod seen;
mod servers;
mod settle;
mod summons;
#[cfg(test)]
mod tests;
mod tls;
mod transaction;
mod turn;
mod views;
mod wake;

use std::sync::Arc;

use async_trait::async_trait;
use convert::column;
use options::Options;
use pool::Pool;
use rounds::Rounds;
use summons::Summons;

use crate::contract::*;
use crate::model::{Error, ErrorKind, Result, Timestamp};
use crate::stores::marks::Marks;

/// See [`Capabilities::claim_split`]: two concurrent sessions use two cores of the server and share a flush of its
/// log.
const CLAIM_SPLIT: usize = 500;

const NOW: &str = "SELECT seriatim.clock() AS now";
const SECRET: &str = "SELECT bytes FROM seriatim.secret";
const KEEP_SECRET: &str = "INSERT INTO seriatim.secret (bytes) VALUES ($1) ON CONFLICT DO NOTHING";

/// A store in a schema of a `PostgreSQL` database.
///
/// Several stores can share a database, each in its own schema. The server's clock is the store's clock.
pub struct Postgres {
    pool: Pool,
    bell: Bell,
    wake: wake::Link,
    seen: seen::Seen,
    rounds: Rounds,
    names: names::Names,
    marks: Marks<String>,
}

impl Postgres {
    /// Checks a URL without connecting.
    pub(crate) fn read_url(url: &str) -> Result<()> {
        Options::parse(url).map(drop)
    }

    /// Opens the store at `url`: `postgres://user:password@host:port/database`.
    ///
    /// Options after a `?` are those of the driver (`connect_timeout`, in seconds, default 10; `keepalives_idle`, …)
    /// and these:
    ///
    /// - `schema`: 1 to 40 of `a-z 0-9 _`, starting with a letter. Default: `seriatim`
    /// - `connections`: most concurrent ones, 1 to 200, plus one that listens and one for the heartbeats of
    ///   each engine. Default: 8
    /// - `call_timeout`: limit for a call, including the wait for a connection. Default: `30s`
    /// - `sslmode`: `disable`, `prefer` (default), `require` (encrypted, without checking the server), `verify-full`
    ///   (the server must have a certificate for its name, from an authority in the PEM file `sslrootcert`, or if
    ///   unset from one that this machine trusts)
    /// - `listen`: `off`, or the server's own `host:port` if the URL names a pooler
    ///
    /// Of several servers (`host1:port1,host2:port2`), the one that takes writes is used: after a failover, the new primary.
    ///
    /// Fails with `Unavailable` if the server cannot be reached, and with `Invalid` if the URL is wrong; no error
    /// contains a password. Does not create the schema: see [`Store::migrate`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::open(Options::parse(url)?).await
    }

    /// Opens the store in `schema`; overrides the URL's.
    pub async fn connect_in(url: &str, schema: &str) -> Result<Self> {
        let mark = if url.contains('?') { '&' } else { '?' };
        options::check_schema(schema)?;
        Self::open(Options::parse(&format!("{url}{mark}schema={schema}"))?).await
    }

    async fn open(options: Options) -> Result<Self> {
        let bell = Bell::default();
        let wake = wake::Link::open(options.listen.clone(), &options.schema, bell.clone());
        let store = Self {
            pool: Pool::new(options),
            bell,
            wake,
            seen: seen::Seen::default(),
            rounds: Rounds::default(),
            names: names::Names::default(),
            marks: Marks::default(),
        };
        store.pool.lend().await?;
        Ok(store)
    }

    /// A session like the store's own, to measure the server without the store.
    #[doc(hidden)]
    pub async fn session(&self) -> Result<tokio_postgres::Client> {
        Ok(self.pool.connect().await?.client)
    }

    /// SQL for the schema `seriatim`, rewritten for this store's schema.
    #[doc(hidden)]
    pub fn in_schema(&self, sql: &str) -> String {
        pool::in_schema(sql, &self.pool.schema)
    }

    async fn kept_secret(&self) -> Result<Option<Secret>> {
        let rows = self.pool.query(SECRET, &[]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let bytes: &[u8] = column(row, "bytes")?;
        bytes.try_into().map(|bytes| Some(Secret(bytes))).map_err(|_| no_secret("is none"))
    }

    /// Wakes the nodes of all processes.
    fn ring(&self, wake: &Wake) {
        self.summon(&Summons::all(wake));
    }

    /// Wakes the nodes of this process, and those others that they are for.
    fn summon(&self, summons: &Summons) {
        summons.ring(&self.bell);
        self.wake.notify_others(summons);
    }
}

#[async_trait]
impl Store for Postgres {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "postgres",
            shared: true,
            claim_split: Some(CLAIM_SPLIT),
            inbox: true,
            store_scope: true,
            batches: true,
            series: true,
            finished_by_time: true,
        }
    }

    async fn now(&self) -> Result<Timestamp> {
        let row = self.pool.query_one(NOW, &[]).await?;
        Ok(Timestamp::from_micros(column(&row, "now")?))
    }

    async fn migrate(&self) -> Result<()> {
        migrate::migrate(&self.pool).await
    }

    async fn check(&self) -> Result<()> {
        migrate::check(&self.pool).await
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        if let Some(secret) = self.kept_secret().await? {
            return Ok(secret);
        }
        self.pool.query(KEEP_SECRET, &[&offered.0.to_vec()]).await?;
        // A separate statement: it sees a secret that another session stored meanwhile.
        self.kept_secret().await?.ok_or_else(|| no_secret("is gone"))
    }

    fn wakeups(&self) -> Wakeups {
        self.bell.listen()
    }

    fn pass_on(&self, queue: &str) {
        self.wake.pass_on(queue);
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let bell = Bell::default();
        let wake = wake::Link::none();
        let line = Arc::new(Self {
            pool: self.pool.alone(),
            bell,
            wake,
            seen: seen::Seen::default(),
            rounds: Rounds::default(),
            names: names::Names::default(),
            marks: self.marks.clone(),
        });
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

fn no_secret(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the secret of the store {why}"))
}
