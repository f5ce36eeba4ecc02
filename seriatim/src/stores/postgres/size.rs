//! How much room the store takes.

use super::Postgres;
use super::convert::column;
use crate::model::error::Result;

const SIZE: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class \
    WHERE relnamespace = rtrim('seriatim.', '.')::regnamespace AND relkind = 'r'";

/// Bytes of the store's tables with their indexes, and whatever in them is free.
pub async fn size(url: &str) -> Result<u64> {
    let store = Postgres::connect(url).await?;
    let bytes: i64 = column(&store.pool.query_one(SIZE, &[]).await?, "bytes")?;
    Ok(bytes as u64)
}
