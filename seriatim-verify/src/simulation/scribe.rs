//! Records what the store executes.

use std::future::Future;
use std::sync::Arc;

use seriatim::store::*;
use seriatim::{Result, SharedStore};

use super::world::World;

/// The wrapper around the store that records its operations.
pub(super) struct Scribe {
    world: Arc<World>,
}

impl Scribe {
    pub(super) fn store(world: Arc<World>) -> SharedStore {
        Arc::new(Self { world })
    }

    /// Claims ask for several jobs of a key, as if all had been short so far.
    fn series_max(&self) -> u32 {
        self.world.roll(|rng| if rng.bool() { 1 } else { rng.u32(2..8) })
    }

    /// Runs an operation that may remove waiting jobs or requeue dead ones, and records the changes.
    async fn watch<T>(&self, operation: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let before = self.world.before().await;
        let answer = operation.await;
        self.world.after(before).await;
        answer
    }
}

impl Wrapper for Scribe {
    fn inner(&self) -> &SharedStore {
        &self.world.store
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        let (now, jobs) = (self.world.store_now(), request.jobs.clone());
        let pushed = self.inner().push(request).await?;
        self.world.pushed(&jobs, now, &pushed);
        Ok(pushed)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let request = Claim { series_max: self.series_max(), ..request };
        let claimed = self.inner().claim(request).await?;
        self.world.claimed(&claimed.turns);
        Ok(claimed)
    }

    async fn settle(&self, mut request: Settle) -> Result<Vec<Settled>> {
        for go_on in &mut request.go_on {
            go_on.claim.series_max = self.series_max();
        }
        let turns = request.turns.clone();
        let aliases = self.world.aliases(&turns).await;
        let settled = self.inner().settle(request).await?;
        self.world.settled(&turns, &settled, &aliases);
        let next = |settled: &Settled| match settled {
            Settled::Ok { next, .. } => next.as_deref().cloned(),
            _ => None,
        };
        self.world.claimed(&settled.iter().filter_map(next).collect::<Vec<_>>());
        Ok(settled)
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        let (node, lease) = (request.node.id.clone(), request.node.lease);
        let pulse = self.inner().heartbeat(request).await?;
        if pulse.alive {
            self.world.renewed(&node, lease);
        }
        Ok(pulse)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let turns = self.inner().rescue(request).await?;
        self.world.taken(&turns, false);
        Ok(turns)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let turns = self.inner().release(request).await?;
        self.world.taken(&turns, true);
        Ok(turns)
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.watch(self.inner().sweep(request)).await
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.watch(self.inner().cancel(request)).await
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        self.watch(self.inner().requeue(request)).await
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.watch(self.inner().delete_dead(request)).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        self.watch(self.inner().act(request)).await
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.watch(self.inner().amend(request)).await
    }
}
