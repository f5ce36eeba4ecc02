//! The embedded store: one `SQLite` file, shared by several processes if needed.
//!
//! One thread writes and commits waiting operations together (`thread.rs`); one reads. A lane with one job is one row
//! (`schema.sql`) and, when it is ready, a narrow one in `ready`. A claim deletes the latter and is stored once for all
//! its lanes (`light.rs`); settling the job deletes the former.

mod actions;
mod batches;
mod body;
mod claim;
mod done;
mod fault;
mod file;
mod flush;
mod going_on;
mod inbox;
mod job_pages;
mod lane;
mod lane_pages;
mod light;
mod line;
mod migrate;
mod nodes;
mod notes;
mod push;
mod queues;
mod rescue;
mod row;
mod sentry;
mod settle;
mod sharing;
mod sweep;
#[cfg(test)]
mod tests;
mod thread;
mod tx;
mod views;
mod watch;
mod window;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use fault::{BUSY_TIMEOUT, translate};
use file::FileCheck;
pub use flush::Durability;
use flush::{Boot, Flush, Flushing};
use line::Rank;
use thread::Worker;
use tx::Tx;

use crate::contract::*;
use crate::lock::lock;
use crate::model::{Error, ErrorKind, Result, Timestamp};

/// Prepared statements cached for each connection.
const STATEMENTS_MAX: usize = 128;
/// The log is checkpointed when it has grown by this number of pages of 4 KiB.
const CHECKPOINT_PAGES: u32 = 4_000;
/// A larger log is truncated to this size, in bytes.
const WAL_BYTES_KEPT: u32 = 64 << 20;
/// Page cache of the writing connection, in KiB.
const WRITE_CACHE_KIB: i64 = 16 << 10;
/// Page cache of the reading connection, in KiB.
const READ_CACHE_KIB: i64 = 4 << 10;
/// `SQLite`'s name for a database that ends with the process.
const IN_MEMORY: &str = ":memory:";

/// A store in an `SQLite` file.
#[derive(Clone, Debug)]
pub struct Sqlite {
    write: Worker,
    read: Arc<Mutex<Reader>>,
    bell: Bell,
    path: PathBuf,
    file: FileCheck,
}

/// The thread for listings, which most processes do not need.
#[derive(Debug)]
enum Reader {
    NotYet,
    Runs(Worker),
    /// The database has only one connection, the writer's.
    IsTheWriter,
    Closed,
}

impl Sqlite {
    /// Opens or creates the file; [`Store::migrate`] creates the schema. `":memory:"` is a database that ends with the
    /// process.
    ///
    /// Fails if the folder does not exist, if the file is not a database, or if it cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, Durability::Full)
    }

    /// Opens the file with the given durability. Default: [`Durability::Full`].
    pub fn open_with(path: impl AsRef<Path>, durability: Durability) -> Result<Self> {
        Self::open_in(path.as_ref(), Flushing::new(durability), Boot::of_this_machine())
    }

    fn open_in(path: &Path, flushing: Flushing, boot: Boot) -> Result<Self> {
        let path = path.to_owned();
        let in_memory = path.as_os_str() == IN_MEMORY;
        let connection = connect_writer(&path, in_memory)
            .map_err(|e| e.while_doing(&format!("opening {}", path.display())))?;
        let bell = Bell::default();
        let file = FileCheck::of(connection.path());
        let write = Worker::writer(connection, file.clone(), bell.clone(), flushing, boot)?;
        let read = if in_memory { Reader::IsTheWriter } else { Reader::NotYet };
        Ok(Self { write, read: Arc::new(Mutex::new(read)), bell, path, file })
    }

    /// A connection configured like the writer's, to measure the database without the store.
    #[doc(hidden)]
    pub fn session(path: &Path) -> Result<Connection> {
        connect_writer(path, false)
    }

    /// Checks that the file is a store that this build reads; neither creates nor changes it. `NotFound` if there is
    /// no file or it is empty.
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
        self.write.call(Rank::Usual, 0, Flush::Now, body).await
    }

    /// Like [`Self::change`], before all changes that wait.
    async fn change_first<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write.call(Rank::First, 0, Flush::Now, body).await
    }

    async fn look<T: Send + 'static>(
        &self,
        mut body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.reader()? {
            Some(reader) => reader.call(Rank::Usual, 0, Flush::Later, body).await,
            None => {
                let body = move |tx: &mut Tx<'_>| {
                    // Store the counters of the other operations in this transaction first.
                    tx.flush()?;
                    body(tx)
                };
                self.write.call(Rank::Usual, 0, Flush::Later, body).await
            }
        }
    }

    /// The reading thread, started on first use. `None` if the writer reads too.
    fn reader(&self) -> Result<Option<Worker>> {
        let mut reader = lock(&self.read);
        match &*reader {
            Reader::IsTheWriter => Ok(None),
            Reader::Runs(worker) => Ok(Some(worker.clone())),
            Reader::Closed => Err(Error::new(ErrorKind::Unavailable, "the store has been closed")),
            Reader::NotYet => {
                // Another file would be read when the first one is back in its place.
                self.file.check()?;
                let connection = connect_reader(&self.path)?;
                self.file.check()?;
                let worker = Worker::reader(connection, self.file.clone())?;
                *reader = Reader::Runs(worker.clone());
                Ok(Some(worker))
            }
        }
    }
}

