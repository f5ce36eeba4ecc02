//! Finds nodes of this machine whose process is gone, and takes over their claims immediately instead of when their
//! lease expires. So a process that was killed and started again continues where it was. Finds out too when the leases
//! of silent nodes on other machines end.

use crate::contract::{DeclareDead, NodeView, Origin};
use crate::engine::core::Core;
use crate::engine::shield::shielded_future;
use crate::model::{Result, Timestamp};

/// The other nodes of this machine, as of the last check.
#[derive(Debug, Default)]
pub(in crate::engine) struct Neighbours {
    living: Vec<Origin>,
    /// Those that are gone, and whose programs were looked for.
    cleared: Vec<Origin>,
    /// When the leases end of the nodes, on any machine, that missed heartbeats.
    ends: Vec<Timestamp>,
}

impl Neighbours {
    /// Whether one of them is gone since. Does not ask the store.
    pub(in crate::engine) fn any_gone(&self, core: &Core) -> bool {
        let Some(here) = &core.hooks.origin else { return false };
        self.living.iter().any(|origin| origin.is_gone_from(here))
    }

    /// When the next lease of a silent node ends.
    pub(in crate::engine) fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.ends.iter().copied().filter(|end| *end >= now).min()
    }

    /// Lists them again, and declares dead those that are gone. True if there was one.
    pub(in crate::engine) async fn look(&mut self, core: &Core) -> Result<bool> {
        let Some(here) = &core.hooks.origin else { return Ok(false) };
        let (own, now) = (core.node(), core.store_now());
        let (mut any, mut living, mut cleared) = (false, Vec::new(), Vec::new());
        let views = core.store.nodes().await?;
        let lease = |view: &NodeView| view.info.lease;
        // Three heartbeats fit into a lease: with an older one, some are missing.
        let silent =
            views.iter().filter(|view| !view.dead && view.heartbeat_at + lease(view) / 2 < now);
        self.ends = silent.map(|view| view.heartbeat_at + lease(view)).collect();
        for view in views {
            let Some(origin) = &view.info.origin else { continue };
            if view.info.id == own || origin.place != here.place || view.info.has_stopped() {
                continue;
            }
            if !origin.is_gone_from(here) {
                living.push(origin.clone());
            } else if view.dead {
                if !self.cleared.contains(origin) {
                    end_programs_of_dead(core, &view, origin).await;
                }
                cleared.push(origin.clone());
            } else if declare_dead(core, &view, origin).await? {
                any = true;
                cleared.push(origin.clone());
            }
        }
        (self.living, self.cleared) = (living, cleared);
        Ok(any)
    }
}

/// Another machine was first, and has its claims. It could not end the programs, which work on beside those of the
/// next holders.
async fn end_programs_of_dead(core: &Core, view: &NodeView, origin: &Origin) {
    if let Err(why) = clear_up(core, origin).await {
        let (node, pid) = (&view.info.id, origin.pid);
        tracing::warn!(%node, pid, "a node of this machine is gone, and programs that it started may still run: {why}");
    }
}

async fn declare_dead(core: &Core, view: &NodeView, origin: &Origin) -> Result<bool> {
    let (node, pid) = (&view.info.id, origin.pid);
    if let Err(why) = clear_up(core, origin).await {
        tracing::warn!(%node, pid, "a node of this machine is gone, but its claims stand until its lease expires: {why}");
        return Ok(false);
    }
    let (node, heartbeat_at) = (node.clone(), view.heartbeat_at);
    let request = DeclareDead { now: None, node: node.clone(), heartbeat_at };
    let declared = core.store.declare_dead(request).await?;
    if declared {
        tracing::warn!(%node, pid, "a node of this machine is gone: its claims are taken over now");
    }
    Ok(declared)
}

/// Ends the programs that the process left behind. After an error its claims must stand.
async fn clear_up(core: &Core, origin: &Origin) -> std::result::Result<(), String> {
    match (&core.hooks.before_takeover, origin.programs) {
        (_, false) => Ok(()),
        (Some(hook), true) => {
            let cleared = shielded_future(async { hook(origin.clone()).await }).await;
            cleared
                .map_err(|text| format!("before_takeover panicked: {text}"))?
                .map_err(|failure| core.hooks.text_of(&failure))
        }
        (None, true) => {
            Err("it may have left programs behind, and this engine cannot look for them".to_owned())
        }
    }
}
