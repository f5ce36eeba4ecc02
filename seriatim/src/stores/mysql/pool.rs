//! A small pool of connections, opened on demand.

#[cfg(test)]
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error as Driver, Row, Value};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};

use super::error::{Fail, Try};
use super::options::Options;
#[cfg(test)]
use crate::lock::lock;
use crate::model::{Error, ErrorKind, Result};
use crate::stores::idle::Idle;
use crate::stores::url::for_pushes;

/// How many seconds a statement waits for a locked row.
pub(super) const LOCK_WAIT_SECONDS: u32 = 10;
/// How many seconds the server waits for the next statement of a transaction. A process that hangs in a transaction
/// would otherwise keep its locks, and its claims could not be rescued.
const IDLE_IN_TRANSACTION_SECONDS: u32 = 5;

/// A connection keeps buffers as large as its longest statement or row. One with longer ones than this is not used again.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// The connections of a store.
pub(super) struct Pool {
    pub options: Options,
    /// Whether the server was found to support no encryption, with a URL that leaves the choice to it.
    is_plain: AtomicBool,
    places: Semaphore,
    /// Of them, those that pushes may take: see [`for_pushes`].
    pushes: Semaphore,
    idle: Idle<Conn>,
    closed: AtomicBool,
    /// Calls repeated because the server rolled them back.
    pub repeated: AtomicU64,
    /// A number of this store in this process; other ones have others.
    pub process: u64,
    /// Calls since figures were last folded.
    pub calls: AtomicU64,
    /// The text of each round trip.
    #[cfg(test)]
    pub statements: Mutex<Vec<String>>,
}

/// A connection on loan. Only [`Loan::give_back`] returns it: if it is dropped within a transaction, it is closed and
/// the server rolls back.
pub(super) struct Loan<'a> {
    pool: &'a Pool,
    conn: Conn,
    /// The bytes of its longest statement or row.
    longest: usize,
    _place: SemaphorePermit<'a>,
}

/// The target of an operation's statements.
pub(super) enum Session<'a> {
    /// A connection of the store, in the operation's own transaction.
    Ours(Loan<'a>),
    /// The user's transaction; the pool is for what is read beside it.
    Users(&'a mut (dyn Statements + 'a), &'a Pool),
}

/// Runs statements.
#[async_trait]
pub(super) trait Statements: Send {
    /// Runs statements in order, in one round trip. The first failure ends it.
    async fn run(&mut self, sql: &str) -> Try<Vec<Answer>>;
}

/// Detects whether other servers accept writes too.
const CLUSTER: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode')";

