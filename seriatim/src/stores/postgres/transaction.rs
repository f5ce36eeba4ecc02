//! Pushes and settles in the user's transaction.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::convert::column;
use super::params::typed;
use super::push::PushBatch;
use super::settle::SettleBatch;
use super::summons::Summons;
use super::{Postgres, error, push, settle};
use crate::contract::{Push, Pushed, Settle, Settled, Store, Transaction};
use crate::model::{Error, ErrorKind, Result};

/// The number of the user's transaction.
const NUMBER: &str = "SELECT txid_current()";

#[async_trait]
impl Transaction for tokio_postgres::Transaction<'_> {
    async fn push(&mut self, store: &dyn Store, request: Push) -> Result<Vec<Pushed>> {
        let store = ours(store)?;
        crate::contract::validate_push(&request)?;
        if request.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let batch = PushBatch::new(request.now, &request.jobs)?;
        store.make_room_surely(&batch, &request.jobs).await?;
        let text = store.pool.text(push::statement_of(&request.jobs));
        let params = batch.params();
        let params = typed(&params);
        let (rows, number) =
            tokio::join!(self.query_typed(&text, &params), self.query_typed(NUMBER, &[]));
        let rows = rows.map_err(|e| push::push_error(e, &request.jobs))?;
        follow(store, number, &Summons::of_jobs(&request.jobs))?;
        push::all_pushed(&rows)
    }

    async fn settle(&mut self, store: &dyn Store, request: Settle) -> Result<Vec<Settled>> {
        let store = ours(store)?;
        request.validate()?;
        if request.turns.is_empty() {
            return Ok(Vec::new());
        }
        let batch = SettleBatch::new(&request);
        let text = store.pool.text(settle::SETTLE);
        let params = batch.params();
        let params = typed(&params);
        let (rows, number) =
            tokio::join!(self.query_typed(&text, &params), self.query_typed(NUMBER, &[]));
        let answer = settle::answer(&rows.map_err(error::common)?, &request.turns)?;
        follow(store, number, &store.settled(&answer, &request.turns))?;
        Ok(answer.settled)
    }

    async fn commit(self, store: &dyn Store) -> Result<()> {
        self.commit().await.map_err(error::of_driver)?;
        let store = ours(store)?;
        // Those of other processes when the transaction is seen to have ended.
        store.bell.ring(&store.wake.followed());
        Ok(())
    }

    async fn rollback(self) -> Result<()> {
        self.rollback().await.map_err(error::of_driver)
    }
}

/// Wakes nodes when this transaction commits. Not by NOTIFY: it would make commits of the whole server wait for each other.
fn follow(
    store: &Postgres,
    number: std::result::Result<Vec<Row>, tokio_postgres::Error>,
    summons: &Summons,
) -> Result<()> {
    if let Some(row) = number.map_err(error::of_driver)?.first() {
        store.wake.follow(column(row, 0)?, summons);
    }
    Ok(())
}

/// The engine's or client's store, if it is in PostgreSQL.
fn ours(store: &dyn Store) -> Result<&Postgres> {
    store.native().and_then(|store| store.downcast_ref()).ok_or_else(|| {
        let message = format!(
            "a PostgreSQL transaction needs a store in PostgreSQL, and this one is {:?}",
            store.capabilities().name
        );
        Error::new(ErrorKind::Unsupported, message)
    })
}
