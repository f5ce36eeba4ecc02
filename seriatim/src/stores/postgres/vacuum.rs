//! Keeping claims from passing by the entries of lanes that were claimed before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::convert::column;
use super::pool::Pool;
use crate::model::error::Result;

/// Lanes that this process claims between two rounds, at least. Each leaves an entry in the index of `ready`, which every
/// claim passes by until a vacuum. Autovacuum comes once a minute, after millions.
const LANES_MIN: u64 = 20_000;

/// A round reads the whole index, so a longer one waits for more claims: at most this many entries are read for each.
const ENTRIES_EACH: f64 = 10.0;

const VACUUM: &str = "VACUUM (SKIP_LOCKED, TRUNCATE off) seriatim.ready";
const READY: &str = "SELECT reltuples::float8 FROM pg_class WHERE oid = 'seriatim.ready'::regclass";

/// Counts claimed lanes until the next round.
#[derive(Clone, Default)]
pub(super) struct Claims(Arc<Counts>);

#[derive(Default)]
struct Counts {
    lanes: AtomicU64,
    most: AtomicU64,
}

impl Claims {
    /// Starts a round in the background if enough lanes were claimed.
    pub(super) fn add(&self, lanes: usize, pool: &Pool) {
        let all = self.0.lanes.fetch_add(lanes as u64, Ordering::Relaxed) + lanes as u64;
        if all < self.0.most.load(Ordering::Relaxed).max(LANES_MIN) {
            return;
        }
        // One that counts meanwhile finds few.
        if self.0.lanes.swap(0, Ordering::Relaxed) >= LANES_MIN {
            tokio::spawn(round(pool.alone(), self.clone()));
        }
    }
}

async fn round(pool: Pool, claims: Claims) {
    match vacuum(&pool).await {
        Ok(ready) => claims.0.most.store((ready / ENTRIES_EACH) as u64, Ordering::Relaxed),
        Err(error) => tracing::debug!(%error, "the index of ready lanes is left to autovacuum"),
    }
}

/// Returns how many lanes are ready.
async fn vacuum(pool: &Pool) -> Result<f64> {
    pool.query(VACUUM, &[]).await?;
    column(&pool.query_one(READY, &[]).await?, 0)
}