/// The answer to one statement.
#[derive(Debug)]
pub(super) struct Answer {
    pub rows: Vec<Row>,
    /// The first auto-increment number of the statement.
    pub first_id: u64,
    /// The number of rows written or deleted.
    pub affected: u64,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        Self {
            places: Semaphore::new(options.connections),
            pushes: Semaphore::new(for_pushes(options.connections)),
            options,
            is_plain: AtomicBool::new(false),
            idle: Idle::default(),
            closed: AtomicBool::new(false),
            repeated: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            process: fastrand::u64(1..1 << 62),
            #[cfg(test)]
            statements: Mutex::default(),
        }
    }

    /// Waits for a free connection.
    pub(super) async fn lend(&self) -> Try<Loan<'_>> {
        let place = self.places.acquire().await.map_err(closed)?;
        let conn = match self.idle.take() {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        Ok(Loan { pool: self, conn, longest: 0, _place: place })
    }

    /// Carries out a push, which takes one of the connections for those.
    pub(super) async fn push<T>(&self, push: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.options.call_timeout;
        let push = async {
            let _place = self.pushes.acquire().await.map_err(closed)?;
            push.await
        };
        tokio::time::timeout(limit, push).await.unwrap_or_else(|_| Err(timed_out(limit)))
    }

    /// A connection, and the results of the first statements on it. If the server has closed the idle
    /// connection, opens a new one. If one of the statements fails, `undo` follows: a connection that is only dropped
    /// may keep its locks for a while.
    pub(super) async fn first(&self, sql: &str, undo: &str) -> Try<(Loan<'_>, Vec<Answer>)> {
        let mut loan = self.lend().await?;
        let mut answers = loan.run(sql).await;
        if answers.as_ref().is_err_and(|fail| !fail.leaves_connection()) {
            self.idle.clear();
            loan.conn = self.connect().await?;
            answers = loan.run(sql).await;
        }
        match answers {
            Ok(answers) => Ok((loan, answers)),
            Err(fail) => Err(loan.undo_after(fail, undo).await),
        }
    }

    /// The answers to statements outside of any transaction, within `call_timeout`.
    pub(super) async fn ask(&self, sql: &str) -> Result<Vec<Answer>> {
        let limit = self.options.call_timeout;
        let asked = tokio::time::timeout(limit, self.first(sql, "DO 0")).await;
        let (loan, answers) = asked.map_err(|_| timed_out(limit))??;
        loan.give_back();
        Ok(answers)
    }

    /// Opens a connection, within `connect_timeout`.
    pub(super) async fn connect(&self) -> Try<Conn> {
        let limit = self.options.connect_timeout;
        let message = || format!("MySQL accepted no connection within {limit:?} (connect_timeout)");
        let timed_out = |_| Error::new(ErrorKind::Unavailable, message());
        tokio::time::timeout(limit, self.begin()).await.map_err(timed_out)?
    }

    /// Opens a connection, encrypted if possible or required.
    async fn dial(&self) -> Try<Conn> {
        let options = &self.options;
        let plain = options.plain.as_ref();
        if let Some(plain) = plain.filter(|_| self.is_plain.load(Ordering::Relaxed)) {
            return Ok(Conn::new(plain.clone()).await?);
        }
        match (Conn::new(options.opts.clone()).await, plain) {
            (Err(Driver::Driver(DriverError::NoClientSslFlagFromServer)), Some(plain)) => {
                self.is_plain.store(true, Ordering::Relaxed);
                Ok(Conn::new(plain.clone()).await?)
            }
            (conn, _) => Ok(conn?),
        }
    }

    async fn begin(&self) -> Try<Conn> {
        let mut conn = self.dial().await?;
        refuse_several_writers(&mut conn).await?;
        // Independent of the server's defaults: no gap locks, no silent truncation, consecutive numbers.
        let session = format!(
            "SET SESSION transaction_isolation = 'READ-COMMITTED', SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}, \
             SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES', \
             SESSION time_zone = '+00:00', SESSION autocommit = 1, SESSION auto_increment_increment = 1, \
             SESSION auto_increment_offset = 1, SESSION group_concat_max_len = 1048576"
        );
        // MariaDB before 11.1 has only the older name of the first variable.
        let older = session.replace("transaction_isolation", "tx_isolation");
        let names = "SET NAMES utf8mb4";
        conn.query_drop(names).await?;
        if conn.query_drop(session).await.is_err() {
            conn.query_drop(older).await?;
        }
        // MySQL has no such limit for transactions only: there idle connections end after this time too, and are
        // reopened on demand.
        let in_transaction =
            format!("SET SESSION idle_transaction_timeout = {IDLE_IN_TRANSACTION_SECONDS}");
        if conn.query_drop(in_transaction).await.is_err() {
            conn.query_drop(format!("SET SESSION wait_timeout = {IDLE_IN_TRANSACTION_SECONDS}"))
                .await?;
        }
        Ok(conn)
    }

    /// Connections that wait for the next call.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.places.close();
        self.pushes.close();
        self.idle.clear();
    }
}

fn closed(_: AcquireError) -> Error {
    Error::new(ErrorKind::Unavailable, "the store has been closed")
}

pub(super) fn timed_out(limit: Duration) -> Error {
    let message = format!("MySQL did not answer within {limit:?} (call_timeout)");
    Error::new(ErrorKind::Unavailable, message)
}

