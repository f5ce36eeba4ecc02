//! What workers of Faktory hold: they name a job by its id, the API by the claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::job::{Claimed, Fetched};
use crate::base::lock::lock;

/// Most jobs of a worker.
pub(super) const HELD_MAX: usize = 1_000;
/// What is held no longer, for sure: no heartbeat was sent for it since. Longer than any `reserve_for`.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2 * 86_400);

/// A worker: its name, and the token that it comes with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) token: Option<Arc<str>>,
    pub(super) wid: Arc<str>,
}

/// A job in work.
#[derive(Clone)]
pub(super) struct Claim {
    pub(super) worker: Worker,
    pub(super) lane: String,
    pub(super) token: u64,
    pub(super) secret: String,
    /// Of its turn.
    pub(super) jobs: usize,
    /// As the job says it: 0 forgets it when it fails, -1 buries it.
    pub(super) retry: i32,
    fetched_at: Instant,
    reserved: Duration,
}

impl Claim {
    pub(super) fn new(worker: Worker, lane: Claimed, fetched: &Fetched) -> Self {
        Self {
            worker,
            jobs: lane.jobs.len(),
            lane: lane.lane,
            token: lane.token,
            secret: lane.secret,
            retry: fetched.retry,
            fetched_at: Instant::now(),
            reserved: Duration::from_secs(fetched.reserved_seconds),
        }
    }

    /// Whether heartbeats extend it: not beyond what the job asks for.
    fn is_extended(&self) -> bool {
        self.fetched_at.elapsed() < self.reserved
    }
}

/// The jobs of all workers, by their ids, and how many connections each worker has.
#[derive(Default)]
pub(super) struct Held {
    claims: Mutex<HashMap<String, Claim>>,
    workers: Mutex<HashMap<Worker, usize>>,
}

impl Held {
    pub(super) fn has(&self, jid: &str) -> bool {
        lock(&self.claims).contains_key(jid)
    }

    pub(super) fn add(&self, jid: String, claim: Claim) {
        let mut claims = lock(&self.claims);
        claims.retain(|_, old| old.fetched_at.elapsed() < FORGOTTEN_AFTER);
        claims.insert(jid, claim);
    }

    /// The claim on a job; with another token it is nobody's.
    pub(super) fn of(&self, jid: &str, token: Option<&Arc<str>>) -> Option<Claim> {
        lock(&self.claims).get(jid).filter(|claim| claim.worker.token.as_ref() == token).cloned()
    }

    /// Forgets it, unless the id has another claim by now.
    pub(super) fn remove(&self, jid: &str, claim: &Claim) {
        let mut claims = lock(&self.claims);
        if claims.get(jid).is_some_and(|held| held.lane == claim.lane && held.token == claim.token)
        {
            claims.remove(jid);
        }
    }

    /// Those that a heartbeat of the worker extends.
    pub(super) fn extended(&self, worker: &Worker) -> Vec<Claim> {
        let claims = lock(&self.claims);
        claims.values().filter(|one| one.worker == *worker && one.is_extended()).cloned().collect()
    }

    pub(super) fn count(&self, worker: &Worker) -> usize {
        lock(&self.claims).values().filter(|claim| claim.worker == *worker).count()
    }

    /// Forgets what the worker has lost.
    pub(super) fn lose(&self, worker: &Worker, lanes: &[String]) {
        lock(&self.claims)
            .retain(|_, claim| claim.worker != *worker || !lanes.contains(&claim.lane));
    }

    pub(super) fn connected(&self, worker: Worker) {
        *lock(&self.workers).entry(worker).or_default() += 1;
    }

    pub(super) fn left(&self, worker: &Worker) {
        let mut workers = lock(&self.workers);
        if let Some(count) = workers.get_mut(worker) {
            *count -= 1;
            if *count == 0 {
                workers.remove(worker);
            }
        }
    }

    pub(super) fn knows(&self, worker: &Worker) -> bool {
        lock(&self.workers).contains_key(worker)
    }
}
