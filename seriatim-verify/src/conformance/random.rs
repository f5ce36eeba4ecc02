//! Random sequences of operations on the store and on the memory store, compared step by step.
//!
//! Each sequence comes from one seed; a failure prints it. Ids, lanes and tokens differ between stores, so both sides
//! are kept in pairs and results are compared by the order of the pushes.

mod queues;

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use seriatim::store::*;
use seriatim::{
    DueRule, ErrorKind, Exhaustion, Job, JobId, Merge, Outcome, Queue, Timestamp,
    store::{Memory, Turn, Verdict},
};

use super::bench::{Bench, LEASE, failure, loose};
use super::case::{Case, SEQUENCES, listed};
use queues::{keyed, shared_out, with_throttle, with_window};

/// Operations in one sequence.
const STEPS: usize = 120;
/// Upper and lower case, accents and punctuation: by bytes their order is another one than in a locale. Where there are groups,
/// each has another one, or none, except for the first and the last.
const KEYS: [&str; 4] = ["Bob", "alma", "zo-o", "élan"];
/// The configured name of the node, which only some of its claims give.
const NODE: &str = "named";

pub(super) fn cases() -> Vec<Case> {
    let mut all = listed![
        random_parallel_operations_match_the_model,
        random_accumulate_operations_match_the_model,
        random_accumulate_operations_with_other_merges_match_the_model,
        random_accumulate_operations_with_a_window_match_the_model,
        random_fifo_operations_match_the_model,
        random_exclusive_operations_match_the_model,
        random_parallel_operations_with_groups_match_the_model,
        random_accumulate_operations_with_groups_match_the_model,
        random_operations_on_throttled_keys_match_the_model,
    ];
    all.extend(listed![
        random_operations_and_actions_match_the_model_in_parallel,
        random_operations_and_actions_match_the_model_in_accumulate,
        random_operations_and_actions_match_the_model_with_a_window,
        random_operations_and_actions_match_the_model_in_fifo,
        random_operations_and_actions_match_the_model_in_exclusive,
        random_operations_and_actions_with_groups_match_the_model_in_fifo,
        random_operations_and_actions_with_groups_match_the_model_in_exclusive,
        random_operations_and_actions_on_throttled_keys_match_the_model,
    ]);
    all
}

async fn random_parallel_operations_match_the_model(bench: Bench) {
    compare(bench, &|_| Queue::parallel(""), false).await;
}

async fn random_accumulate_operations_match_the_model(bench: Bench) {
    compare(bench, &|_| Queue::accumulate(""), false).await;
}

async fn random_accumulate_operations_with_other_merges_match_the_model(bench: Bench) {
    let queue = |rng: &mut Rng| {
        let merge = if rng.bool() { Merge::Max } else { Merge::None };
        Queue::accumulate("").merge(merge).due(DueRule::Earliest)
    };
    compare(bench, &queue, false).await;
}

async fn random_accumulate_operations_with_a_window_match_the_model(bench: Bench) {
    compare(bench, &with_window, false).await;
}

async fn random_fifo_operations_match_the_model(bench: Bench) {
    compare(bench, &|rng| Queue::fifo("").take(rng.u32(1..4)), false).await;
}

async fn random_exclusive_operations_match_the_model(bench: Bench) {
    compare(bench, &|_| Queue::exclusive(""), false).await;
}

async fn random_operations_and_actions_match_the_model_in_parallel(bench: Bench) {
    compare(bench, &|_| Queue::parallel(""), true).await;
}

async fn random_operations_and_actions_match_the_model_in_accumulate(bench: Bench) {
    compare(bench, &|_| Queue::accumulate(""), true).await;
}

async fn random_operations_and_actions_match_the_model_with_a_window(bench: Bench) {
    compare(bench, &with_window, true).await;
}

async fn random_operations_and_actions_match_the_model_in_fifo(bench: Bench) {
    compare(bench, &|rng| Queue::fifo("").take(rng.u32(1..4)), true).await;
}

async fn random_operations_and_actions_match_the_model_in_exclusive(bench: Bench) {
    compare(bench, &|_| Queue::exclusive(""), true).await;
}

