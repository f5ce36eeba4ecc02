//! Batches of jobs.

use seriatim::store::{BatchQuery, Store};
use seriatim::{Error, ErrorKind, Result};

use crate::protocol::document::{Batch, Batches};

/// A batch, or that there is none.
pub(crate) async fn one(store: &dyn Store, id: &str) -> Result<Batch> {
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no batch {id:?}"));
    store.batch(id.into()).await?.map(Batch::from).ok_or_else(missing)
}

/// A page of the batches, those opened last first. `is_live`: only of those that have not ended.
pub(crate) async fn page(
    store: &dyn Store,
    is_live: bool,
    after: Option<String>,
    rows_max: usize,
) -> Result<Batches> {
    Ok(store.batches(BatchQuery { is_live, after, rows_max }).await?.into())
}
