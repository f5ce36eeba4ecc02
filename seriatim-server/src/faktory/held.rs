//! What workers of Faktory hold: they name a job by its id, the API by the claim.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::job::{Claimed, Fetched};
use crate::base::lock::lock;

/// Most jobs of a worker.
pub(super) const HELD_MAX: usize = 1_000;
/// Above this many jobs, or twice as many as were left the last time, those that no worker can still hold are dropped.
const SWEPT_FROM: usize = 10_000;
/// A job that no heartbeat extended for this long, five leases, is another worker's by now. If its worker names it all
/// the same, its claim is looked for in the store.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

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
    /// The job's id here, by which it is known as well.
    pub(super) id: String,
    pub(super) token: u64,
    pub(super) secret: String,
    /// Of its turn.
    pub(super) jobs: usize,
    /// As the job says it: 0 forgets it when it fails, -1 buries it.
    pub(super) retry: i32,
    fetched_at: Instant,
    extended_at: Instant,
    reserved: Duration,
}

impl Claim {
    pub(super) fn new(worker: Worker, lane: Claimed, fetched: &Fetched) -> Self {
        let now = Instant::now();
        Self {
            worker,
            id: fetched.id.clone(),
            jobs: lane.jobs.len(),
            lane: lane.lane,
            token: lane.token,
            secret: lane.secret,
            retry: fetched.retry,
            fetched_at: now,
            extended_at: now,
            reserved: Duration::from_secs(fetched.reserved_seconds),
        }
    }

    /// As requests name it.
    pub(super) fn named(&self) -> Value {
        json!({ "lane": self.lane, "token": self.token, "secret": self.secret })
    }

    /// Whether heartbeats extend it: not beyond what the job asks for.
    fn is_extended(&self) -> bool {
        self.fetched_at.elapsed() < self.reserved
    }
}

/// The jobs of all workers, by their ids, and the workers that are connected.
#[derive(Default)]
pub(super) struct Held {
    claims: Mutex<HashMap<String, Claim>>,
    /// Of how many claims the next sweep is due.
    swept_from: AtomicUsize,
    workers: Mutex<HashMap<Worker, Connected>>,
}

#[derive(Default)]
struct Connected {
    connections: usize,
    /// Its claims of before were looked for.
    is_looked_up: bool,
}

impl Held {
    /// Whether the id is that of a job of another lane. Of this lane it is the job itself, whose claim was lost.
    pub(super) fn has_other(&self, jid: &str, lane: &str) -> bool {
        lock(&self.claims).get(jid).is_some_and(|claim| claim.lane != lane)
    }

    pub(super) fn add(&self, jid: String, claim: Claim) {
        let mut claims = lock(&self.claims);
        if claims.len() >= self.swept_from.load(Ordering::Relaxed).max(SWEPT_FROM) {
            claims.retain(|_, old| old.extended_at.elapsed() < FORGOTTEN_AFTER);
            self.swept_from.store(claims.len() * 2, Ordering::Relaxed);
        }
        claims.insert(jid, claim);
    }

    /// Adds a claim that was handed out elsewhere, unless a newer one of the job is known: under the job's id here, as which
    /// it was handed out if another one had its jid, and under the jid, unless that may be another job.
    pub(super) fn learn(&self, jid: Option<String>, claim: &Claim) {
        self.learn_as(claim.id.clone(), claim.clone());
        if let Some(jid) = jid {
            self.learn_as(jid, claim.clone());
        }
    }

    fn learn_as(&self, jid: String, claim: Claim) {
        let mut claims = lock(&self.claims);
        let known =
            claims.get(&jid).filter(|known| known.token >= claim.token || known.lane != claim.lane);
        if known.is_none() {
            claims.insert(jid, claim);
        }
    }

    /// The claim on a job; with another token it is nobody's.
    pub(super) fn of(&self, jid: &str, token: Option<&Arc<str>>) -> Option<Claim> {
        lock(&self.claims).get(jid).filter(|claim| claim.worker.token.as_ref() == token).cloned()
    }

    /// The claims of a token that are known as what their workers call them, by lane and number. Not those whose jid
    /// several had: they count for the others with it.
    pub(super) fn known(&self, token: Option<&Arc<str>>) -> HashSet<(String, u64)> {
        let claims = lock(&self.claims);
        let of_token = claims
            .iter()
            .filter(|(jid, claim)| **jid != claim.id && claim.worker.token.as_ref() == token);
        of_token.map(|(_, claim)| (claim.lane.clone(), claim.token)).collect()
    }

    /// Forgets it, unless the id has another claim by now.
    pub(super) fn remove(&self, jid: &str, claim: &Claim) {
        let mut claims = lock(&self.claims);
        for name in [jid, &claim.id] {
            let is_it = |held: &Claim| held.lane == claim.lane && held.token == claim.token;
            if claims.get(name).is_some_and(is_it) {
                claims.remove(name);
            }
        }
    }

