//! The embedded store: one `SQLite` file, several processes at once if need be.
//!
//! One thread writes and commits what has gathered together (`thread.rs`); one reads. A lane with
//! one job is one row (`schema.sql`), and a claim is recorded once for all its lanes, so that
//! claiming and settling a job is one row changed and one row deleted.

mod body;
mod claim;
mod deletion;
mod fault;
mod lane;
mod migrate;
mod nodes;
mod people;
mod place;
mod push;
mod rescue;
mod row;
mod settle;
#[cfg(test)]
mod tests;
mod thread;
mod tx;
mod views;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use fault::translate;
use place::Place;
use thread::Worker;
use tx::Tx;

use crate::contract::request::*;
use crate::contract::view::*;
use crate::contract::wake::{Bell, Wakeups};
use crate::contract::{Opening, SharedStore, Store, validate_push};
use crate::model::clock::Timestamp;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::id::{JobId, LaneId, NodeId, Token};
use crate::model::turn::Turn;

/// How long another process may hold the file before an operation is answered `Unavailable`.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements kept for each connection.
const STATEMENTS_MAX: usize = 128;
/// The log is written back into the file when it has grown by so many pages of 4 KiB.
const CHECKPOINT_PAGES: u32 = 4_000;
/// To how many bytes a log that has grown larger is cut back.
const WAL_BYTES_KEPT: u32 = 64 << 20;
/// Page cache of the writing connection, in KiB.
const WRITE_CACHE_KIB: i64 = 16 << 10;
/// Page cache of the reading connection, in KiB.
const READ_CACHE_KIB: i64 = 4 << 10;
/// A database that ends with the process, as `SQLite` names it.
const IN_MEMORY: &str = ":memory:";

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Loss of power: every commit is flushed to the disk.
    #[default]
    Full,
    /// The end of the process; after a loss of power the last commits may be missing.
    Normal,
}

/// A store in an `SQLite` file.
#[derive(Clone, Debug)]
pub struct Sqlite {
    write: Worker,
    read: Arc<Mutex<Reader>>,
    bell: Bell,
    path: PathBuf,
    place: Place,
}

/// The thread for listings, which most processes never need.
#[derive(Debug)]
enum Reader {
    NotYet,
    Runs(Worker),
    /// There is one connection only, which does it all.
    IsTheWriter,
    Closed,
}

impl Sqlite {
    /// Opens the file, or creates it; [`Store::migrate`] creates what is in it. `":memory:"` is a
    /// database that ends with the process.
    ///
    /// Fails when the folder does not exist, when the file is not a database, and when it cannot
    /// be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, Durability::Full)
    }

    /// Opens the file with another durability than the default.
    pub fn open_with(path: impl AsRef<Path>, durability: Durability) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let in_memory = path.as_os_str() == IN_MEMORY;
        let connection = connect_writer(&path, durability, in_memory)
            .map_err(|e| e.while_doing(&format!("opening {}", path.display())))?;
        let bell = Bell::default();
        let place = Place::of(connection.path());
        let write = Worker::writer(connection, place.clone(), bell.clone())?;
        let read = if in_memory { Reader::IsTheWriter } else { Reader::NotYet };
        Ok(Self { write, read: Arc::new(Mutex::new(read)), bell, path, place })
    }

    /// A connection as the one that writes, to measure what the database does without the store.
    #[doc(hidden)]
    pub fn session(path: &Path) -> Result<Connection> {
        connect_writer(path, Durability::Full, false)
    }

    /// Whether the file is a store that this build reads; it is neither made nor changed. `NotFound` when
    /// there is none, or when nothing was ever written to it.
    pub(crate) fn look_at(path: &Path) -> Result<()> {
        if !std::fs::exists(path).unwrap_or(true) {
            let message = format!("there is no file {}", path.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(translate)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(translate)?;
        let checked = migrate::check(&connection);
        checked.map_err(|e| e.while_doing(&format!("opening {}", path.display())))
    }

    async fn change<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write.call(body).await
    }

    async fn look<T: Send + 'static>(
        &self,
        mut body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.reader()? {
            Some(reader) => reader.call(body).await,
            None => {
                let body = move |tx: &mut Tx<'_>| {
                    // The counters of what shares the transaction.
                    tx.flush()?;
                    body(tx)
                };
                self.write.call(body).await
            }
        }
    }

    /// The thread that reads, started when it is first needed; none where the writer does it.
    fn reader(&self) -> Result<Option<Worker>> {
        let mut reader = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        match &*reader {
            Reader::IsTheWriter => Ok(None),
            Reader::Runs(worker) => Ok(Some(worker.clone())),
            Reader::Closed => Err(Error::new(ErrorKind::Unavailable, "the store has been closed")),
            Reader::NotYet => {
                let worker = Worker::reader(connect_reader(&self.path)?, self.place.clone())?;
                *reader = Reader::Runs(worker.clone());
                Ok(Some(worker))
            }
        }
    }
}

fn connect_writer(path: &Path, durability: Durability, in_memory: bool) -> Result<Connection> {
    check_folder(path)?;
    if !in_memory {
        make_private(path);
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE, WRITE_CACHE_KIB)?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(translate)?;
    if mode != "wal" && !in_memory {
        let message = "this file system cannot share memory between processes (is it a network \
                       share?), which the database needs: name a file on a local disk";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let synchronous = if durability == Durability::Full { "FULL" } else { "NORMAL" };
    let pragmas = format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {WAL_BYTES_KEPT};"
    );
    connection.execute_batch(&pragmas).map_err(translate)?;
    Ok(connection)
}

