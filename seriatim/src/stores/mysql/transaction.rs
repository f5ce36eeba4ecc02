//! Pushes and settles in the user's transaction.

use std::sync::Arc;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;

use super::definitions::Known;
use super::error::{Fail, Try};
use super::gates::Lock;
use super::pool::{Session, Statements};
use super::sql::{CLOCK, Columns, corrupt};
use super::transact::TRIES_MAX;
use super::work::Work;
use super::{Inner, Mysql, error, push, settle};
use crate::contract::batches::refuse_batches;
use crate::contract::{Push, Pushed, Settle, Settled, Store, Transaction, validate_push};
use crate::model::{Error, ErrorKind, Job, Result, Timestamp};
use crate::stores::state::QueueRow;

/// Undoes an operation, but not the user's earlier statements. The savepoint stays; the next operation sets it again.
const BACK: &str = "ROLLBACK TO SAVEPOINT seriatim";

impl Inner {
    /// Creates missing queues and routes of these jobs and returns all definitions. The user's transaction must not
    /// create them: it would block the store until it ends.
    async fn define(&self, jobs: &[Job]) -> Result<Arc<Known>> {
        transact!(self, Lock::FREE, None, work => push::define(work, jobs))
    }

    /// Whether the queues of these jobs still have the same modes, read while they are not being changed.
    async fn is_current(&self, known: &Known, jobs: &[Job]) -> Result<bool> {
        let shape = |row: &QueueRow| (row.number, row.queue.mode, row.queue.merge, row.closing);
        let lock = Lock::queues_of(jobs);
        let wanted = lock.gates(&known.queues);
        let now = transact!(self, lock.clone(), None, work => async { Ok(work.known.clone()) })?;
        let of = |known: &Known, number| known.queues.get(number).map(shape);
        Ok(wanted.iter().all(|number| of(known, number) == of(&now, number)))
    }
}

#[async_trait]
impl Transaction for mysql_async::Transaction<'_> {
    async fn push(&mut self, store: &dyn Store, request: Push) -> Result<Vec<Pushed>> {
        let store = ours(store)?;
        validate_push(&request)?;
        refuse_batches(&request.jobs)?;
        if request.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut whole = false;
        for _ in 0..TRIES_MAX {
            let known = store.inner.define(&request.jobs).await?;
            let mut work = begin(&store.inner, self, request.now, known.clone()).await?;
            // An operation within a transaction is not repeated: wait for a lane that another session creates.
            (work.reserves, work.whole) = (true, whole);
            let pushed = push::push(&mut work, &request.jobs).await;
            let pushed = match end(work, pushed).await {
                Err(Fail::Partial) if !whole => {
                    whole = true;
                    continue;
                }
                pushed => pushed?,
            };
            // A later change of the queue's mode finds these jobs and waits for them.
            let is_current = store.inner.is_current(&known, &request.jobs).await;
            if matches!(is_current, Ok(true)) {
                return Ok(pushed);
            }
            self.query_drop(BACK).await.map_err(error::of_driver)?;
            is_current?;
        }
        let message = "the definitions of queues keep changing: push again";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    async fn settle(&mut self, store: &dyn Store, request: Settle) -> Result<Vec<Settled>> {
        let store = ours(store)?;
        request.validate()?;
        if request.turns.is_empty() {
            return Ok(Vec::new());
        }
        // A queue with a claimed lane keeps its mode.
        let known = store.inner.define(&[]).await?;
        let request = Settle { go_on: Vec::new(), ..request };
        let mut work = begin(&store.inner, self, request.now, known.clone()).await?;
        let settled = settle::settle(&mut work, &request, &[], 0).await;
        let settled = match end(work, settled).await {
            Err(Fail::Partial) => {
                let mut work = begin(&store.inner, self, request.now, known).await?;
                work.whole = true;
                let settled = settle::settle(&mut work, &request, &[], 0).await;
                end(work, settled).await
            }
            settled => settled,
        };
        Ok(settled?.0)
    }

    async fn commit(self, store: &dyn Store) -> Result<()> {
        self.commit().await.map_err(error::of_driver)?;
        // Its rows name the queues.
        ours(store)?.inner.news.notify_one();
        Ok(())
    }

    async fn rollback(self) -> Result<()> {
        self.rollback().await.map_err(error::of_driver)
    }
}

/// Begins an operation within a transaction. `end` ends the operation, not the transaction.
async fn begin<'a>(
    inner: &'a Inner,
    transaction: &'a mut (dyn Statements + 'a),
    now: Option<Timestamp>,
    known: Arc<Known>,
) -> Result<Work<'a>> {
    // The server ends a transaction at a deadlock, and later statements would commit immediately. Without an open
    // transaction, rolling back to the savepoint fails.
    let sql = format!(
        "SAVEPOINT seriatim; {BACK}; SELECT DATABASE(), @@auto_increment_increment, {CLOCK}"
    );
    let answers = transaction.run(&sql).await.map_err(no_transaction)?;
    let row = answers.into_iter().nth(2).and_then(|answer| answer.rows.into_iter().next());
    let mut row = Columns::of(row.ok_or_else(corrupt)?);
    check_session(inner, &mut row)?;
    let clock = Timestamp::from_micros(row.int()?);
    let session = Session::Users(transaction, &inner.pool);
    Ok(Work::within(session, now.unwrap_or(clock), known))
}

/// Ends the operation: all of it becomes part of the transaction, or nothing.
async fn end<T>(mut work: Work<'_>, done: Try<T>) -> Try<T> {
    let done = match done {
        // Sends pending statements.
        Ok(answer) => work.run("DO 0").await.map(|_| answer),
        Err(fail) => Err(fail),
    };
    if done.as_ref().is_err_and(Fail::leaves_connection) {
        // If that fails too, the transaction has ended, and the first failure says why.
        let _ = work.session.run(BACK).await;
    }
    done
}

fn no_transaction(fail: Fail) -> Fail {
    match fail {
        Fail::Server(mysql_async::Error::Server(e)) if e.code == 1305 => {
            let message =
                "this transaction has ended; the server ends one at a deadlock: begin another";
            Error::new(ErrorKind::Unavailable, message).into()
        }
        fail => fail,
    }
}

/// Refuses a session with another database, or without consecutive auto-increment numbers.
fn check_session(inner: &Inner, row: &mut Columns) -> Try<()> {
    let database = row.maybe_text()?;
    let ours = inner.pool.options.opts.db_name().unwrap_or_default();
    if database.as_deref().is_none_or(|name| !name.eq_ignore_ascii_case(ours)) {
        let message = format!("the transaction is in another database than the store, {ours:?}");
        return Err(Error::new(ErrorKind::Unsupported, message).into());
    }
    if row.int()? != 1 {
        let message = "the session has an auto_increment_increment other than 1: set it to 1";
        return Err(Error::new(ErrorKind::Unsupported, message).into());
    }
    Ok(())
}

/// The engine's or client's store, if it is in MySQL.
fn ours(store: &dyn Store) -> Result<&Mysql> {
    store.native().and_then(|store| store.downcast_ref()).ok_or_else(|| {
        let message = format!(
            "a MySQL transaction needs a store in MySQL, and this one is {:?}",
            store.capabilities().name
        );
        Error::new(ErrorKind::Unsupported, message)
    })
}
