//! Pushers and workers of several processes on few keys, for the tests of the stores.
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::contract::{
    Claim, Declare, Lease, Push, PushStatus, Pushed, Settle, Settled, SharedStore,
};
use crate::model::{Job, Queue, Settlement, Token, Turn};

/// As many push as work, each with a store of its own, as processes have.
pub(super) const STORES: usize = 6;
const LEASE: Duration = Duration::from_secs(60);
/// Their order by bytes is another one than in a locale.
const KEYS: [&str; 3] = ["alma", "Élan", "Zoo"];
/// The tags of a pusher begin here.
const PUSHER: u32 = 1_000_000;

/// Where each key was handed over: its place in `KEYS`, the tag of a job, and the token.
type Seen = UnboundedSender<(usize, u32, Token)>;

/// Each job is delivered exactly once, in its pusher's order, and no key runs twice at once. Each store has registered
/// node "n". `during` is called before each delivery.
pub(super) async fn pushes_and_claims_race(
    stores: Vec<SharedStore>,
    queue: Queue,
    jobs_each: u32,
    mut during: impl AsyncFnMut(u32),
) {
    assert_eq!(stores.len(), STORES);
    stores[0].declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
    let (sender, mut seen) = unbounded_channel();
    let busy: Arc<[AtomicU32; KEYS.len()]> = Arc::default();
    let mut tasks = Vec::new();
    for (place, store) in stores.into_iter().enumerate() {
        tasks.push(if place < STORES / 2 {
            tokio::spawn(push(store, place as u32, jobs_each))
        } else {
            tokio::spawn(work(store, busy.clone(), sender.clone()))
        });
    }
    drop(sender);
    let mut next: HashMap<(usize, u32), u32> = HashMap::new();
    let mut tokens: HashMap<usize, Token> = HashMap::new();
    for arrived in 0..jobs_each * (STORES / 2 * KEYS.len()) as u32 {
        during(arrived).await;
        let arrival = tokio::time::timeout(LEASE, seen.recv()).await;
        let (place, tag, token) = arrival.expect("a job is stranded").expect("a worker failed");
        let expected = next.entry((place, tag / PUSHER)).or_default();
        assert_eq!(tag % PUSHER, *expected, "in order, each once");
        *expected += 1;
        let last = tokens.insert(place, token);
        assert!(last.is_none_or(|last| last <= token), "tokens grow");
    }
    drop(seen);
    for task in tasks {
        task.await.unwrap();
    }
}

/// Pushes a job of each key at a time, in one order and the other.
async fn push(store: SharedStore, pusher: u32, jobs_each: u32) {
    for number in 0..jobs_each {
        let job = |key: &&str| Job::new("q", &(pusher * PUSHER + number)).unwrap().key(*key);
        let mut jobs: Vec<Job> = KEYS.iter().map(|key| job(key).score(0.0)).collect();
        if number % 2 == 1 {
            jobs.reverse();
        }
        store.push(Push { now: None, jobs }).await.unwrap();
    }
}

/// Works until nobody listens.
async fn work(store: SharedStore, busy: Arc<[AtomicU32; KEYS.len()]>, seen: Seen) {
    let place_of =
        |turn: &Turn| KEYS.iter().position(|key| turn.key.as_deref() == Some(key)).unwrap();
    while !seen.is_closed() {
        let request = Claim::new("q", "n", 2, Lease::Node { ttl: LEASE });
        let turns = store.claim(request).await.unwrap().turns;
        for turn in &turns {
            let place = place_of(turn);
            assert_eq!(busy[place].fetch_add(1, Ordering::SeqCst), 0, "it overlaps");
            for job in &turn.jobs {
                let _ = seen.send((place, job.payload.decode().unwrap(), turn.token));
            }
        }
        tokio::task::yield_now().await;
        for turn in &turns {
            busy[place_of(turn)].fetch_sub(1, Ordering::SeqCst);
        }
        let done = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
        let settled = store.settle(Settle::now(done)).await.unwrap();
        assert!(settled.iter().all(Settled::is_ok));
    }
}

/// The jobs of a round of [`new_names_race`], without the one that is pushed twice.
const NAMES: usize = 12;
const ROUNDS: usize = 20;

/// Several stores push the same new idempotency keys at once: each stores one job, whose id all of them learn.
pub(super) async fn new_names_race(stores: Vec<SharedStore>) {
    let begin = Arc::new(Barrier::new(stores.len()));
    for round in 0..ROUNDS {
        let push = |(pusher, store): (usize, &SharedStore)| {
            let (store, begin, jobs) = (store.clone(), begin.clone(), named(round, pusher));
            tokio::spawn(async move {
                begin.wait().await;
                let mut pushed = store.push(Push { now: None, jobs }).await.unwrap();
                if pusher % 2 == 1 {
                    pushed.reverse();
                }
                pushed
            })
        };
        let tasks: Vec<_> = stores.iter().enumerate().map(push).collect();
        let mut answers: Vec<Vec<Pushed>> = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        let mut all = HashSet::new();
        for name in 0..NAMES {
            let mut of_name: Vec<Pushed> = answers.iter().map(|pushed| pushed[name]).collect();
            if name == 0 {
                of_name.extend(answers.iter().map(|pushed| pushed[NAMES]));
            }
            let ids: HashSet<_> = of_name.iter().map(|pushed| pushed.job_id).collect();
            assert_eq!(ids.len(), 1, "round {round}, name {name}: {of_name:?}");
            let new = of_name.iter().filter(|pushed| pushed.status == PushStatus::Queued).count();
            assert_eq!(new, 1, "round {round}, name {name}: {of_name:?}");
            all.extend(ids);
        }
        assert_eq!(all.len(), NAMES);
    }
    let stats = stores[0].stats(None).await.unwrap();
    let jobs: u64 = stats.iter().map(|queue| queue.jobs).sum();
    assert_eq!(jobs, (ROUNDS * NAMES) as u64);
}

/// Jobs without a key, with keys that have jobs, with new keys, or a third of each, by turns; the first once more at the
/// end. Every other pusher sends them in the reverse order.
fn named(round: usize, pusher: usize) -> Vec<Job> {
    let job = |number: usize| {
        let kind = if round % 4 == 3 { number % 3 } else { round % 4 };
        let queue = if kind == 0 { "free" } else { "q" };
        let job = Job::new(queue, &(round, pusher)).unwrap();
        let job = job.idempotency_key(format!("{round}-{number}"));
        match kind {
            0 => job,
            1 => job.key(format!("old-{}", number % 2)),
            _ => job.key(format!("new-{round}-{number}")),
        }
    };
    let mut jobs: Vec<Job> = (0..NAMES).chain([0]).map(job).collect();
    if pusher % 2 == 1 {
        jobs.reverse();
    }
    jobs
}