async fn random_parallel_operations_with_groups_match_the_model(bench: Bench) {
    compare(bench, &|rng| shared_out(Queue::parallel(""), rng), false).await;
}

async fn random_accumulate_operations_with_groups_match_the_model(bench: Bench) {
    compare(bench, &|rng| shared_out(Queue::accumulate(""), rng), false).await;
}

async fn random_operations_and_actions_with_groups_match_the_model_in_fifo(bench: Bench) {
    compare(bench, &|rng| shared_out(Queue::fifo(""), rng), true).await;
}

async fn random_operations_and_actions_with_groups_match_the_model_in_exclusive(bench: Bench) {
    compare(bench, &|rng| shared_out(Queue::exclusive(""), rng), true).await;
}

async fn random_operations_on_throttled_keys_match_the_model(bench: Bench) {
    compare(bench, &|rng| with_throttle(keyed(rng), rng), false).await;
}

async fn random_operations_and_actions_on_throttled_keys_match_the_model(bench: Bench) {
    compare(bench, &|rng| with_throttle(keyed(rng), rng), true).await;
}

/// The seeds in `SERIATIM_SEED`: one, as in `7`, or several, as in `0..100`. If unset, those of the case's sequences: what a job
/// does when its retries are used up, and whether it is kept, follows from the seed, so cases with actions have others.
fn seeds(sequences: &Range<u64>, actions: bool) -> Range<u64> {
    let Ok(named) = std::env::var("SERIATIM_SEED") else {
        let first = if actions { SEQUENCES } else { 0 };
        return first + sequences.start..first + sequences.end;
    };
    let number =
        |text: &str| text.parse::<u64>().expect("SERIATIM_SEED is a number, or two as in 0..100");
    match named.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&named)..number(&named) + 1,
    }
}

async fn compare(bench: Bench, queue: &dyn Fn(&mut Rng) -> Queue, actions: bool) {
    for seed in seeds(&bench.sequences, actions) {
        let model = Bench::new(Arc::new(Memory::new())).await;
        let mut rng = Rng::with_seed(seed);
        let mut pair = Pair::new(model, bench.store.clone(), seed, queue(&mut rng)).await;
        for step in 0..STEPS {
            pair.step = step;
            pair.random_step(&mut rng, actions).await;
        }
        pair.compare_all().await;
    }
}

/// The ids of a job on both sides.
type Ids = (JobId, JobId);

/// The model and the store under test, given the same operations.
struct Pair {
    model: Bench,
    real: Bench,
    queue: Queue,
    seed: u64,
    step: usize,
    jobs: Vec<Ids>,
    ordinals: HashMap<JobId, usize>,
    real_ordinals: HashMap<JobId, usize>,
    /// Claimed turns of both sides, including stale ones.
    turns: Vec<(Turn, Turn)>,
    tags: u64,
    /// Batches that took jobs when that was looked at last, and how many were opened. None if the store has none.
    batches: Vec<String>,
    opened: u32,
    paused: bool,
}

impl Pair {
    async fn new(mut model: Bench, store: seriatim::SharedStore, seed: u64, queue: Queue) -> Self {
        let queue = defined(seed, queue);
        let mut real = Bench::new(store).await;
        model.now = real.now + Duration::from_secs(seed * 100_000);
        real.now = model.now;
        for bench in [&mut model, &mut real] {
            bench.node = NodeInfo::new(format!("pair-{seed}").as_str().into(), LEASE);
            bench.beat().await;
            bench.declare(queue.clone()).await;
        }
        Self {
            model,
            real,
            queue,
            seed,
            step: 0,
            jobs: Vec::new(),
            ordinals: HashMap::new(),
            real_ordinals: HashMap::new(),
            turns: Vec::new(),
            tags: 0,
            batches: Vec::new(),
            opened: 0,
            paused: false,
        }
    }

    fn same<T: PartialEq + Debug>(&self, what: &str, model: T, real: T) {
        assert!(
            model == real,
            "{what} differs in step {} of SERIATIM_SEED={} ({} {:?}):\n model: {model:?}\n store: {real:?}",
            self.step,
            self.seed,
            self.queue.mode,
            self.queue.merge,
        );
    }

