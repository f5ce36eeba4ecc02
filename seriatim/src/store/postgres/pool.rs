//! A few connections, opened as needed and kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use super::error;
use crate::error::{Error, ErrorKind, Result};

/// Most connections of one store, besides the one that listens.
const CONNECTIONS_MAX: usize = 8;
/// How often a call is repeated that the server undid because of others.
const TRIES_MAX: usize = 5;

/// Every session: short statements on keys that are all indexed. What the planner knows of a queue
/// is old by the time it uses it, so it may not choose to read whole tables; and an isolation level
/// that a database's defaults might change would break the functions, which rely on each of their
/// statements seeing what was committed before it.
const SESSION: &str = "SET default_transaction_isolation = 'read committed'; SET jit = off; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
    SET search_path = pg_catalog; SET client_min_messages = warning; SET timezone = 'UTC'";

/// Parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The connections of a store.
pub(super) struct Pool {
    config: Config,
    /// The schema; it replaces the usual one in every statement.
    pub schema: String,
    places: Semaphore,
    idle: Mutex<Vec<Connection>>,
    closed: AtomicBool,
    /// Calls that the server undid because of others, and that were made again.
    pub repeated: AtomicU64,
}

/// One connection, and the statements that it has prepared.
pub(super) struct Connection {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

/// A connection on loan. It goes back when this is dropped; a call that is dropped before its
/// answer came leaves nothing behind, since the driver reads the answer to its end.
pub(super) struct Loan<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    _place: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(config: Config, schema: String) -> Self {
        let places = Semaphore::new(CONNECTIONS_MAX);
        let (idle, closed, repeated) =
            (Mutex::default(), AtomicBool::new(false), AtomicU64::new(0));
        Self { config, schema, places, idle, closed, repeated }
    }

    /// Runs a statement and returns its rows; repeats it when the server undid it because of others.
    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>> {
        self.query_or(sql, params, error::common).await
    }

    /// The same, with words of the caller's own for what can go wrong.
    pub(super) async fn query_or(
        &self,
        sql: &'static str,
        params: Params<'_>,
        meaning: impl FnOnce(tokio_postgres::Error) -> Error,
    ) -> Result<Vec<Row>> {
        let mut loan = self.lend().await?;
        for _ in 1..TRIES_MAX {
            match loan.query(&self.schema, sql, params).await {
                Err(e) if error::is_retriable(&e) => {
                    tracing::warn!(error = %e, "PostgreSQL undid a call, which is made again");
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                }
                result => return result.map_err(meaning),
            }
        }
        loan.query(&self.schema, sql, params).await.map_err(meaning)
    }

    /// The one row of a statement that always has one.
    pub(super) async fn query_one(&self, sql: &'static str, params: Params<'_>) -> Result<Row> {
        let missing = || Error::new(ErrorKind::Internal, "PostgreSQL answers without a row");
        self.query(sql, params).await?.into_iter().next().ok_or_else(missing)
    }

    /// A connection, as soon as one is free.
    pub(super) async fn lend(&self) -> Result<Loan<'_>> {
        let closed = |_| Error::new(ErrorKind::Unavailable, "the store has been closed");
        let place = self.places.acquire().await.map_err(closed)?;
        let idle = std::iter::from_fn(|| self.idle().pop()).find(|c| !c.client.is_closed());
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(Loan { pool: self, connection: Some(connection), _place: place })
    }

    /// A new session; its driver runs until the client is dropped.
    async fn connect(&self) -> Result<Connection> {
        let (client, driver) = self.config.connect(NoTls).await.map_err(error::of_driver)?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        client.batch_execute(SESSION).await.map_err(error::of_driver)?;
        // Each new session may be one with another server, after a failover.
        let exists =
            in_schema("SELECT to_regprocedure('seriatim.reseed()') IS NOT NULL", &self.schema);
        let row = client.query_one(&exists, &[]).await.map_err(error::of_driver)?;
        if row.get(0) {
            let reseed = in_schema("SELECT seriatim.reseed()", &self.schema);
            match client.execute(&reseed, &[]).await.map_err(error::of_driver) {
                // Who may only read draws no tokens.
                Err(e) if e.kind() != ErrorKind::ReadOnly => return Err(e),
                _ => {}
            }
        }
        Ok(Connection { client, statements: HashMap::new() })
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.places.close();
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan<'_> {
    /// The session itself, for what is more than one statement.
    pub(super) fn client(&mut self) -> Option<&mut Client> {
        self.connection.as_mut().map(|connection| &mut connection.client)
    }

    async fn query(
        &mut self,
        schema: &str,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(connection) = self.connection.as_mut() else {
            return Ok(Vec::new());
        };
        let statement = match connection.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = connection.client.prepare(&in_schema(sql, schema)).await?;
                connection.statements.insert(sql, statement.clone());
                statement
            }
        };
        connection.client.query(&statement, params).await
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let connection = self.connection.take().filter(|c| !c.client.is_closed());
        if !self.pool.closed.load(Ordering::Relaxed) {
            self.pool.idle().extend(connection);
        }
    }
}

/// A text of SQL for this schema instead of the usual one.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace("seriatim.", &format!("{schema}."))
}
