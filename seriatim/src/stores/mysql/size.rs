//! How much room the store takes.

use super::error::Try;
use super::options::Options;
use super::pool::{Loan, Pool};
use super::sql::Columns;
use crate::model::error::Result;

const SIZE: &str = "SELECT CAST(COALESCE(SUM(data_length + index_length + data_free), 0) AS SIGNED) \
    FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'seriatim\\_%'";

/// Bytes of the store's tables with their indexes, and whatever in them is free, as the server estimates
/// them.
pub async fn size(url: &str) -> Result<u64> {
    let pool = Pool::new(Options::parse(url)?);
    let mut loan = pool.lend().await?;
    Ok(read(&mut loan).await?)
}

async fn read(loan: &mut Loan<'_>) -> Try<u64> {
    let row =
        loan.run(SIZE).await?.into_iter().next().and_then(|answer| answer.rows.into_iter().next());
    row.map_or(Ok(0), |row| Ok(Columns::of(row).int()? as u64))
}
