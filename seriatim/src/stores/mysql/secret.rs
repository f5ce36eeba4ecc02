//! The secret that the servers of a store share.

use super::error::Try;
use super::sql::{Columns, bytes, corrupt};
use super::work::Work;
use crate::contract::Secret;

pub(super) async fn secret(work: &mut Work<'_>) -> Try<Option<Secret>> {
    let rows = work.rows("SELECT bytes FROM seriatim_secret").await?;
    let Some(row) = rows.into_iter().next() else { return Ok(None) };
    let bytes = Columns::of(row).bytes()?.and_then(|bytes| bytes.try_into().ok());
    bytes.map(|bytes| Some(Secret(bytes))).ok_or_else(corrupt)
}

/// Stores the secret unless there is one.
pub(super) async fn keep_secret(work: &mut Work<'_>, offered: Secret) -> Try<()> {
    let sql =
        format!("INSERT IGNORE INTO seriatim_secret (id, bytes) VALUES (1, {})", bytes(&offered.0));
    work.run(&sql).await.map(drop)
}