    /// Lets heartbeats extend a claim for longer, as its worker asks; never for less.
    pub(super) fn reserve(&self, claim: &Claim, reserved: Duration) {
        let mut claims = lock(&self.claims);
        let its = claims.values_mut();
        for held in its.filter(|held| held.lane == claim.lane && held.token == claim.token) {
            held.reserved = held.reserved.max(held.fetched_at.elapsed() + reserved);
        }
    }

    /// Those that a heartbeat of the worker extends.
    pub(super) fn extended(&self, worker: &Worker) -> Vec<Claim> {
        let mut claims = lock(&self.claims);
        let mut by_lane = HashMap::<&str, &Claim>::new();
        let of_worker = claims.values_mut().filter(|one| one.worker == *worker);
        for one in of_worker.filter(|one| one.is_extended()) {
            one.extended_at = Instant::now();
            let one = &*one;
            let newest = by_lane.entry(&one.lane).or_insert(one);
            if one.token > newest.token {
                *newest = one;
            }
        }
        by_lane.into_values().cloned().collect()
    }

    pub(super) fn count(&self, worker: &Worker) -> usize {
        let claims = lock(&self.claims);
        let lanes =
            claims.values().filter(|claim| claim.worker == *worker).map(|claim| &*claim.lane);
        lanes.collect::<HashSet<_>>().len()
    }

    /// Forgets the claims that the worker has lost, by lane and number: it may have fetched the next job of a lane since a
    /// heartbeat asked for them.
    pub(super) fn lose(&self, worker: &Worker, lost: &[(&str, u64)]) {
        lock(&self.claims).retain(|_, claim| {
            claim.worker != *worker || !lost.contains(&(claim.lane.as_str(), claim.token))
        });
    }

    pub(super) fn connected(&self, worker: Worker) {
        lock(&self.workers).entry(worker).or_default().connections += 1;
    }

    pub(super) fn left(&self, worker: &Worker) {
        let mut workers = lock(&self.workers);
        if let Some(connected) = workers.get_mut(worker) {
            connected.connections -= 1;
            if connected.connections == 0 {
                workers.remove(worker);
            }
        }
    }

    /// Whether a worker that is connected may hold jobs from before; none if it is not connected.
    pub(super) fn is_looked_up(&self, worker: &Worker) -> Option<bool> {
        lock(&self.workers).get(worker).map(|connected| connected.is_looked_up)
    }

    pub(super) fn looked_up(&self, worker: &Worker) {
        if let Some(connected) = lock(&self.workers).get_mut(worker) {
            connected.is_looked_up = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker fetches a job.
    fn fetch(held: &Held, worker: &Worker, jid: &str, token: u64) {
        let lane = json!({ "lane": "1-0-1", "queue": "orders", "token": token, "secret": "s", "retry_count": -1,
            "max_retries": 25, "jobs": [{ "job_id": jid, "payload": 1 }] });
        let lane: Claimed = serde_json::from_str(&lane.to_string()).unwrap();
        let fetched = Fetched::of(&lane, |_| false).unwrap();
        held.add(jid.to_owned(), Claim::new(worker.clone(), lane, &fetched));
    }

    fn worker(wid: &str) -> Worker {
        Worker { token: None, wid: wid.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_workers_that_are_gone_are_forgotten_and_those_of_others_are_not() {
        let (held, gone, here) = (Held::default(), worker("gone"), worker("here"));
        (0..SWEPT_FROM).for_each(|n| fetch(&held, &gone, &format!("gone-{n}"), 1));
        fetch(&held, &here, "first", 2);
        tokio::time::advance(FORGOTTEN_AFTER / 2).await;
        assert_eq!(held.extended(&here).len(), 1);
        tokio::time::advance(FORGOTTEN_AFTER / 2).await;
        (0..SWEPT_FROM * 2).for_each(|n| fetch(&held, &here, &format!("next-{n}"), 3));
        assert!(held.of("gone-0", None).is_none());
        assert!(held.of("first", None).is_some());
        assert_eq!(lock(&held.claims).len(), 1 + SWEPT_FROM * 2);
    }

    #[test]
    fn a_lost_claim_takes_no_newer_one_of_its_lane_with_it() {
        let (held, worker) = (Held::default(), worker("w1"));
        fetch(&held, &worker, "jid-older", 5);
        fetch(&held, &worker, "jid-newer", 6);
        let extended = held.extended(&worker);
        assert_eq!(extended.iter().map(|claim| claim.token).collect::<Vec<_>>(), [6]);
        // A heartbeat that was sent before the newer job was fetched.
        held.lose(&worker, &[("1-0-1", 5)]);
        assert!(held.of("jid-older", None).is_none());
        assert!(held.of("jid-newer", None).is_some_and(|claim| claim.token == 6));
    }
}
