//! A few connections, opened as needed and kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, Config, Row};

use super::error;
use super::options::Options;
pub(super) use super::params::Params;
use super::params::typed;
use super::tls::Tls;
use crate::model::error::{Error, ErrorKind, Result};

/// How often a call is repeated that the server undid because of others.
const TRIES_MAX: usize = 5;

/// How long it is tried to end a statement on the server that nobody waits for any more.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// The connections of a store. None of them has a state of its own: what a call needs of its session
/// is bound to the functions that it calls, so that a pooler may stand between us and the server.
pub(super) struct Pool {
    config: Config,
    tls: Tls,
    /// The schema; it replaces the usual one in every statement.
    pub schema: String,
    call_timeout: Duration,
    /// Statements for this schema.
    texts: Mutex<HashMap<&'static str, Arc<str>>>,
    places: Semaphore,
    idle: Mutex<Vec<Client>>,
    closed: AtomicBool,
    /// Calls that the server undid because of others, and that were made again.
    pub repeated: AtomicU64,
}

/// A connection on loan. It goes back when this is dropped, unless a call on it was given up: nobody
/// should have to wait behind that.
pub(super) struct Loan<'a> {
    pool: &'a Pool,
    client: Option<Client>,
    busy: bool,
    _place: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        Self {
            config: options.config,
            tls: options.tls,
            schema: options.schema,
            call_timeout: options.call_timeout,
            texts: Mutex::default(),
            places: Semaphore::new(options.connections),
            idle: Mutex::default(),
            closed: AtomicBool::new(false),
            repeated: AtomicU64::new(0),
        }
    }

    /// The same with one connection, which nobody else uses.
    pub(super) fn alone(&self) -> Self {
        Self {
            config: self.config.clone(),
            tls: self.tls.clone(),
            schema: self.schema.clone(),
            call_timeout: self.call_timeout,
            texts: Mutex::default(),
            places: Semaphore::new(1),
            idle: Mutex::default(),
            closed: AtomicBool::new(false),
            repeated: AtomicU64::new(0),
        }
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
        let call = self.try_query(sql, params, meaning);
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(result) => result,
            Err(_) => {
                let limit = crate::model::duration::format(self.call_timeout);
                let message = format!(
                    "PostgreSQL has not answered within {limit}: it is overloaded, or somebody holds a \
                     lock that this call needs (call_timeout in the URL)"
                );
                Err(Error::new(ErrorKind::Unavailable, message))
            }
        }
    }

    async fn try_query(
        &self,
        sql: &'static str,
        params: Params<'_>,
        meaning: impl FnOnce(tokio_postgres::Error) -> Error,
    ) -> Result<Vec<Row>> {
        let text = self.text(sql);
        let mut loan = self.lend().await?;
        for _ in 1..TRIES_MAX {
            match loan.query(&text, params).await {
                Err(e) if error::is_retriable(&e) => {
                    tracing::warn!(error = %error::cause(&e), "PostgreSQL undid a call, which is made again");
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                }
                result => return result.map_err(meaning),
            }
        }
        loan.query(&text, params).await.map_err(meaning)
    }

    /// A statement for this schema.
    pub(super) fn text(&self, sql: &'static str) -> Arc<str> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.entry(sql).or_insert_with(|| in_schema(sql, &self.schema).into()).clone()
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
        let idle = std::iter::from_fn(|| self.idle().pop()).find(|client| !client.is_closed());
        let client = match idle {
            Some(client) => client,
            None => self.connect().await?,
        };
        Ok(Loan { pool: self, client: Some(client), busy: false, _place: place })
    }

    /// A new session; its driver runs until the client is dropped.
    pub(super) async fn connect(&self) -> Result<Client> {
        let tls = self.tls.clone();
        let (client, driver) = self.config.connect(tls).await.map_err(error::of_driver)?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        let look = in_schema(
            "SELECT to_regprocedure('seriatim.reseed()') IS NOT NULL, \
             current_setting('default_transaction_isolation') = 'read committed'",
            &self.schema,
        );
        let rows = client.query_typed(&look, &[]).await.map_err(error::of_driver)?;
        let (is_set_up, isolated) = rows.first().map_or((false, true), |r| (r.get(0), r.get(1)));
        if !isolated {
            // Our functions rely on each of their statements seeing what was committed before it.
            let usual = "SET default_transaction_isolation = 'read committed'";
            client.batch_execute(usual).await.map_err(error::of_driver)?;
        }
        // Each new session may be one with another server, after a failover.
        if is_set_up {
            let reseed = in_schema("SELECT seriatim.reseed()", &self.schema);
            match client.query_typed(&reseed, &[]).await.map_err(error::of_driver) {
                // Who may only read draws no tokens.
                Err(e) if e.kind() != ErrorKind::ReadOnly => return Err(e),
                _ => {}
            }
        }
        Ok(client)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.places.close();
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan<'_> {
    /// The session itself, for what is more than one statement.
    pub(super) fn client(&mut self) -> Option<&mut Client> {
        self.client.as_mut()
    }

    async fn query(
        &mut self,
        text: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(client) = self.client.as_ref() else {
            return Ok(Vec::new());
        };
        self.busy = true;
        let answer = client.query_typed(text, &typed(params)).await;
        self.busy = false;
        answer
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.as_ref().filter(|_| self.busy) {
            end_on_server(client, &self.pool.tls);
        }
        let client = self.client.take().filter(|client| !client.is_closed() && !self.busy);
        if !self.pool.closed.load(Ordering::Relaxed) {
            self.pool.idle().extend(client);
        }
    }
}

/// Ends the statement that nobody waits for any more. Where that fails it ends by itself.
fn end_on_server(client: &Client, tls: &Tls) {
    let (token, tls) = (client.cancel_token(), tls.clone());
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            let _ = tokio::time::timeout(CANCEL_MAX, token.cancel_query(tls)).await;
        });
    }
}

/// A text of SQL for this schema instead of the usual one.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace("seriatim.", &format!("{schema}."))
}
