//! Random work with long lists and long payloads. When all its jobs have ended, nothing may be left of them: an entry without a
//! job or a lane would stay for ever. Meanwhile each lane is listed by due time.

use std::ops::Range;

use fastrand::Rng;

use super::by_due::assert_all_are_listed;
use super::*;
use crate::contract::LaneOrder;
use crate::store::{Due, Fate, Keep};
use crate::stores::redis::compact::APART_BYTES_MIN;
use crate::{Groups, Share, Window};

const STEPS: usize = 120;
/// Of each queue, unless `SERIATIM_SEED` says which, as in `0..40`.
const SEEDS: Range<u64> = 0..4;
/// What does not belong to jobs: settings, who waits for a wake-up, and the numbers of routes.
const STAY: [&str; 3] = ["meta", "sleepers", "routes"];

fn seeds() -> Range<u64> {
    let Ok(named) = std::env::var("SERIATIM_SEED") else { return SEEDS };
    let (first, end) = named.split_once("..").expect("two numbers, as in 0..40");
    first.parse().unwrap()..end.parse().unwrap()
}

/// A queue under random work.
struct Work {
    prefix: String,
    store: Arc<Redis>,
    queue: Queue,
    rng: Rng,
    now: Timestamp,
    jobs: Vec<JobId>,
    turns: Vec<Turn>,
}

impl Work {
    async fn of(queue: Queue, seed: u64) -> Self {
        let prefix = new_prefix();
        let store = open(&prefix).await;
        let kept = if seed.is_multiple_of(2) { Duration::ZERO } else { LEASE };
        let queue = queue.retain_completed(kept);
        declare(&store, queue.clone()).await;
        let now = store.now().await.unwrap();
        let rng = Rng::with_seed(seed);
        Self { prefix, store, queue, rng, now, jobs: Vec::new(), turns: Vec::new() }
    }

