//! A store in `MySQL` or `MariaDB`, for several nodes.
//!
//! An operation is one transaction. It locks its lanes, reads what it needs into the reference model (`work.rs`), lets
//! the model run it, and writes the differences in a few statements for the whole batch (`save.rs`). So the rules are
//! the model's; the code here decides which part of the store an operation needs.

#[macro_use]
mod transact;

mod actions;
mod bodies;
mod by_due;
mod claim;
mod definitions;
mod due;
mod error;
mod fold;
mod gates;
mod going_on;
mod inbox;
mod job_pages;
mod job_row;
mod lane_row;
mod load;
mod migrate;
mod nodes;
mod notes;
mod options;
mod pool;
mod promote;
mod push;
mod queues;
mod quiet;
mod remembered;
mod rescue;
mod rings;
mod save;
mod secret;
mod server;
mod settle;
mod sharing;
mod sleepers;
mod sql;
mod sweep;
mod tally;
#[cfg(test)]
mod tests;
mod tickets;
mod tokens;
mod transaction;
mod views;
mod wake;
mod walk;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};

use async_trait::async_trait;
use definitions::Definitions;
use gates::Lock;
use options::Options;
use pool::Pool;
use quiet::Quiet;
use remembered::Remembered;
use server::Server;
use sleepers::Sleepers;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::contract::*;
use crate::model::{Error, ErrorKind, Result, Timestamp};
use crate::stores::marks::Marks;

/// See [`Capabilities::claim_split`]: two concurrent sessions use two cores of the server and share a flush of its
/// log.
const CLAIM_SPLIT: usize = 500;

/// A store in a database of `MySQL` (8.0 or later) or `MariaDB` (10.6 or later).
///
/// Its tables begin with `seriatim_`. The server's clock is the store's clock.
pub struct Mysql {
    inner: Arc<Inner>,
    poll: wake::Poll,
}

struct Inner {
    pool: Pool,
    definitions: Definitions,
    remembered: Remembered,
    /// Expired idempotency keys up to this time were looked at by the last sweep.
    names_to: AtomicI64,
    last_walk: walk::LastWalk,
    bell: Bell,
    quiet: Quiet,
    sleepers: Sleepers,
    /// Whether a task polls for wake-ups.
    is_polling: AtomicBool,
    marks: Marks<Server>,
    /// Wake-ups of all processes are read at once.
    news: Arc<Notify>,
}

impl Inner {
    fn new(options: Options) -> Self {
        Self {
            pool: Pool::new(options),
            definitions: Definitions::default(),
            remembered: Remembered::default(),
            names_to: AtomicI64::default(),
            last_walk: walk::LastWalk::default(),
            bell: Bell::default(),
            quiet: Quiet::default(),
            sleepers: Sleepers::default(),
            is_polling: AtomicBool::default(),
            marks: Marks::default(),
            news: Arc::default(),
        }
    }

    /// Wakes the listeners of this process.
    fn ring(&self, wake: &Wake) {
        self.quiet.rung(wake);
        self.bell.ring(wake);
    }

    /// Nothing is due in the queue. If this process claims from it, it waits now; the next poll tells the others.
    fn falls_asleep(&self, queue: &Arc<str>) {
        if self.bell.is_awaited(queue) {
            self.sleepers.asleep().falls_asleep(queue);
        }
    }

    /// More is due in the queue than this process takes now.
    fn leaves_some(&self, queue: &str) {
        // A process that does not poll cannot tell the others.
        if self.bell.has_listeners() && self.sleepers.asleep().leaves_some(queue, Instant::now()) {
            self.news.notify_one();
        }
    }
}

impl std::fmt::Debug for Mysql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mysql").finish_non_exhaustive()
    }
}

impl Mysql {
    /// Checks a URL without connecting.
    pub(crate) fn read_url(url: &str) -> Result<()> {
        Options::parse(url).map(drop)
    }

