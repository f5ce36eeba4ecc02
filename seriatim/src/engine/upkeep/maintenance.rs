//! Upkeep that any node may do: rescuing claims of dead nodes, and sweeping expired rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::contract::{Lead, QueueView, Rescue, Settled, Sweep};
use crate::engine::core::Core;
use crate::engine::limits::{
    DEFINITIONS_EVERY, RESCUE_AFTER, RESCUE_LANES_MAX, SWEEP_EVERY, SWEEP_REST, SWEEP_ROWS_MAX,
};
use crate::engine::outage::may_have_been_done;
use crate::engine::settle::exhausted::announced;
use crate::engine::settle::settler::{keep_refused, send};
use crate::engine::upkeep::neighbours::Neighbours;
use crate::model::{ErrorKind, Queue, Result, Settlement, Timestamp, Turn, crash};

/// The error kept with a job or lane whose claim was lost.
const WHY: &str = "its process died or lost its lease";

/// Does the upkeep until the engine ends.
pub(in crate::engine) async fn run(core: Arc<Core>) {
    let (swept, defined) = (Instant::now(), Instant::now());
    let (has_left, neighbours) = (false, Neighbours::default());
    let queues = Vec::new();
    let mut maintenance = Maintenance { core, swept, has_left, defined, queues, neighbours };
    // The first check runs immediately: this node may replace a process that was killed.
    if let Err(error) = maintenance.take_over().await {
        maintenance.core.outage.failed("looking for nodes that are gone", &error);
    }
    loop {
        tokio::time::sleep(maintenance.rest()).await;
        match maintenance.round().await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NodeGone => maintenance.core.gone.notify_one(),
            Err(error) => maintenance.core.outage.failed("upkeep", &error),
        }
    }
}

struct Maintenance {
    core: Arc<Core>,
    swept: Instant,
    /// Whether the last sweep left expired rows.
    has_left: bool,
    defined: Instant,
    /// The queues as they were read last.
    queues: Vec<QueueView>,
    neighbours: Neighbours,
}

impl Maintenance {
    /// The time to the next round, which comes sooner if the lease of a silent node ends. Randomized, because the nodes of
    /// a fleet start together, and see a death together, but should not do their rounds together.
    fn rest(&self) -> Duration {
        if self.has_left {
            return SWEEP_REST;
        }
        let core = &self.core;
        let interval = core.settings.rescue_interval.mul_f64(0.75 + fastrand::f64() / 2.0);
        let after = RESCUE_AFTER.mul_f64(1.0 + 3.0 * fastrand::f64());
        let end = self.neighbours.next_end(core.store_now());
        end.map_or(interval, |end| interval.min(core.until(end) + after))
    }

    async fn round(&mut self) -> Result<()> {
        self.core.hooks.turn_log.log_left_out(false);
        // A failed rescue must not prevent the other duties.
        let rescued = self.rescue_all().await;
        if self.neighbours.any_gone(&self.core) {
            self.take_over().await?;
        }
        if self.defined.elapsed() >= DEFINITIONS_EVERY {
            self.defined = Instant::now();
            self.queues = self.core.read_definitions().await?;
            self.core.split().await?;
            self.take_over().await?;
        }
        if self.has_left || self.swept.elapsed() >= SWEEP_EVERY {
            (self.swept, self.has_left) = (Instant::now(), false);
            self.has_left = self.sweep().await?;
        }
        rescued
    }

    /// Takes over claims of nodes on this machine whose process is gone.
    async fn take_over(&mut self) -> Result<()> {
        if self.neighbours.look(&self.core).await? {
            self.rescue_all().await?;
        }
        Ok(())
    }

    async fn rescue_all(&mut self) -> Result<()> {
        // A store may take over less in one step than it is asked for.
        while self.rescue().await? > 0 {}
        Ok(())
    }