fn connect_reader(path: &Path) -> Result<Connection> {
    let connection = connect(path, OpenFlags::empty(), READ_CACHE_KIB)?;
    connection.execute_batch("PRAGMA query_only = 1").map_err(translate)?;
    Ok(connection)
}

fn connect(path: &Path, more: OpenFlags, cache_kib: i64) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let connection = Connection::open_with_flags(path, flags).map_err(translate)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans do not depend on values: otherwise statements are compiled again when they get new ones.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(translate)?;
    let pragmas = format!("PRAGMA cache_size = -{cache_kib}; PRAGMA temp_store = MEMORY;");
    connection.execute_batch(&pragmas).map_err(translate)?;
    Ok(connection)
}

/// Payloads are for nobody but the owner. `SQLite` gives the files beside the database the same mode.
fn make_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // A file that is there keeps its mode; what cannot be made `SQLite` will say better.
    let _ = options.open(path);
}

/// `SQLite` says only that it cannot open the file.
fn check_folder(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            let message = format!("there is no folder {}: create it", folder.display());
            Err(Error::new(ErrorKind::NotFound, message))
        }
        _ => Ok(()),
    }
}

#[async_trait]
impl Store for Sqlite {
    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "sqlite", shared: true, claim_split: None }
    }

    async fn now(&self) -> Result<Timestamp> {
        self.place.check()?;
        Ok(Timestamp::of_this_machine())
    }

    async fn migrate(&self) -> Result<()> {
        let migrated = self.write.migrate().await;
        migrated.map_err(|e| e.while_doing(&format!("migrating {}", self.path.display())))
    }

    async fn check(&self) -> Result<()> {
        match self.path.as_os_str() == IN_MEMORY {
            true => self.look(|_| Ok(())).await,
            false => Self::look_at(&self.path),
        }
    }

    async fn secret(&self, offered: Secret) -> Result<Secret> {
        match self.look(|tx| tx.at(None).secret()).await? {
            Some(secret) => Ok(secret),
            None => self.change(move |tx| tx.at(None).keep_secret(offered)).await,
        }
    }

    async fn declare(&self, request: Declare) -> Result<()> {
        self.change(move |tx| tx.at(request.now).declare(&request.queues)).await
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        validate_push(&request)?;
        self.change(move |tx| tx.at(request.now).push(&request.jobs)).await
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        self.change(move |tx| tx.at(request.now).claim(&request)).await
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        self.change(move |tx| tx.at(request.now).settle(&request.turns)).await
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        self.change(move |tx| tx.at(request.now).heartbeat(&request)).await
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        self.change(move |tx| tx.at(request.now).rescue(&request)).await
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        self.change(move |tx| tx.at(request.now).release(&request)).await
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        self.change(move |tx| tx.at(None).give_up(&request)).await
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.change(move |tx| tx.at(request.now).sweep(request.rows_max)).await
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.change(move |tx| {
            tx.at(request.now);
            request.jobs.iter().map(|job| tx.cancel(*job)).collect()
        })
        .await
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        self.change(move |tx| tx.at(request.now).requeue(&request)).await
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.change(move |tx| tx.at(request.now).delete_dead(&request)).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        self.change(move |tx| tx.at(request.now).act(&request)).await
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.change(move |tx| tx.at(request.now).amend(&request)).await
    }

    async fn pause_queue(&self, queue: &str, paused: bool) -> Result<()> {
        let name = queue.to_owned();
        self.change(move |tx| tx.at(None).pause_queue(&name, paused)).await
    }

    async fn delete_queue(&self, request: DeleteQueue) -> Result<Acted> {
        self.change(move |tx| tx.at(None).delete_queue(&request)).await
    }

    async fn command_node(&self, node: &NodeId, command: Command) -> Result<()> {
        let node = node.clone();
        self.change(move |tx| tx.at(None).command_node(&node, command)).await
    }

    async fn declare_dead(&self, request: DeclareDead) -> Result<bool> {
        self.change(move |tx| tx.at(request.now).declare_dead(&request)).await
    }

    async fn lead(&self, request: Lead) -> Result<bool> {
        self.change(move |tx| tx.at(request.now).lead(&request)).await
    }

    async fn due(&self, request: DueQuery) -> Result<Vec<SourceDue>> {
        self.look(move |tx| tx.at(request.now).due(&request.queues)).await
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        self.look(|tx| tx.at(None).queue_views()).await
    }

    async fn stats(&self, now: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.look(move |tx| tx.at(now).stats()).await
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        self.look(move |tx| tx.at(None).lane_page(&query)).await
    }

    async fn jobs(&self, query: JobQuery) -> Result<Page<JobView>> {
        self.look(move |tx| tx.at(None).job_page(&query)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        self.look(move |tx| tx.at(None).job_view(id)).await
    }

    async fn turn(&self, lane: LaneId, token: Token) -> Result<Option<Turn>> {
        let held = self.look(move |tx| tx.at(None).held_turn(lane.number as i64, true)).await?;
        Ok(held.filter(|turn| turn.lane == lane && turn.token == token))
    }

    async fn nodes(&self) -> Result<Vec<NodeView>> {
        self.look(|tx| tx.at(None).node_views()).await
    }

    fn wakeups(&self) -> Wakeups {
        let wakeups = self.bell.listen();
        self.write.watch();
        wakeups
    }

    /// Its threads are its own already.
    fn heartbeat_line(&self) -> Option<Opening> {
        let store = Arc::new(self.clone());
        Some(Box::pin(async move { Ok(store as SharedStore) }))
    }

    async fn close(&self) -> Result<()> {
        let reader = {
            let mut reader = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *reader, Reader::Closed)
        };
        if let Reader::Runs(worker) = reader {
            worker.stop().await;
        }
        self.write.stop().await;
        Ok(())
    }
}