    fn pass(&mut self, length: Duration) {
        self.model.pass(length);
        self.real.pass(length);
    }

    async fn random_step(&mut self, rng: &mut Rng, actions: bool) {
        self.pass(Duration::from_micros(rng.u64(1..3_000_000)));
        if rng.u8(0..12) == 0 {
            self.seal(rng).await;
        }
        if self.paused && rng.u8(0..4) == 0 {
            self.pause().await;
        }
        match rng.u32(0..if actions { 140 } else { 100 }) {
            0..30 => self.push(rng).await,
            30..52 => self.claim(rng).await,
            52..80 => self.settle(rng).await,
            80..86 => self.cancel(rng).await,
            86..90 => self.beat(rng).await,
            90..94 => self.crash(rng).await,
            94..97 => self.pass(Duration::from_secs(rng.u64(1..15))),
            97..100 if self.queue.groups.is_some() && rng.bool() => self.redeclare(rng).await,
            97..100 if self.queue.throttle.is_some() && rng.bool() => self.throttle(rng).await,
            97..100 => self.compare_all().await,
            100..106 => self.requeue(rng).await,
            106..116 => self.act(rng).await,
            116..122 => self.amend(rng).await,
            122..126 => self.release(rng).await,
            126..130 => self.sweep().await,
            130..134 => self.pause().await,
            134..138 => self.change_mode(rng).await,
            _ => self.delete(rng).await,
        }
    }

    fn random_job(&mut self, rng: &mut Rng) -> Job {
        // Few different payloads, so that they merge; `fifo` and `exclusive` do not merge anyway.
        self.tags += 1;
        let mut job = loose(&format!("v{}", rng.u32(0..5)));
        job.queue.clone_from(&self.queue.name);
        if self.queue.mode.is_keyed() {
            job = job.key(random_key(rng));
        }
        if self.queue.groups.is_some() {
            job = with_group(job, rng);
        }
        if rng.u8(0..3) == 0 {
            job = job.score(f64::from(rng.i32(-3..4)));
        }
        if rng.u8(0..4) == 0 {
            job = job.priority(rng.u16(0..3) * 50 + 50);
        }
        match rng.u8(0..8) {
            0 | 1 => job = job.run_in(Duration::from_secs(rng.u64(0..20))),
            2 => job = job.run_at(self.model.now - Duration::from_secs(3)),
            _ => {}
        }
        if rng.u8(0..6) == 0 {
            job = job.task(["x", "y"][rng.usize(0..2)]);
        }
        if rng.u8(0..8) == 0 {
            job = job.max_retries(rng.u32(0..3));
        }
        if rng.u8(0..8) == 0 {
            // The store is that of all sequences, each with a queue of its own.
            job = job.idempotency_key(format!("{} {}", self.queue.name, rng.u32(0..6)));
            if rng.bool() && self.real.store.capabilities().store_scope {
                job = job.idempotency_scope(IdempotencyScope::Store);
            }
        }
        if rng.u8(0..10) == 0 {
            job = job.expires_at(self.model.now + Duration::from_secs(rng.u64(5..60)));
        }
        if rng.u8(0..8) == 0 {
            job = job.past(self.random_past(rng));
        }
        let is_dead = job.past.as_ref().is_some_and(|past| past.dead_at.is_some());
        if let Some(batch) = rng.choice(&self.batches).filter(|_| !is_dead && rng.u8(0..3) == 0) {
            job = job.batch(batch);
        }
        job
    }

    fn random_past(&self, rng: &mut Rng) -> Past {
        let ago = |rng: &mut Rng| self.model.now - Duration::from_millis(rng.u64(0..90_000));
        let mut past = Past { failures: rng.u32(0..3), ..Past::default() };
        if past.failures > 0 && rng.bool() {
            past.error = Some("elsewhere".into());
        }
        if rng.bool() {
            (past.created_at, past.started_at) = (Some(ago(rng)), Some(ago(rng)));
        }
        if rng.u8(0..3) == 0 {
            past.dead_at = Some(ago(rng));
        }
        past
    }

