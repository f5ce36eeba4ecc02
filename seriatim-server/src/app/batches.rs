//! Batches of jobs.

use seriatim::store::Store;
use seriatim::{Error, ErrorKind, Result};

use crate::protocol::document::Batch;

/// A batch, or that there is none.
pub(crate) async fn one(store: &dyn Store, id: &str) -> Result<Batch> {
    let missing = || Error::new(ErrorKind::NotFound, format!("there is no batch {id:?}"));
    store.batch(id.into()).await?.map(Batch::from).ok_or_else(missing)
}