    async fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.rng.u64(0..2_000));
        match self.rng.u8(0..100) {
            0..25 => self.push().await,
            25..45 => self.claim().await,
            45..70 => self.settle().await,
            70..82 => self.cancel().await,
            82..88 => self.act().await,
            88..92 => self.amend().await,
            92..94 => self.release().await,
            94..97 => self.requeue().await,
            97..98 => self.beat().await,
            _ => self.sweep(self.now).await,
        }
    }

    fn job(&mut self) -> Job {
        let rng = &mut self.rng;
        let bytes = match rng.u8(0..6) {
            0 => APART_BYTES_MIN,
            1 if rng.u8(0..4) == 0 => 70_000,
            _ => 1,
        };
        let tag = rng.u32(0..500);
        let mut job = Job::new("q", &format!("{tag}{}", "-".repeat(bytes))).unwrap();
        if self.queue.mode.is_keyed() {
            job = job.key(format!("k{}", rng.u32(0..3)));
        }
        if self.queue.groups.is_some() {
            // A key has one group.
            let group = job.key.clone().unwrap_or_else(|| format!("g{}", rng.u32(0..3)));
            job = job.group(group);
        }
        match rng.u8(0..30) {
            0 => job = job.score(f64::from(rng.i32(-3..4))),
            1 => job = job.priority(rng.u16(0..3)),
            2 => job = job.run_in(Duration::from_secs(rng.u64(0..20))),
            3 => job = job.expires_at(self.now + Duration::from_secs(rng.u64(1..60))),
            4 => job = job.idempotency_key(format!("{}", rng.u32(0..9))),
            5 => job = job.task("other"),
            6 => job.options.lease_ttl = Some(LEASE),
            _ => {}
        }
        job
    }

    async fn push(&mut self) {
        let most = if self.rng.bool() { 4 } else { 60 };
        let jobs: Vec<Job> = (0..self.rng.usize(1..most)).map(|_| self.job()).collect();
        let request = Push { now: Some(self.now), jobs };
        let pushed = self.store.push(request).await.unwrap();
        self.jobs.extend(pushed.iter().map(|pushed| pushed.job_id));
    }

    async fn claim(&mut self) {
        let lease = match self.rng.bool() {
            true => Lease::Node { ttl: LEASE },
            false => Lease::Own { ttl: LEASE },
        };
        let bytes_max = (self.rng.u8(0..4) == 0).then_some(5_000);
        let series_max = if self.rng.bool() { 1 } else { 8 };
        let now = Some(self.now);
        let request = Claim { now, lease, bytes_max, series_max, ..claim_request("q", 3) };
        self.turns.extend(self.store.claim(request).await.unwrap().turns);
    }

    fn settlement(&mut self, turn: &Turn) -> Settlement {
        let all = [Fate::Done, Fate::Keep, Fate::Bury, Fate::Drop, Fate::Cancel, Fate::Expire];
        let rng = &mut self.rng;
        let rest = if rng.bool() { Fate::Done } else { all[rng.usize(0..all.len())] };
        let mut end = Settlement { rest, ..Settlement::done(turn.lane, turn.token) };
        if rest == Fate::Done {
            return end;
        }
        let is_series = self.queue.hands_over_in_parts(turn);
        let mut owner = turn.jobs[0].id;
        if is_series || rng.u8(0..4) == 0 {
            let fate = if is_series { Fate::Done } else { all[rng.usize(0..all.len())] };
            let ended = rng.usize(0..turn.jobs.len());
            end.exceptions = turn.jobs[..ended].iter().map(|job| (job.id, fate)).collect();
            owner = turn.jobs[ended].id;
        }
        let crashes = u32::from(rng.u8(0..5) == 0);
        end.keep = Keep {
            job: (self.queue.mode != Mode::Accumulate).then_some(owner),
            retry_count: turn.retry_count + 1,
            crashes,
            counted: rng.u8(0..5) > 0,
            hold: rng.u8(0..8) == 0,
            error: Some("it failed".into()),
            due: match rng.u8(0..3) {
                0 => Due::Now,
                1 => Due::In(Duration::from_secs(rng.u64(0..10))),
                _ => Due::Unchanged,
            },
            others_unstarted: is_series,
        };
        end
    }

    async fn settle(&mut self) {
        let most = self.rng.usize(1..4).min(self.turns.len());
        let turns: Vec<Turn> = self.turns.drain(..most).collect();
        let turns = turns.iter().map(|turn| self.settlement(turn)).collect();
        self.store.settle(Settle { now: Some(self.now), ..Settle::now(turns) }).await.unwrap();
    }

    /// Many neighbours, so that whole runs of a list go.
    async fn cancel(&mut self) {
        let first = self.rng.usize(0..=self.jobs.len());
        let end = self.jobs.len().min(first + self.rng.usize(0..80));
        let jobs = self.jobs[first..end].to_vec();
        self.store.cancel(Cancel { now: Some(self.now), jobs }).await.unwrap();
    }

    async fn act(&mut self) {
        let action = match self.rng.u8(0..6) {
            0 => LaneAction::Pause,
            1 => LaneAction::Resume,
            2 => LaneAction::RunNow,
            3 => LaneAction::Bury,
            4 => LaneAction::DeleteFailed,
            _ => LaneAction::Delete,
        };
        let lanes = if self.rng.bool() {
            LaneSelection::All
        } else {
            LaneSelection::Key(format!("k{}", self.rng.u32(0..3)))
        };
        self.store
            .act(Act { now: Some(self.now), queue: "q".into(), lanes, action })
            .await
            .unwrap();
    }

    async fn amend(&mut self) {
        let Some(job) = self.rng.choice(&self.jobs).copied() else { return };
        let change = match self.rng.bool() {
            true => Change::Delete,
            false => Change::RunAt(self.now + Duration::from_secs(self.rng.u64(0..9))),
        };
        // It may have ended, or run.
        let _ = self.store.amend(Amend { now: Some(self.now), job, change }).await;
    }

    async fn release(&mut self) {
        let claims = ClaimSelection::Queue("q".into());
        let request = Release { now: Some(self.now), claims, lanes_max: 2, made_by: None };
        self.turns.extend(self.store.release(request).await.unwrap());
    }

    async fn requeue(&mut self) {
        let which = Selection::All;
        let request = Selected { now: Some(self.now), queue: "q".into(), which };
        if self.rng.bool() {
            self.store.requeue(request).await.unwrap();
        } else {
            self.store.delete_dead(request).await.unwrap();
        }
    }

    async fn beat(&mut self) {
        let (progress, extend) = (Some("1".into()), Some(LEASE));
        let beat = |turn| Beat { progress: progress.clone(), extend, ..Beat::of(turn) };
        let beats = self.turns.iter().map(beat).collect();
        let node = NodeInfo::new("n".into(), LEASE);
        self.store.heartbeat(Heartbeat { now: Some(self.now), node, beats }).await.unwrap();
    }

    async fn sweep(&self, now: Timestamp) {
        while self.store.sweep(Sweep { now: Some(now), rows_max: 1_000 }).await.unwrap().more {}
    }

    /// Pages by due time are all lanes in this order, whatever was done to them.
    async fn list(&mut self) {
        let rng = &mut self.rng;
        let stages = LaneStage::ALL.into_iter().filter(|_| rng.u8(0..4) == 0).collect();
        let from = (rng.u8(0..3) == 0).then_some(LanePlace::Due(self.now));
        let query = LaneQuery {
            now: Some(self.now),
            order: LaneOrder::Due,
            stages,
            from,
            rows_max: rng.usize(1..200),
            scan_max: rng.bool().then(|| rng.usize(1..300)),
            ..LaneQuery::new("q")
        };
        assert_all_are_listed(&self.store, query).await;
    }

    /// Ends all that is left, as people would.
    async fn end(&mut self) {
        loop {
            let claims = ClaimSelection::Queue("q".into());
            let request = Release { now: Some(self.now), claims, lanes_max: 100, made_by: None };
            let turns = self.store.release(request).await.unwrap();
            if turns.is_empty() {
                break;
            }
            let settle = Settle { now: Some(self.now), ..settle_done(&turns) };
            assert!(self.store.settle(settle).await.unwrap().iter().all(Settled::is_ok));
        }
        let (lanes, action) = (LaneSelection::All, LaneAction::Delete);
        self.store
            .act(Act { now: Some(self.now), queue: "q".into(), lanes, action })
            .await
            .unwrap();
        let which = Selection::All;
        let dead = Selected { now: Some(self.now), queue: "q".into(), which };
        self.store.delete_dead(dead).await.unwrap();
        // Entries of `arrivals` that mean nothing any more go with the next claim.
        assert!(claim(&self.store, 100).await.is_empty());
        // Longer than anything is kept; keys of jobs that the first sweep removed go with the second one.
        for days in [30, 60] {
            self.sweep(self.now + Duration::from_secs(days * 86_400)).await;
        }
    }

    async fn assert_nothing_is_left(&self, what: &str) {
        let mut link = linked(&url()).await;
        let shard = format!("{}:{{q1:0}}:", self.prefix);
        let mut cmd = ::redis::cmd("KEYS");
        let mut keys: Vec<String> =
            cmd.arg(format!("{shard}*")).query_async(&mut link).await.unwrap();
        keys.retain(|key| key.strip_prefix(&shard).is_some_and(|name| !STAY.contains(&name)));
        assert_eq!(keys, [""; 0], "left of {what}");
        let mut cmd = ::redis::cmd("HMGET");
        cmd.arg(format!("{shard}meta")).arg(&["lanes", "jobs", "running", "grouped"]);
        let counts: Vec<Option<i64>> = cmd.query_async(&mut link).await.unwrap();
        assert!(counts.iter().flatten().all(|count| *count == 0), "{counts:?}, {what}");
    }
}