    /// Opens batches in place of those that have ended.
    async fn open_batches(&mut self) {
        for id in self.batches.clone() {
            if self.compare_batch(&id).await {
                self.batches.retain(|open| *open != id);
            }
        }
        while self.real.store.capabilities().batches && self.batches.len() < 2 {
            let id = format!("{} {}", self.queue.name, self.opened);
            self.opened += 1;
            for bench in [&self.model, &self.real] {
                let mut callback = loose("ended");
                callback.queue = format!("{}-ended", self.queue.name);
                let request = OpenBatch { now: Some(bench.now), id: id.as_str().into(), callback };
                bench.store.open_batch(request).await.expect("the batch is opened");
            }
            self.batches.push(id);
        }
    }

    async fn seal(&mut self, rng: &mut Rng) {
        let Some(id) = rng.choice(&self.batches).cloned() else { return };
        for bench in [&self.model, &self.real] {
            let request = SealBatch { now: Some(bench.now), id: id.as_str().into() };
            bench.store.seal_batch(request).await.expect("the batch is sealed");
        }
        self.compare_batch(&id).await;
    }

    /// Whether the batch has ended.
    async fn compare_batch(&self, id: &str) -> bool {
        let shown = async |bench: &Bench| {
            let batch = bench.store.batch(id.into()).await.expect("the store answers");
            let batch = batch.expect("the batch is there");
            (batch.callback.is_some(), BatchView { callback: None, ..batch })
        };
        let (model, real) = (shown(&self.model).await, shown(&self.real).await);
        let ended = model.1.ended_at.is_some();
        self.same("a batch", model, real);
        ended
    }

    async fn push(&mut self, rng: &mut Rng) {
        self.open_batches().await;
        let jobs: Vec<Job> = (0..rng.usize(1..5)).map(|_| self.random_job(rng)).collect();
        let model = self.model.try_push(jobs.clone()).await;
        let real = self.real.try_push(jobs).await;
        // A job is refused if the jobs of its key were bound to a node.
        self.same("the refusal of a push", refusal(&model), refusal(&real));
        for (model, real) in model.into_iter().flatten().zip(real.into_iter().flatten()) {
            if model.status == PushStatus::Queued {
                let ordinal = self.jobs.len();
                self.jobs.push((model.job_id, real.job_id));
                self.ordinals.insert(model.job_id, ordinal);
                self.real_ordinals.insert(real.job_id, ordinal);
            }
            self.same("the status of a push", model.status, real.status);
            self.same("until when a key is throttled", model.again_at, real.again_at);
            let (model, real) = (self.ordinal(model.job_id), self.real_ordinal(real.job_id));
            self.same("the job of a push", model, real);
        }
    }

    fn ordinal(&self, id: JobId) -> Option<usize> {
        self.ordinals.get(&id).copied()
    }

    fn real_ordinal(&self, id: JobId) -> Option<usize> {
        self.real_ordinals.get(&id).copied()
    }

    async fn claim(&mut self, rng: &mut Rng) {
        // Where groups take turns, enough for several rounds.
        let most = if self.queue.groups.is_some() { rng.usize(1..16) } else { rng.usize(1..5) };
        let crashed_max = if rng.bool() { most } else { rng.usize(0..2) };
        let request = Claim { crashed_max, ..self.random_claim(rng, most) };
        let model = self.model.claimed(request.clone()).await;
        let real = self.real.claimed(request).await;
        self.same("next_due", model.next_due, real.next_due);
        self.same_turns(&model.turns, &real.turns);
        self.turns.extend(model.turns.into_iter().zip(real.turns));
    }

    /// Sometimes for jobs bound to the node too, with a lease of its own, or of several jobs of a key.
    fn random_claim(&self, rng: &mut Rng, lanes_max: usize) -> Claim {
        let mut claim = self.model.claim_request(&self.queue.name, lanes_max);
        claim.node_name = rng.bool().then(|| NODE.into());
        if rng.u8(0..4) == 0 {
            claim.lease = Lease::Own { ttl: Duration::from_secs(rng.u64(1..90)) };
        } else if self.real.store.capabilities().series && rng.bool() {
            claim.series_max = rng.u32(1..5);
        }
        claim
    }

