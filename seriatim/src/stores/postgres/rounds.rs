//! What this process tidies up in the background after many calls: claims would pass by the entries of lanes that were
//! claimed before, and statistics would add up ever more rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::convert::column;
use super::pool::Pool;
use crate::model::Result;

/// Lanes that this process claims between two rounds, at least. Each leaves an entry in the index of `ready`, which every
/// claim passes by until a vacuum. Autovacuum comes once a minute, after millions.
const LANES_MIN: u64 = 20_000;

/// A round reads the whole index, so a longer one waits for more claims: at most this many entries are read for each.
const ENTRIES_EACH: f64 = 10.0;

/// Calls of this process between two rounds for `tally`: each adds a row or two, which statistics read until they are
/// folded.
const CALLS: u64 = 10_000;
/// Rows that a round folds, at most: those of other processes too.
const FOLD: &str = "SELECT seriatim.fold(100000)";
/// The tables to which calls add rows that others soon delete.
const VACUUM_TALLY: &str =
    "VACUUM (SKIP_LOCKED, TRUNCATE off) seriatim.tally, seriatim.freed, seriatim.share";

const VACUUM: &str = "VACUUM (SKIP_LOCKED, TRUNCATE off) seriatim.ready";
const READY: &str = "SELECT reltuples::float8 FROM pg_class WHERE oid = 'seriatim.ready'::regclass";

/// Counts claimed lanes and calls until the next rounds.
#[derive(Clone, Default)]
pub(super) struct Rounds(Arc<Counts>);

#[derive(Default)]
struct Counts {
    lanes: AtomicU64,
    most: AtomicU64,
    calls: AtomicU64,
}

impl Rounds {
    /// A call that changed what queues hold. Starts a round in the background if there were enough.
    pub(super) fn count(&self, pool: &Pool) {
        if self.0.calls.fetch_add(1, Ordering::Relaxed) + 1 >= CALLS
            && self.0.calls.swap(0, Ordering::Relaxed) >= CALLS
        {
            tokio::spawn(fold(pool.alone()));
        }
    }

    /// The same after a claim of these lanes.
    pub(super) fn claimed(&self, lanes: usize, pool: &Pool) {
        if lanes > 0 {
            self.count(pool);
        }
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

async fn fold(pool: Pool) {
    for step in [FOLD, VACUUM_TALLY] {
        if let Err(error) = pool.query(step, &[]).await {
            tracing::debug!(%error, "what the queues hold is left to the sweep and to autovacuum");
        }
    }
}

async fn round(pool: Pool, claims: Rounds) {
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
