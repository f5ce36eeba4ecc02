//! The remote workers that this process knows, each as a node of the store.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim::store::{Beat, Heartbeat, NodeInfo, Pulse};
use seriatim::{NodeId, Store, Timestamp};
use tokio::time::Instant;

use super::super::limits::{LEASE_DEFAULT, LEASE_SECONDS, WORKERS_MAX};
use super::super::problem::Problem;

/// A node is told of to the store as often as so many times in its lease.
const BEATS_PER_LEASE: u32 = 3;
/// Longest name of a worker, in bytes.
const WORKER_BYTES_MAX: usize = 256;

/// All of them, by name.
#[derive(Default)]
pub(crate) struct Workers(Mutex<HashMap<String, Known>>);

/// What is known of one.
#[derive(Clone)]
struct Known {
    info: NodeInfo,
    /// The lease that its last claim asked for.
    lease: Duration,
    beat_at: Option<Instant>,
}

/// Refuses a name that no node may have.
pub(super) fn check_name(worker: &str) -> Result<(), Problem> {
    if worker.is_empty() || worker.len() > WORKER_BYTES_MAX || worker.chars().any(char::is_control)
    {
        let detail = format!("must be 1 to {WORKER_BYTES_MAX} bytes without control characters");
        return Err(Problem::invalid("worker", detail));
    }
    Ok(())
}

/// The lease that was asked for.
pub(super) fn lease(seconds: Option<f64>) -> Result<Option<Duration>, Problem> {
    match seconds {
        None => Ok(None),
        Some(seconds) if LEASE_SECONDS.contains(&seconds) => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        Some(_) => {
            let (least, most) = LEASE_SECONDS.into_inner();
            let detail = format!("must be {least} to {most} seconds");
            Err(Problem::invalid("lease_ttl_sec", detail))
        }
    }
}

impl Workers {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease that the worker's last claim asked for.
    pub(super) fn lease_of(&self, worker: &str) -> Duration {
        self.all().get(worker).map_or(LEASE_DEFAULT, |known| known.lease)
    }

    /// The node as which the worker claims; the store is told of it when that is due.
    pub(super) async fn claiming(
        &self,
        store: &dyn Store,
        worker: &str,
        queues: &[String],
        lanes_max: usize,
        lease: Duration,
    ) -> Result<NodeId, Problem> {
        let known = self.change(worker, |known| {
            known.lease = lease;
            known.info.lease = lease.max(LEASE_DEFAULT);
            known.info.queues = queues.to_vec();
            known.info.concurrency = u32::try_from(lanes_max).unwrap_or(u32::MAX);
        });
        let beats_every = known.info.lease / BEATS_PER_LEASE;
        if known.beat_at.is_none_or(|at| at.elapsed() >= beats_every) {
            return self.beat(store, worker, Vec::new()).await.map(|(node, _)| node);
        }
        Ok(known.info.id)
    }

    /// Tells the store that the worker lives, under a new name if it was declared dead.
    pub(super) async fn beat(
        &self,
        store: &dyn Store,
        worker: &str,
        beats: Vec<Beat>,
    ) -> Result<(NodeId, Pulse), Problem> {
        let mut node = self.change(worker, |_| {}).info;
        let beat =
            |node: &NodeInfo| Heartbeat { now: None, node: node.clone(), beats: beats.clone() };
        let mut pulse = store.heartbeat(beat(&node)).await?;
        if !pulse.alive {
            node = self.rename(worker, &node.id);
            pulse = store.heartbeat(beat(&node)).await?;
        }
        self.change(worker, |known| known.beat_at = Some(Instant::now()));
        Ok((node.id, pulse))
    }

    /// Takes a new name for a worker that was declared dead under this one.
    pub(super) fn rename(&self, worker: &str, dead: &NodeId) -> NodeInfo {
        let known = self.change(worker, |known| {
            if known.info.id == *dead {
                known.info.id = NodeId::unique(worker);
                known.info.started_at = Timestamp::of_this_machine();
                known.beat_at = None;
            }
        });
        known.info
    }

    fn change(&self, worker: &str, change: impl FnOnce(&mut Known)) -> Known {
        let mut all = self.all();
        if !all.contains_key(worker) && all.len() >= WORKERS_MAX {
            let silent =
                all.iter().min_by_key(|(_, known)| known.beat_at).map(|(name, _)| name.clone());
            silent.and_then(|name| all.remove(&name));
        }
        let known = all.entry(worker.to_owned()).or_insert_with(|| Known::new(worker));
        change(known);
        known.clone()
    }
}

impl Known {
    fn new(worker: &str) -> Self {
        let mut info = NodeInfo::new(NodeId::unique(worker), LEASE_DEFAULT);
        (info.name, info.host, info.pid) = (worker.into(), "remote".to_owned(), 0);
        Self { info, lease: LEASE_DEFAULT, beat_at: None }
    }
}