    fn same_turns(&self, model: &[Turn], real: &[Turn]) {
        let model: Vec<_> = model.iter().map(|t| shape(t, &|id| self.ordinal(id))).collect();
        let real: Vec<_> = real.iter().map(|t| shape(t, &|id| self.real_ordinal(id))).collect();
        self.same("what a claim took", model, real);
    }

    async fn settle(&mut self, rng: &mut Rng) {
        let mut chosen = Vec::new();
        for _ in 0..rng.usize(1..4).min(self.turns.len()) {
            // Usually the latest; sometimes a stale one, which must be refused.
            let last = self.turns.len() - 1;
            let place = if rng.u8(0..5) == 0 { rng.usize(0..=last) } else { last };
            let keep_as_stale = rng.u8(0..6) == 0;
            let turn = self.turns[place].clone();
            if !keep_as_stale {
                self.turns.swap_remove(place);
            }
            if chosen.iter().all(|(model, _): &(Turn, Turn)| model.lane != turn.0.lane) {
                chosen.push(turn);
            }
        }
        let verdicts: Vec<Verdict> =
            chosen.iter().map(|(turn, _)| random_verdict(rng, turn.jobs.len())).collect();
        let plan =
            |bench: &Bench, turn: &Turn, verdict: &Verdict| bench.planned(turn, verdict.clone());
        let pairs = chosen.iter().zip(&verdicts);
        let model = pairs.clone().map(|((turn, _), v)| plan(&self.model, turn, v)).collect();
        let real = pairs.map(|((_, turn), v)| plan(&self.real, turn, v)).collect();
        let go_on = self.random_go_on(rng, chosen.len());
        self.promote(&go_on).await;
        let (mut model, mut real) = (
            self.model.settle_and_go_on(model, go_on.clone()).await,
            self.real.settle_and_go_on(real, go_on).await,
        );
        let next = |settled: &mut Settled| match settled {
            Settled::Ok { next, .. } => next.take().map(|turn| *turn),
            _ => None,
        };
        let following: Vec<Turn> = model.iter_mut().filter_map(next).collect();
        let real_following: Vec<Turn> = real.iter_mut().filter_map(next).collect();
        self.same_turns(&following, &real_following);
        self.turns.extend(following.into_iter().zip(real_following));
        let flat = |settled: &Settled, find: &dyn Fn(JobId) -> Option<usize>| match settled {
            Settled::Stale => None,
            Settled::Busy | Settled::Unanswered => panic!("nobody else locks a lane"),
            Settled::Ok { cancelled, .. } => {
                Some(cancelled.iter().map(|id| find(*id)).collect::<Vec<_>>())
            }
        };
        let model: Vec<_> = model.iter().map(|s| flat(s, &|id| self.ordinal(id))).collect();
        let real: Vec<_> = real.iter().map(|s| flat(s, &|id| self.real_ordinal(id))).collect();
        self.same("the answer to a settle", (&verdicts, model), (&verdicts, real));
    }

    /// Lanes stay behind a ready one of better priority. One that became due is ready from the next claim on, or from a
    /// push to it on: here the stores may differ, so both claim nothing before lanes go on.
    async fn promote(&mut self, go_on: &[GoOn]) {
        // Where groups take turns, no lanes go on.
        if go_on.is_empty() || self.queue.groups.is_some() {
            return;
        }
        for bench in [&mut self.model, &mut self.real] {
            let request = bench.claim_request(&self.queue.name, 0);
            assert_eq!(bench.claimed(request).await.turns, []);
        }
    }

    /// Sometimes, the claim by which some lanes of a batch go on.
    fn random_go_on(&self, rng: &mut Rng, turns: usize) -> Vec<GoOn> {
        if !rng.bool() {
            return Vec::new();
        }
        let places: Vec<usize> = (0..turns).filter(|_| rng.u8(0..4) > 0).collect();
        let lanes_max = rng.usize(1..4);
        vec![GoOn { claim: self.random_claim(rng, lanes_max), places }]
    }

    fn random_ids(&self, rng: &mut Rng) -> Option<Ids> {
        (!self.jobs.is_empty()).then(|| self.jobs[rng.usize(0..self.jobs.len())])
    }

