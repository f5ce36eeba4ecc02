//! Where the store carries things out: by its own clock, and with everything written down that it does.

use std::future::Future;
use std::sync::Arc;

use seriatim::store::*;
use seriatim::{Result, SharedStore, Timestamp, Turn};

use super::world::World;
use crate::layer::{Layer, Over};

/// See the module.
pub(super) struct Scribe {
    world: Arc<World>,
}

impl Scribe {
    pub(super) fn store(world: Arc<World>) -> SharedStore {
        Over::store(Arc::new(Self { world }))
    }

    /// What may take waiting jobs away, or bring dead ones back.
    async fn watch<T>(&self, deed: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let before = self.world.before().await;
        let answer = deed.await;
        self.world.after(before).await;
        answer
    }
}

impl Layer for Scribe {
    fn below(&self) -> &SharedStore {
        &self.world.store
    }

    fn time(&self) -> Option<Timestamp> {
        Some(self.world.store_now())
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>> {
        let (now, jobs) = (self.world.store_now(), request.jobs.clone());
        let pushed = self.below().push(Push { now: Some(now), ..request }).await?;
        self.world.pushed(&jobs, now, &pushed);
        Ok(pushed)
    }

    async fn claim(&self, request: Claim) -> Result<Claimed> {
        let claimed = self.below().claim(Claim { now: self.time(), ..request }).await?;
        self.world.claimed(&claimed.turns);
        Ok(claimed)
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let turns = request.turns.clone();
        let aliases = self.world.aliases(&turns).await;
        let settled = self.below().settle(Settle { now: self.time(), ..request }).await?;
        self.world.settled(&turns, &settled, &aliases);
        Ok(settled)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        let turns = self.below().rescue(Rescue { now: self.time(), ..request }).await?;
        self.world.rescued(&turns);
        Ok(turns)
    }

    async fn release(&self, request: Release) -> Result<Vec<Turn>> {
        let turns = self.below().release(Release { now: self.time(), ..request }).await?;
        self.world.rescued(&turns);
        Ok(turns)
    }

    async fn sweep(&self, request: Sweep) -> Result<Swept> {
        self.watch(self.below().sweep(Sweep { now: self.time(), ..request })).await
    }

    async fn cancel(&self, request: Cancel) -> Result<Vec<Cancelled>> {
        self.watch(self.below().cancel(Cancel { now: self.time(), ..request })).await
    }

    async fn requeue(&self, request: Selected) -> Result<Acted> {
        self.watch(self.below().requeue(Selected { now: self.time(), ..request })).await
    }

    async fn delete_dead(&self, request: Selected) -> Result<Acted> {
        self.watch(self.below().delete_dead(Selected { now: self.time(), ..request })).await
    }

    async fn act(&self, request: Act) -> Result<Acted> {
        self.watch(self.below().act(Act { now: self.time(), ..request })).await
    }

    async fn amend(&self, request: Amend) -> Result<()> {
        self.watch(self.below().amend(Amend { now: self.time(), ..request })).await
    }
}
