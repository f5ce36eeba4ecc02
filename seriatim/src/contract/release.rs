//! Releases claims: takes them away from their holders.

use std::time::Duration;

use super::{ClaimSelection, Lease, Release, Settle, Store};
use crate::model::{Queue, Result, Settlement, Turn, crash};

/// The holder of a released lane until its turn is settled. No node can claim under this name, and the lease has
/// expired.
pub(crate) const NOBODY: &str = "(released)";
/// The lease of a released lane.
pub(crate) const NO_LEASE: Lease = Lease::Own { ttl: Duration::ZERO };
/// The error kept with the job or lane.
const WHY: &str = "its claim was released by a person";
/// Most lanes in one step.
const STEP_LANES: usize = 1_000;

/// Releases claims ([`Fleet::release`](super::Fleet::release)) and settles them as crashes, in bounded steps. Returns
/// the number of released lanes. Later steps leave claims alone that were made after the start.
///
/// If the settle fails, the lanes are still released: the next rescue of any engine settles them.
pub async fn release_claims(store: &dyn Store, claims: ClaimSelection) -> Result<u64> {
    let (mut count, mut made_by) = (0, None);
    let began = store.now().await?;
    loop {
        let lanes_max = STEP_LANES;
        let request = Release { now: None, claims: claims.clone(), made_by, lanes_max };
        let turns = store.release(request).await?;
        if turns.is_empty() {
            return Ok(count);
        }
        count += turns.len() as u64;
        made_by = Some(began);
        let queues = store.queues().await?;
        let settlement = |turn: &Turn| -> Settlement {
            let known = queues.iter().find(|view| view.queue.name == *turn.queue);
            let implied = || Queue::implied(&turn.queue, turn.key.is_some());
            crash(turn, &known.map_or_else(implied, |view| view.queue.clone()), WHY)
        };
        store.settle(Settle::now(turns.iter().map(settlement).collect())).await?;
    }
}