    async fn cancel(&mut self, rng: &mut Rng) {
        let Some((model, real)) = self.random_ids(rng) else { return };
        let (model, real) = (self.model.cancel(model).await, self.real.cancel(real).await);
        self.same("the answer to a cancel", model, real);
    }

    async fn beat(&mut self, rng: &mut Rng) {
        let progress: Option<Arc<str>> = rng.bool().then(|| "{\"at\":1}".into());
        let extend = rng.bool().then(|| Duration::from_secs(rng.u64(1..90)));
        let beats = |turns: &[&Turn]| -> Vec<Beat> {
            let beat = |turn: &&Turn| Beat { progress: progress.clone(), extend, ..Beat::of(turn) };
            turns.iter().map(beat).collect()
        };
        let some: Vec<&(Turn, Turn)> = self.turns.iter().rev().take(2).collect();
        let model: Vec<&Turn> = some.iter().map(|(model, _)| model).collect();
        let real: Vec<&Turn> = some.iter().map(|(_, real)| real).collect();
        let (model, real) = (beats(&model), beats(&real));
        let (node, other) = (self.model.node.clone(), self.real.node.clone());
        let model = self.model.beat_as(node, model).await;
        let real = self.real.beat_as(other, real).await;
        self.same("lost lanes", model.lost.len(), real.lost.len());
        let flat = |pulse: &Pulse, find: &dyn Fn(JobId) -> Option<usize>| {
            let mut jobs: Vec<_> =
                pulse.cancel.iter().flat_map(|n| &n.jobs).map(|id| find(*id)).collect();
            jobs.sort_unstable();
            jobs
        };
        let (model, real) =
            (flat(&model, &|id| self.ordinal(id)), flat(&real, &|id| self.real_ordinal(id)));
        self.same("flagged jobs", model, real);
    }

    /// The node dies; another one takes over its claims, in steps.
    async fn crash(&mut self, rng: &mut Rng) {
        let lanes_max = rng.usize(1..5);
        self.pass(LEASE + Duration::from_secs(1));
        let name = format!("pair-{}-{}", self.seed, self.step);
        let mut rescued = Vec::new();
        for bench in [&mut self.model, &mut self.real] {
            bench.node = NodeInfo::new(name.as_str().into(), LEASE);
            bench.beat().await;
            let mut turns = Vec::new();
            loop {
                let some = bench.rescue_some(&bench.node.clone(), lanes_max).await;
                if some.is_empty() {
                    break;
                }
                turns.extend(some);
            }
            // Jobs left in the store by earlier seeds are released.
            let (mut turns, strangers): (Vec<Turn>, Vec<Turn>) =
                turns.into_iter().partition(|turn| *turn.queue == self.queue.name);
            for turn in &strangers {
                bench.end(turn, Outcome::Release).await;
            }
            turns.sort_by_key(|turn| turn.head().map(|job| job.id));
            for turn in &turns {
                assert!(turn.jobs.iter().all(|job| job.payload.as_bytes().is_empty()));
                bench.end(turn, Outcome::Crash { error: "its node died".into() }).await;
            }
            rescued.push(turns);
        }
        self.same_turns(&rescued[0], &rescued[1]);
    }

    /// A person takes claims from their holder, in steps.
    async fn release(&mut self, rng: &mut Rng) {
        let (queue, lanes_max) = (self.queue.name.clone(), rng.usize(1..4));
        let claims = match rng.bool() {
            true => ClaimSelection::Queue(queue.into()),
            false => ClaimSelection::Key { queue: queue.into(), key: random_key(rng) },
        };
        self.release_all(&claims, lanes_max).await;
    }

    async fn release_all(&mut self, claims: &ClaimSelection, lanes_max: usize) {
        let mut released = Vec::new();
        for bench in [&mut self.model, &mut self.real] {
            let mut all = Vec::new();
            loop {
                let (now, claims) = (Some(bench.now), claims.clone());
                let request = Release { now, claims, made_by: now, lanes_max };
                let turns = bench.store.release(request).await.expect("the store answers");
                if turns.is_empty() {
                    break;
                }
                for turn in &turns {
                    bench.end(turn, Outcome::Crash { error: "it was released".into() }).await;
                }
                all.extend(turns);
            }
            all.sort_by_key(|turn| turn.head().map(|job| job.id));
            released.push(all);
        }
        self.same_turns(&released[0], &released[1]);
    }