    /// Opens the store in the database at `url`: `mysql://user:password@host:port/database`, or the same with
    /// `mariadb:`.
    ///
    /// Options after a `?`, joined by `&`:
    ///
    /// - `connections`: most concurrent ones, 1 to 200, plus one for the heartbeats of each engine. Default: 8
    /// - `call_timeout`: limit for a call, including the wait for a connection. Default: `30s`
    /// - `connect_timeout`: limit for opening a connection. Default: `10s`
    /// - `ssl-mode`: `disabled`, `preferred` (default: encrypted if the server supports it), `required` (encrypted,
    ///   without checking the server), `verify_identity` (the server must have a certificate for its name)
    /// - `ssl-ca`: a PEM file with the trusted authorities. Default: those that Mozilla trusts
    ///
    /// Fails with `Unavailable` if the server cannot be reached, and with `Invalid` if the URL is wrong; no error
    /// contains a password. Does not create the tables: see [`Store::migrate`].
    pub async fn connect(url: &str) -> Result<Self> {
        let inner = Inner::new(Options::parse(url)?);
        let loan = inner.pool.lend().await?;
        loan.give_back();
        Ok(Self { inner: Arc::new(inner), poll: wake::Poll::default() })
    }

    /// A connection like the store's own, to measure the server without the store.
    #[doc(hidden)]
    pub async fn session(&self) -> Result<mysql_async::Conn> {
        Ok(self.inner.pool.connect().await?)
    }

    /// Calls repeated because the server rolled them back.
    #[cfg(test)]
    fn repeated(&self) -> u64 {
        self.inner.pool.repeated.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Mysql {
    async fn kept_secret(&self) -> Result<Option<Secret>> {
        transact!(self.inner, Lock::Look, None, work => secret::secret(work))
    }
}

#[async_trait]
impl Store for Mysql {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "mysql",
            shared: true,
            claim_split: Some(CLAIM_SPLIT),
            inbox: true,
            store_scope: true,
            batches: false,
            series: false,
            finished_by_time: true,
        }
    }

    async fn now(&self) -> Result<Timestamp> {
        transact!(self.inner, Lock::Look, None, work => async { Ok(work.now) })
    }

    async fn migrate(&self) -> Result<()> {
        Ok(migrate::migrate(&self.inner.pool).await?)
    }

    async fn check(&self) -> Result<()> {
        Ok(migrate::check(&self.inner.pool).await?)
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        if let Some(secret) = self.kept_secret().await? {
            return Ok(secret);
        }
        transact!(self.inner, Lock::FREE, None, work => secret::keep_secret(work, offered))?;
        // A separate transaction: it sees a secret that another session stored meanwhile.
        let gone = || Error::new(ErrorKind::Corrupt, "the secret of the store is gone");
        self.kept_secret().await?.ok_or_else(gone)
    }

    fn wakeups(&self) -> Wakeups {
        let wakeups = self.inner.bell.listen();
        self.poll.start(&self.inner);
        wakeups
    }

    fn pass_on(&self, queue: &str) {
        if self.inner.sleepers.asleep().pass_on(queue) {
            self.inner.news.notify_one();
        }
    }

    fn heartbeat_line(&self) -> Option<Opening> {
        let options = Options { connections: 1, ..self.inner.pool.options.clone() };
        let inner = Inner { marks: self.inner.marks.clone(), ..Inner::new(options) };
        let line = Arc::new(Self { inner: Arc::new(inner), poll: wake::Poll::default() });
        Some(Box::pin(async move { Ok(line as SharedStore) }))
    }

    fn native(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.poll.finish(&self.inner).await;
        self.inner.pool.close();
        Ok(())
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        self.poll.stop();
    }
}

#[async_trait]
impl Notebook for Mysql {
    async fn write_notes(&self, notes: Vec<Note>) -> Result<()> {
        validate_notes(&notes)?;
        transact!(self.inner, Lock::FREE, None, work => notes::write(work, &notes))
    }

    async fn read_notes(&self, query: NoteQuery) -> Result<Vec<Note>> {
        transact!(self.inner, Lock::Look, None, work => notes::read(work, &query))
    }

    async fn named_notes(&self, names: Vec<String>) -> Result<Vec<Note>> {
        let names = names_to_read(names)?;
        transact!(self.inner, Lock::Look, None, work => notes::named(work, &names))
    }

    async fn delete_notes(&self, query: NoteQuery) -> Result<u64> {
        transact!(self.inner, Lock::FREE, None, work => notes::delete(work, &query))
    }
}