async fn leaves_nothing(queue: Queue) {
    for seed in seeds() {
        let mut work = Work::of(queue.clone(), seed).await;
        for _ in 0..STEPS {
            work.step().await;
            work.list().await;
        }
        work.end().await;
        work.assert_nothing_is_left(&format!("seed {seed}, {:?}", queue.mode)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_work_in_parallel_leaves_nothing() {
    leaves_nothing(Queue::parallel("q")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_work_in_fifo_leaves_nothing() {
    leaves_nothing(Queue::fifo("q")).await;
    leaves_nothing(Queue::fifo("q").take(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_work_in_accumulate_leaves_nothing() {
    leaves_nothing(Queue::accumulate("q")).await;
    leaves_nothing(Queue::accumulate("q").merge(Merge::None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_work_with_a_window_leaves_nothing() {
    let second = Duration::from_secs(1);
    leaves_nothing(Queue::accumulate("q").window(Window::new(second, 5 * second))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_work_in_exclusive_leaves_nothing() {
    leaves_nothing(Queue::exclusive("q")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_work_of_groups_leaves_nothing() {
    let groups = Groups::each(Share::default().weight(2).running(3));
    leaves_nothing(Queue::parallel("q").groups(groups.clone())).await;
    leaves_nothing(Queue::fifo("q").groups(groups).running(4)).await;
}