/// Refuses a server of a cluster in which several servers accept writes: a lock holds on one of them only, so two could
/// run a key at the same time.
async fn refuse_several_writers(conn: &mut Conn) -> Try<()> {
    let rows: Vec<(String, String)> = conn.query(CLUSTER).await?;
    let has = |name: &str, value: &str| {
        rows.iter().any(|(n, v)| n == name && v.eq_ignore_ascii_case(value))
    };
    let in_group = rows.iter().any(|(name, id)| name.ends_with("group_name") && !id.is_empty());
    let cluster = if has("wsrep_on", "ON") {
        "a Galera cluster (wsrep_on)"
    } else if in_group && has("group_replication_single_primary_mode", "OFF") {
        "a replication group with several primaries"
    } else {
        return Ok(());
    };
    let message = format!(
        "this server is a member of {cluster}, and locks hold on one member only: a key could run twice. \
         Use a server with one writer, also one with replicas"
    );
    Err(Error::new(ErrorKind::Unsupported, message).into())
}

/// The bytes of a row.
fn length(row: &Row) -> usize {
    let length = |value: &Value| if let Value::Bytes(bytes) = value { bytes.len() } else { 0 };
    (0..row.len()).filter_map(|column| row.as_ref(column)).map(length).sum()
}

impl Loan<'_> {
    /// Runs statements in order, in one round trip. The first failure ends it.
    pub(super) async fn run(&mut self, sql: &str) -> Try<Vec<Answer>> {
        #[cfg(test)]
        lock(&self.pool.statements).push(sql.to_owned());
        let answers = run(&mut self.conn, sql).await?;
        let rows = answers.iter().flat_map(|answer| &answer.rows).map(length);
        self.longest = rows.chain([self.longest, sql.len()]).max().unwrap_or_default();
        Ok(answers)
    }

    /// Runs one statement and returns its rows.
    pub(super) async fn rows(&mut self, sql: &str) -> Try<Vec<Row>> {
        let answers = self.run(sql).await?;
        Ok(answers.into_iter().next().map(|answer| answer.rows).unwrap_or_default())
    }

    /// After a failure that leaves the connection usable, runs `undo`, and returns the connection to the pool.
    pub(super) async fn undo_after(mut self, fail: Fail, undo: &str) -> Fail {
        if fail.leaves_connection() && self.run(undo).await.is_ok() {
            self.give_back();
        }
        fail
    }

    /// Returns the connection to the pool. No transaction may be open.
    pub(super) fn give_back(self) {
        if !self.pool.closed.load(Ordering::Relaxed) && self.longest <= KEPT_BYTES_MAX {
            self.pool.idle.put(self.conn);
        }
    }
}

impl Session<'_> {
    pub(super) async fn run(&mut self, sql: &str) -> Try<Vec<Answer>> {
        match self {
            Self::Ours(loan) => loan.run(sql).await,
            Self::Users(transaction, _) => transaction.run(sql).await,
        }
    }

    /// The number of the process that hears of its own writes when they are committed; 0: none does.
    pub(super) fn process(&self) -> u64 {
        match self {
            Self::Ours(loan) => loan.pool.process,
            Self::Users(..) => 0,
        }
    }

    /// Like [`Loan::undo_after`]. A user's transaction is the user's to undo.
    pub(super) async fn undo_after(self, fail: Fail, undo: &str) -> Fail {
        match self {
            Self::Ours(loan) => loan.undo_after(fail, undo).await,
            Self::Users(..) => fail,
        }
    }

    /// Returns the store's connection to the pool.
    pub(super) fn give_back(self) {
        if let Self::Ours(loan) = self {
            loan.give_back();
        }
    }
}

#[async_trait]
impl Statements for mysql_async::Transaction<'_> {
    async fn run(&mut self, sql: &str) -> Try<Vec<Answer>> {
        run(self, sql).await
    }
}

async fn run(session: &mut impl Queryable, sql: &str) -> Try<Vec<Answer>> {
    let mut result = session.query_iter(sql).await?;
    let mut answers = Vec::new();
    loop {
        let first_id = result.last_insert_id().unwrap_or_default();
        let affected = result.affected_rows();
        let rows = result.collect::<Row>().await?;
        answers.push(Answer { rows, first_id, affected });
        // A result without rows counts too, and the driver's `is_empty` does not wait for it.
        if result.columns().is_none() {
            // The driver reports the failure of a later statement only when asked again.
            result.drop_result().await?;
            return Ok(answers);
        }
    }
}
