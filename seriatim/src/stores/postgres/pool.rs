//! A small pool of connections, opened on demand.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio_postgres::{Client, Row};

use super::error;
use super::options::Options;
pub(super) use super::params::Params;
use super::params::typed;
use super::servers::{Servers, Session};
use super::tls::Tls;
use crate::lock::lock;
use crate::model::{Error, ErrorKind, Result};
use crate::stores::idle::Idle;
use crate::stores::url::for_pushes;

/// Most attempts at a call that the server rolls back because of concurrent calls.
const TRIES_MAX: usize = 5;

/// Pause of a call that has given way.
const GIVEN_WAY: Duration = Duration::from_millis(500);

/// Limit for cancelling an abandoned statement on the server.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// The connections of a store. Sessions have no state: settings that a call needs are bound to the database functions
/// that it calls, so a pooler may be between client and server.
pub(super) struct Pool {
    servers: Arc<Servers>,
    /// The schema; it replaces the default one in every statement.
    pub schema: String,
    call_timeout: Duration,
    /// Statements, rewritten for this schema.
    texts: Mutex<HashMap<&'static str, Arc<str>>>,
    places: Semaphore,
    /// Of them, those that pushes may take: see [`for_pushes`].
    pushes: Semaphore,
    idle: Idle<Session>,
    closed: AtomicBool,
    /// Calls repeated because the server rolled them back.
    pub repeated: AtomicU64,
}

/// A connection on loan. It returns to the pool on drop, unless a call on it was abandoned: the next call would have
/// to wait for that.
pub(super) struct Loan<'a> {
    pool: &'a Pool,
    session: Option<Session>,
    busy: bool,
    _place: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        Self {
            servers: options.servers,
            schema: options.schema,
            call_timeout: options.call_timeout,
            texts: Mutex::default(),
            places: Semaphore::new(options.connections),
            pushes: Semaphore::new(for_pushes(options.connections)),
            idle: Idle::default(),
            closed: AtomicBool::new(false),
            repeated: AtomicU64::new(0),
        }
    }

    /// A pool with the same settings and one connection, for a single caller.
    pub(super) fn alone(&self) -> Self {
        Self {
            servers: self.servers.clone(),
            schema: self.schema.clone(),
            call_timeout: self.call_timeout,
            texts: Mutex::default(),
            places: Semaphore::new(1),
            pushes: Semaphore::new(1),
            idle: Idle::default(),
            closed: AtomicBool::new(false),
            repeated: AtomicU64::new(0),
        }
    }

    /// The same pool for calls that may take so long.
    pub(super) fn within(self, limit: Duration) -> Self {
        Self { call_timeout: limit, ..self }
    }

    /// Runs a statement and returns its rows. Repeats it if the server rolled it back because of concurrent calls.
    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>> {
        self.query_or(sql, params, error::common).await
    }

    /// Like [`Self::query`], with the caller's mapping of errors.
    pub(super) async fn query_or(
        &self,
        sql: &'static str,
        params: Params<'_>,
        meaning: impl FnOnce(tokio_postgres::Error) -> Error,
    ) -> Result<Vec<Row>> {
        self.in_time(self.try_query(sql, params, meaning)).await
    }

    /// Like [`Self::query_or`], for a push.
    pub(super) async fn push(
        &self,
        sql: &'static str,
        params: Params<'_>,
        meaning: impl FnOnce(tokio_postgres::Error) -> Error,
    ) -> Result<Vec<Row>> {
        let push = async {
            let _place = self.pushes.acquire().await.map_err(closed)?;
            self.try_query(sql, params, meaning).await
        };
        self.in_time(push).await
    }

    /// Like [`Self::query_or`], for a call that gives way to users' transactions instead of waiting in line, where it would keep
    /// others waiting. It is repeated until `call_timeout` is over.
    pub(super) async fn query_giving_way(
        &self,
        sql: &'static str,
        params: Params<'_>,
        meaning: impl Fn(tokio_postgres::Error) -> Error,
    ) -> Result<Vec<Row>> {
        let end = Instant::now() + self.call_timeout;
        loop {
            let mut gave_way = false;
            let refused = |e: tokio_postgres::Error| {
                gave_way = error::has_given_way(&e);
                meaning(e)
            };
            let answer = self.query_or(sql, params, refused).await;
            if !gave_way || Instant::now() + GIVEN_WAY >= end {
                return answer;
            }
            tokio::time::sleep(GIVEN_WAY).await;
        }
    }

    /// A call within `call_timeout`.
    pub(super) async fn in_time<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(result) => result,
            Err(_) => {
                let limit = crate::model::duration::format(self.call_timeout);
                let message = format!(
                    "PostgreSQL has not answered within {limit}: it is overloaded, or another session holds a \
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
                    tracing::warn!(error = %error::cause(&e), "PostgreSQL rolled back a call; it is repeated");
                    self.repeated.fetch_add(1, Ordering::Relaxed);
                }
                result => return result.map_err(meaning),
            }
        }
        loan.query(&text, params).await.map_err(meaning)
    }

    /// The statement, rewritten for this schema.
    pub(super) fn text(&self, sql: &'static str) -> Arc<str> {
        let mut texts = lock(&self.texts);
        texts.entry(sql).or_insert_with(|| in_schema(sql, &self.schema).into()).clone()
    }

    /// The only row of a statement that always returns one.
    pub(super) async fn query_one(&self, sql: &'static str, params: Params<'_>) -> Result<Row> {
        let missing = || Error::new(ErrorKind::Internal, "PostgreSQL returned no row");
        self.query(sql, params).await?.into_iter().next().ok_or_else(missing)
    }

    /// Waits for a free connection.
    pub(super) async fn lend(&self) -> Result<Loan<'_>> {
        let place = self.places.acquire().await.map_err(closed)?;
        let is_usable =
            |session: &Session| !session.client.is_closed() && self.servers.is_current(session);
        let idle = std::iter::from_fn(|| self.idle.take()).find(is_usable);
        let session = match idle {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(Loan { pool: self, session: Some(session), busy: false, _place: place })
    }

    pub(super) async fn connect(&self) -> Result<Session> {
        self.servers.open(None).await
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.places.close();
        self.pushes.close();
        self.idle.clear();
    }
}