    /// Rescues claims whose lease has expired, and settles them as crashes.
    async fn rescue(&mut self) -> Result<usize> {
        let core = &self.core;
        if core.phases.is_draining() {
            // This node may be gone before it has settled them.
            return Ok(0);
        }
        core.read_clock().await?;
        if core.may_misjudge() {
            return Ok(0);
        }
        let claiming = core.claiming.read().await;
        let request = Rescue {
            now: None,
            node: core.node(),
            lease: core.settings.lease,
            lanes_max: RESCUE_LANES_MAX,
            ticket: core.next_ticket(),
        };
        let turns = core.store.rescue(request).await.inspect_err(|error| {
            if may_have_been_done(error) {
                core.claims_unanswered.store(true, Ordering::Release);
                core.dispatch.room.notify_one();
            }
        })?;
        core.held.add(&turns);
        drop(claiming);
        if let Some(observer) = &core.observer {
            turns.iter().for_each(|turn| observer.rescued(turn));
        }
        if turns.is_empty() {
            return Ok(0);
        }
        tracing::warn!(lanes = turns.len(), "took over lanes whose holder died or lost its lease");
        let rescued = turns.len();
        core.counters.rescued(rescued);
        read_queues(core, &mut self.queues).await;
        let crash = |turn: &Turn| crash(turn, &definition(core, &self.queues, turn), WHY);
        let settlements: Vec<Settlement> = turns.iter().map(crash).collect();
        let (turns, settlements) = announced(core, turns, settlements).await;
        if let Some(observer) = &core.observer {
            for (turn, settlement) in turns.iter().zip(&settlements) {
                observer.settling(turn, settlement);
            }
        }
        let sent_at = Timestamp::of_this_machine();
        let (settled, repeated) = send(core, &settlements).await;
        let settled = keep_refused(core, &settlements, settled);
        for (place, settled) in settled {
            let (turn, settlement) = (&turns[place], &settlements[place]);
            if let Settled::Ok { cancelled, .. } = &settled {
                core.hooks.turn_log.settled(turn, settlement, cancelled);
            }
            if let (true, Some(observer)) = (settled.is_ok() || !repeated, &core.observer) {
                observer.settled(turn, settlement, &settled, sent_at);
            }
        }
        Ok(rescued)
    }

    /// Sweeps expired rows; one node at a time does it. True if some are left because a rescue is due: claims must not
    /// wait until all that has expired is gone.
    async fn sweep(&self) -> Result<bool> {
        let (core, began) = (&self.core, Instant::now());
        let lead = Lead {
            now: None,
            role: "maintenance".into(),
            node: core.node(),
            ttl: SWEEP_EVERY.mul_f64(1.5),
        };
        if !core.store.lead(lead).await? {
            return Ok(false);
        }
        loop {
            let swept = core.store.sweep(Sweep { now: None, rows_max: SWEEP_ROWS_MAX }).await?;
            if !swept.more || began.elapsed() >= core.settings.rescue_interval {
                return Ok(swept.more);
            }
            tokio::time::sleep(SWEEP_REST).await;
        }
    }
}

/// Reads the queues, if possible. The jobs that were taken over must not wait for it: a part of the store that has none of
/// them may be away.
async fn read_queues(core: &Core, queues: &mut Vec<QueueView>) {
    match core.read_definitions().await {
        Ok(read) => *queues = read,
        Err(error) => {
            tracing::warn!(%error, "the queues cannot be read: lanes taken over go by what was read last");
        }
    }
}

fn definition(core: &Core, queues: &[QueueView], turn: &Turn) -> Queue {
    if let Some(view) = queues.iter().find(|view| view.queue.name == *turn.queue) {
        return view.queue.clone();
    }
    let own = core.sources.iter().find(|source| source.name == turn.queue);
    own.map_or_else(
        || Queue::implied(&turn.queue, turn.key.is_some()),
        |source| (*source.definition_for(Some(turn))).clone(),
    )
}