    async fn requeue(&mut self, rng: &mut Rng) {
        let delete = rng.u8(0..4) == 0;
        let all = rng.bool();
        let ids = self.random_ids(rng);
        let mut counts = Vec::new();
        for (is_model, bench) in [(true, &self.model), (false, &self.real)] {
            let which = match ids {
                Some((model, real)) if !all => {
                    Selection::Jobs(vec![if is_model { model } else { real }])
                }
                _ => Selection::All,
            };
            let queue = self.queue.name.as_str().into();
            let request = Selected { now: Some(bench.now), queue, which };
            let acted = match delete {
                true => bench.store.delete_dead(request).await,
                false => bench.store.requeue(request).await,
            };
            counts.push(acted.expect("the store answers"));
        }
        self.same("requeued or deleted", counts[0], counts[1]);
    }

    async fn act(&mut self, rng: &mut Rng) {
        use LaneAction::{Bury, Delete, DeleteFailed, Pause, Resume, RunNow};
        let action = [Pause, Resume, Resume, RunNow, Bury, DeleteFailed, Delete][rng.usize(0..7)];
        let lanes = match rng.u8(0..4) {
            0 => LaneSelection::Failed,
            1 if action != Delete => LaneSelection::All,
            _ => LaneSelection::Key(random_key(rng)),
        };
        self.act_on(&lanes, action).await;
    }

    async fn act_on(&self, lanes: &LaneSelection, action: LaneAction) {
        let mut counts = Vec::new();
        for bench in [&self.model, &self.real] {
            let queue = self.queue.name.as_str().into();
            let request = Act { now: Some(bench.now), queue, lanes: lanes.clone(), action };
            counts.push(bench.store.act(request).await.expect("the store answers"));
        }
        self.same(&format!("{action:?} of {lanes:?}"), counts[0], counts[1]);
    }

    async fn amend(&mut self, rng: &mut Rng) {
        let Some((model, real)) = self.random_ids(rng) else { return };
        let change = match rng.u8(0..4) {
            0 => Change::Delete,
            1 => Change::Node(rng.bool().then(|| NODE.to_owned())),
            _ => Change::RunAt(self.model.now + Duration::from_secs(rng.u64(0..10))),
        };
        let now = Some(self.model.now);
        let model = self.model.store.amend(Amend { now, job: model, change: change.clone() }).await;
        let real = self.real.store.amend(Amend { now, job: real, change: change.clone() }).await;
        self.same(&format!("the refusal of {change:?}"), refusal(&model), refusal(&real));
    }

    async fn sweep(&mut self) {
        let request = Sweep { now: Some(self.model.now), rows_max: 1_000 };
        let model = self.model.store.sweep(request).await.expect("the model sweeps");
        let real = self.real.store.sweep(request).await.expect("the store sweeps");
        // The store may have jobs left by earlier seeds; the model does not.
        let mut model: Vec<_> = model.expired.iter().map(|id| self.ordinal(*id)).collect();
        let mut real: Vec<_> = real.expired.iter().map(|id| self.real_ordinal(*id)).collect();
        real.retain(Option::is_some);
        model.sort_unstable();
        real.sort_unstable();
        self.same("what expired", model, real);
    }

    async fn compare_all(&mut self) {
        for (model_id, real_id) in self.jobs.clone() {
            let model = self.model.find(model_id).await.map(|job| visible(&job));
            let real = self.real.find(real_id).await.map(|job| visible(&job));
            let place = self.ordinal(model_id);
            self.same(&format!("job {place:?}"), model, real);
        }
        for id in &self.batches {
            self.compare_batch(id).await;
        }
        let (model, real) = (self.numbers(&self.model).await, self.numbers(&self.real).await);
        self.same("the numbers of the queue", model, real);
        let (model, real) = (self.due(&self.model).await, self.due(&self.real).await);
        self.same("when the queue is due", model, real);
    }

