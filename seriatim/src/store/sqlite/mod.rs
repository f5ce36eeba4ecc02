//! The embedded store: one SQLite file, several processes at once if need be.
//!
//! One thread writes and commits what has gathered together (`thread.rs`); one reads. A lane with
//! one job is one row (`schema.sql`), and a claim is recorded once for all its lanes, so that
//! claiming and settling a job is one row changed and one row deleted.

mod claim;
mod fault;
mod lane;
mod limit;
mod nodes;
mod people;
mod push;
mod row;
mod settle;
mod thread;
mod tx;
mod views;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags};

use fault::translate;
pub use limit::bare_limit;
use thread::Worker;
use tx::Tx;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{JobId, LaneId, NodeId, Token};
use crate::store::request::*;
use crate::store::view::*;
use crate::store::wake::{Bell, Wakeups};
use crate::store::{Store, validate_push};
use crate::turn::Turn;

/// The version of the schema that this build reads and writes.
const SCHEMA_VERSION: i64 = 1;
/// "Seri", so that `file` and SQLite's own tools can tell whose file it is.
const APPLICATION_ID: i64 = 0x5365_7269;
/// How long another process may hold the file before an operation is answered `Unavailable`.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements kept for each connection.
const STATEMENTS_MAX: usize = 128;
/// Page cache of each connection, in KiB.
const CACHE_KIB: i64 = 8 << 10;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Loss of power: every commit is flushed to the disk.
    #[default]
    Full,
    /// The end of the process; after a loss of power the last commits may be missing.
    Normal,
}

/// A store in an SQLite file.
#[derive(Clone, Debug)]
pub struct Sqlite {
    write: Worker,
    read: Worker,
    bell: Bell,
    path: PathBuf,
}

impl Sqlite {
    /// Opens the file, or creates it; [`Store::migrate`] creates what is in it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, Durability::Full)
    }

    /// Opens the file with another durability than the default.
    pub fn open_with(path: impl AsRef<Path>, durability: Durability) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let named = |e: Error| e.while_doing(&format!("opening {}", path.display()));
        let bell = Bell::default();
        let write = Worker::writer(connect(&path, durability).map_err(named)?, bell.clone())?;
        let read = Worker::reader(connect(&path, durability).map_err(named)?, bell.clone())?;
        Ok(Self { write, read, bell, path })
    }

    async fn change<T: Send + 'static>(
        &self,
        now: Option<Timestamp>,
        body: impl FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write.call(move |connection| Tx::run(connection, now, body)).await
    }

    async fn look<T: Send + 'static>(
        &self,
        now: Option<Timestamp>,
        body: impl FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.read.call(move |connection| Tx::run(connection, now, body)).await
    }
}

fn connect(path: &Path, durability: Durability) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(translate)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    let synchronous = if durability == Durability::Full { "FULL" } else { "NORMAL" };
    let pragmas = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{CACHE_KIB};
         PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;"
    );
    connection.execute_batch(&pragmas).map_err(translate)?;
    Ok(connection)
}

fn migrate(connection: &Connection) -> Result<()> {
    let pragma = |name: &str| {
        connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0))
            .map_err(translate)
    };
    let (version, owner) = (pragma("user_version")?, pragma("application_id")?);
    if version == SCHEMA_VERSION && owner == APPLICATION_ID {
        return Ok(());
    }
    if owner != APPLICATION_ID && (owner != 0 || version != 0) {
        let message = "the file belongs to another program: name another file";
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    if version > SCHEMA_VERSION {
        let message = format!(
            "the file was written by a newer Seriatim (schema {version}; this one reads {SCHEMA_VERSION}): upgrade this program"
        );
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    connection.execute_batch(include_str!("schema.sql")).map_err(translate)?;
    let mark = format!(
        "PRAGMA user_version = {SCHEMA_VERSION}; PRAGMA application_id = {APPLICATION_ID};"
    );
    connection.execute_batch(&mark).map_err(translate)
}

#[async_trait]
impl Store for Sqlite {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "sqlite",
            durable: true,
            shared: true,
            shards: false,
            transactions: false,
            complete: true,
        }
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(Timestamp::of_this_machine())
    }

    async fn migrate(&self) -> Result<()> {
        let migrated = self.write.call(migrate).await;
        migrated.map_err(|e| e.while_doing(&format!("migrating {}", self.path.display())))
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.change(request.now, |tx| tx.declare(request.queues)).await
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        self.change(request.now, |tx| tx.push(request.jobs)).await
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.change(request.now, move |tx| tx.claim(&request)).await
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        self.change(request.now, move |tx| tx.settle(&request.turns)).await
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.change(request.now, move |tx| tx.heartbeat(&request)).await
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.change(request.now, move |tx| tx.rescue(&request)).await
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.change(request.now, move |tx| tx.sweep(request.rows_max)).await
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.change(request.now, |tx| request.jobs.into_iter().map(|job| tx.cancel(job)).collect())
            .await
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        self.change(request.now, move |tx| tx.requeue(&request)).await
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.change(request.now, move |tx| tx.delete_dead(&request)).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        self.change(request.now, move |tx| tx.act(&request)).await
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.change(request.now, move |tx| tx.amend(&request)).await
    }

    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        let name = queue.to_owned();
        self.change(None, move |tx| {
            let number = tx.known_queue(&name)?.number;
            let sql = "UPDATE queue SET paused = ?2 WHERE number = ?1";
            tx.execute(sql, rusqlite::params![number, paused]).map(drop)
        })
        .await
    }

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        let node = node.clone();
        self.change(None, move |tx| tx.command_node(&node, command)).await
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        self.change(request.now, move |tx| tx.lead(&request)).await
    }

    async fn due(&self, request: DueQuery) -> Result<Vec<SourceDue>> {
        self.look(request.now, move |tx| tx.due(&request.queues)).await
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        self.look(None, |tx| tx.queue_views()).await
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.look(now, |tx| tx.stats()).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.look(None, move |tx| tx.lane_page(&query)).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        self.look(None, move |tx| tx.job_page(&query)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        self.look(None, move |tx| tx.job_view(id)).await
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let held = self.look(None, move |tx| tx.held_turn(lane.number as i64, true)).await?;
        Ok(held.filter(|turn| turn.lane == lane && turn.token == token))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        self.look(None, |tx| tx.node_views()).await
    }

    fn wakeups(&self) -> Wakeups {
        self.bell.listen()
    }

    async fn close(&self) -> Result<()> {
        self.read.stop().await;
        self.write.stop().await;
        Ok(())
    }
}