impl Loan<'_> {
    /// The session, for a transaction of several statements. Until [`Self::ended`] is called, it counts as abandoned, because
    /// the caller may stop waiting at any statement.
    pub(super) fn client(&mut self) -> Option<&mut Client> {
        self.busy = true;
        self.session.as_mut().map(|session| &mut session.client)
    }

    /// The server has answered the COMMIT or ROLLBACK.
    pub(super) fn ended(&mut self) {
        self.busy = false;
    }

    async fn query(
        &mut self,
        text: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(session) = self.session.as_ref() else {
            return Ok(Vec::new());
        };
        self.busy = true;
        let answer = session.client.query_typed(text, &typed(params)).await;
        self.busy = false;
        answer
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.as_ref().filter(|_| self.busy) {
            end_on_server(&session.client, self.pool.servers.tls());
        }
        let session = self.session.take();
        let session = session.filter(|session| !session.client.is_closed() && !self.busy);
        if let Some(session) = session.filter(|_| !self.pool.closed.load(Ordering::Relaxed)) {
            self.pool.idle.put(session);
        }
    }
}

fn closed(_: AcquireError) -> Error {
    Error::new(ErrorKind::Unavailable, "the store has been closed")
}

/// Cancels an abandoned statement. If that fails, the statement ends by itself.
fn end_on_server(client: &Client, tls: &Tls) {
    let (token, tls) = (client.cancel_token(), tls.clone());
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            let _ = tokio::time::timeout(CANCEL_MAX, token.cancel_query(tls)).await;
        });
    }
}

/// Replaces the default schema in an SQL text.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace("seriatim.", &format!("{schema}."))
}