    async fn due(&self, bench: &Bench) -> Option<Timestamp> {
        let queues = vec![self.queue.name.as_str().into()];
        bench.store.due(queues).await.expect("the store answers")[0].due
    }

    async fn numbers(&self, bench: &Bench) -> QueueStats {
        let stats = bench.store.stats(Some(bench.now)).await.expect("the store answers");
        let mine = stats.into_iter().find(|stats| *stats.queue == self.queue.name);
        mine.expect("the queue is there")
    }
}

/// A queue with the settings of all queues of this sequence.
fn defined(seed: u64, mut queue: Queue) -> Queue {
    queue.name = format!("q{seed}");
    queue.exhausted = match seed % 3 {
        0 => Exhaustion::Hold,
        1 => Exhaustion::Drop,
        _ => Exhaustion::Bury,
    };
    if seed.is_multiple_of(2) {
        queue = queue.retain_completed(Duration::from_secs(40));
    }
    queue.max_retries(2).max_crashes(3)
}

/// Why an operation was refused, if it was: the kind of the error, and its field.
fn refusal<T>(answer: &seriatim::Result<T>) -> Option<(ErrorKind, Option<&str>)> {
    answer.as_ref().err().map(|error| (error.kind(), error.field()))
}

fn random_key(rng: &mut Rng) -> String {
    KEYS[rng.usize(..KEYS.len())].to_owned()
}

/// Of a group, or of none: for each key always the same.
fn with_group(job: Job, rng: &mut Rng) -> Job {
    let place = match job.key.as_deref() {
        Some(key) => usize::from(key.as_bytes().last().copied().unwrap_or_default()),
        None => rng.usize(..),
    };
    match [None, Some("a"), Some("b")][place % 3] {
        Some(group) => job.group(group),
        None => job,
    }
}

/// A turn without the fields that differ between stores.
fn shape(turn: &Turn, ordinal: &dyn Fn(JobId) -> Option<usize>) -> impl PartialEq + Debug + use<> {
    let job = |job: &seriatim::store::TurnJob| {
        let payload = String::from_utf8_lossy(job.payload.as_bytes()).into_owned();
        (
            ordinal(job.id),
            job.task.clone(),
            payload,
            job.score.to_bits(),
            job.priority,
            job.run_at,
            job.attempt,
        )
    };
    let jobs: Vec<_> = turn.jobs.iter().map(job).collect();
    let trouble = (turn.retry_count, turn.crashes, turn.error.clone());
    (turn.key.clone(), trouble, turn.claimed_at, jobs)
}

/// A job's view without the fields that differ between stores.
fn visible(job: &JobView) -> impl PartialEq + Debug + use<> {
    let times = [Some(job.created_at), Some(job.run_at), job.started_at, job.finished_at];
    let micros = times.map(|time| time.map(Timestamp::as_micros));
    let left = (job.error.clone(), job.result.clone());
    let trouble = (job.retry_count, job.crashes, left, job.cancel_requested);
    let node = job.options.as_ref().and_then(|options| options.node.clone());
    let what = (job.key.clone(), job.task.clone(), job.payload.clone(), job.score.to_bits(), node);
    (job.state, what, job.priority, job.attempt, trouble, micros, job.progress.clone())
}

fn random_verdict(rng: &mut Rng, jobs: usize) -> Verdict {
    let outcome = match rng.u8(0..20) {
        0..8 => Outcome::Done,
        8..13 => failure(),
        13 => Outcome::Retry { error: "soon".into(), retry_in: Some(Duration::from_secs(1)) },
        14 => Outcome::Snooze { length: Duration::from_secs(3) },
        15 => Outcome::Bury { error: "hopeless".into() },
        16 => Outcome::Cancel { reason: "not needed".into() },
        17 => Outcome::Crash { error: "killed".into() },
        _ => Outcome::Release,
    };
    let done = if jobs > 1 && rng.u8(0..3) == 0 { rng.usize(0..jobs) } else { 0 };
    let result = (rng.u8(0..3) == 0).then(|| format!("[{done}]").into());
    Verdict { done, result, ..outcome.into() }
}