/// A connection that flushes every commit.
fn connect_writer(path: &Path, in_memory: bool) -> Result<Connection> {
    check_folder(path)?;
    if !in_memory {
        make_private(path);
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE, WRITE_CACHE_KIB)
        .map_err(|error| if in_memory { error } else { for_good(path, error) })?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(translate)?;
    if mode != "wal" && !in_memory {
        let message = "this file system cannot share memory between processes (is it a network \
                       share?), which the database needs: name a file on a local disk";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let pragmas = format!(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
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
    // Plans must not depend on values: else SQLite recompiles statements when values change.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(translate)?;
    let pragmas = format!("PRAGMA cache_size = -{cache_kib}; PRAGMA temp_store = MEMORY;");
    connection.execute_batch(&pragmas).map_err(translate)?;
    Ok(connection)
}

/// Creates the file readable by its owner only. `SQLite` gives the files beside the database the same mode.
fn make_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // An existing file keeps its mode. If it cannot be created, `SQLite` reports a better error.
    let _ = options.open(path);
}

/// `SQLite` says the same of a file that may not be opened, which no waiting helps, as of one that cannot be now.
fn for_good(path: &Path, error: Error) -> Error {
    let opened =
        std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    match opened.map_err(|error| error.kind()) {
        Err(io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory) => {
            let message = "the database file may not be opened: check the permissions of the file and of its folder";
            Error::new(ErrorKind::ReadOnly, message).because(error)
        }
        _ => error,
    }
}

/// Names a missing folder; `SQLite` would only report that it cannot open the file.
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
        Capabilities {
            name: "sqlite",
            shared: true,
            claim_split: None,
            inbox: true,
            store_scope: true,
            batches: true,
            series: true,
            finished_by_time: true,
        }
    }

    async fn now(&self) -> Result<Timestamp> {
        self.file.check()?;
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

    fn wakeups(&self) -> Wakeups {
        let wakeups = self.bell.listen().certain();
        self.write.watch();
        wakeups
    }

    /// The store itself: it already runs on its own threads.
    fn heartbeat_line(&self) -> Option<Opening> {
        let store = Arc::new(self.clone());
        Some(Box::pin(async move { Ok(store as SharedStore) }))
    }

    async fn close(&self) -> Result<()> {
        let reader = {
            let mut reader = lock(&self.read);
            std::mem::replace(&mut *reader, Reader::Closed)
        };
        if let Reader::Runs(worker) = reader {
            worker.stop().await;
        }
        self.write.stop().await;
        Ok(())
    }
}
