//! Runtimes with a defect: the simulation must find each one.

use std::sync::Arc;

use seriatim::store::{
    GiveUp, Heartbeat, LaneQuery, LaneView, Page, Pulse, Rescue, Settle, Settled, Turn, Wrapper,
};
use seriatim::{Result, SharedStore};

/// A defect of the runtime, to show that liveness runs find it. It is injected between an engine and its store, with
/// the effect that the defect would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A failed settle is not repeated.
    SettleNotRepeated,
    /// Lanes of a claim whose answer was lost are not searched.
    ClaimNotReconciled,
    /// Claims of dead nodes are not rescued.
    NothingRescued,
    /// A node that was declared dead continues with its old id.
    DeathNotHeeded,
    /// Calls whose answers were lost are not given up before their claims are read.
    CallsNotGivenUp,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::SettleNotRepeated,
        Self::ClaimNotReconciled,
        Self::NothingRescued,
        Self::DeathNotHeeded,
        Self::CallsNotGivenUp,
    ];

    /// Wraps a node's connection to the store with this defect.
    pub(super) fn of(self, store: SharedStore) -> SharedStore {
        Arc::new(Mutated { mutant: self, inner: store })
    }
}

struct Mutated {
    mutant: Mutant,
    inner: SharedStore,
}

impl Mutated {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }
}

impl Wrapper for Mutated {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn settle(&self, request: Settle) -> Result<Vec<Settled>> {
        let turns = request.turns.len();
        match self.inner.settle(request).await {
            Err(_) if self.is(Mutant::SettleNotRepeated) => Ok(vec![Settled::Stale; turns]),
            answer => answer,
        }
    }

    async fn heartbeat(&self, request: Heartbeat) -> Result<Pulse> {
        let mut pulse = self.inner.heartbeat(request).await?;
        pulse.alive |= self.is(Mutant::DeathNotHeeded);
        Ok(pulse)
    }

    async fn rescue(&self, request: Rescue) -> Result<Vec<Turn>> {
        match self.is(Mutant::NothingRescued) {
            true => Ok(Vec::new()),
            false => self.inner.rescue(request).await,
        }
    }

    async fn give_up(&self, request: GiveUp) -> Result<()> {
        match self.is(Mutant::CallsNotGivenUp) {
            true => Ok(()),
            false => self.inner.give_up(request).await,
        }
    }

    async fn lanes(&self, query: LaneQuery) -> Result<Page<LaneView>> {
        match self.is(Mutant::ClaimNotReconciled) {
            true => Ok(Page::default()),
            false => self.inner.lanes(query).await,
        }
    }
}
