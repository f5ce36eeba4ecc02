//! What calls on one lane read does not depend on what waits behind, for the tests of the stores that count it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::contract::{
    Act, Cancel, Cancelled, Claim, ClaimSelection, Declare, GoOn, Heartbeat, LaneAction, LaneQuery,
    LaneSelection, Lease, NodeInfo, Push, Release, Rescue, Settle, Settled, Store, Sweep,
};
use crate::model::clock::Timestamp;
use crate::model::id::{JobId, NodeId};
use crate::model::job::Job;
#[cfg(feature = "postgres")]
use crate::model::limits::TURN_JOBS_MAX;
use crate::model::past::Past;
use crate::model::queue::{DueRule, Mode, Queue};
use crate::model::settle::{Outcome, plan};
use crate::model::turn::Turn;

/// Jobs that wait in a lane, and more of them.
const DEPTHS: [u32; 2] = [10, 100_000];
/// Rows and index entries that a call may read more where more jobs wait: the pages of the index are other ones.
const SLACK: i64 = 40;
/// Dead jobs that a sweep does not look through.
const DEAD: usize = 3_000;
const LEASE: Duration = Duration::from_secs(60);

/// A store that counts what it reads.
pub(super) trait Gauge {
    /// Calls that read the jobs of the lane all the same.
    const EXCEPT: &[&str] = &[];

    fn store(&self) -> &dyn Store;

    /// The rows and index entries that a call reads.
    async fn counted<T>(&self, call: impl Future<Output = crate::Result<T>>) -> (T, i64);

    /// Adds copies of this job behind the others of its lane.
    async fn deepen(&self, job: JobId, copies: u32) -> Vec<JobId>;
}

/// Calls on the one lane of a queue.
struct Calls<'a, G> {
    gauge: &'a G,
    queue: Queue,
    node: NodeId,
    /// What each has read.
    read: Vec<(&'static str, i64)>,
}

impl<G: Gauge> Calls<'_, G> {
    async fn call<T>(
        &mut self,
        name: &'static str,
        call: impl Future<Output = crate::Result<T>>,
    ) -> T {
        let (answer, read) = self.gauge.counted(call).await;
        self.read.push((name, read));
        answer
    }

    fn job(&self, tag: u32) -> Job {
        Job::new(&*self.queue.name, &tag).unwrap().key("deep")
    }

    async fn push(&mut self, name: &'static str, job: Job) {
        let store = self.gauge.store();
        self.call(name, store.push(Push { now: None, jobs: vec![job] })).await;
    }

    fn claim(&self) -> Claim {
        Claim::new(&*self.queue.name, self.node.clone(), 1, Lease::Node { ttl: LEASE })
    }

    fn settle(&self, turn: &Turn, outcome: Outcome, goes_on: bool) -> Settle {
        let end = plan(turn, &self.queue, &outcome.into(), &|_| Duration::ZERO);
        let go_on = goes_on.then(|| GoOn { claim: self.claim(), places: vec![0] });
        Settle {
            now: None,
            turns: vec![end],
            go_on: go_on.into_iter().collect(),
            skip_locked: true,
        }
    }

    /// Before anything is claimed.
    async fn of_waiting(&mut self, depth: u32) {
        let store = self.gauge.store();
        let is_later = self.queue.due == DueRule::Earliest;
        let first = |job: Job| if is_later { job.run_in(LEASE * 600) } else { job };
        let jobs: Vec<Job> = (0..DEPTHS[0]).map(|tag| first(self.job(tag))).collect();
        let pushed = store.push(Push { now: None, jobs }).await.unwrap();
        let mut ids: Vec<JobId> = pushed.iter().map(|pushed| pushed.job_id).collect();
        if depth > DEPTHS[0] {
            ids.extend(self.gauge.deepen(ids[1], depth - DEPTHS[0]).await);
        }
        // The first, one in the middle, and the last.
        let jobs = vec![ids[0], ids[ids.len() / 2], ids[ids.len() - 1]];
        let cancelled = self.call("a cancel", store.cancel(Cancel { now: None, jobs })).await;
        assert_eq!(cancelled, [Cancelled::Now; 3]);
        self.push("a push", self.job(depth)).await;
        self.push("a named push", self.job(depth + 1).idempotency_key("one")).await;
        let lanes = LaneQuery::new(&*self.queue.name);
        let shown = self.call("a listing of lanes", store.lanes(lanes)).await.rows;
        assert_eq!(shown[0].jobs, u64::from(depth) - 1);
        self.call("statistics", store.stats(None)).await;
        let soon = Timestamp::of_this_machine() + LEASE;
        self.push("a push that expires", self.job(depth + 2).expires_at(soon)).await;
        let sweep = Sweep { now: Some(soon), rows_max: 9 };
        assert_eq!(self.call("a sweep", store.sweep(sweep)).await.expired.len(), 1);
        let actions = [LaneAction::Pause, LaneAction::Resume, LaneAction::RunNow];
        for (name, action) in ["a pause", "a resume", "a run at once"].into_iter().zip(actions) {
            let (queue, lanes) =
                (self.queue.name.as_str().into(), LaneSelection::Key("deep".into()));
            let act = Act { now: None, queue, lanes, action };
            assert_eq!(self.call(name, store.act(act)).await.count, 1);
        }
    }

    /// Turns of the lane, and how they end.
    async fn of_turns(&mut self, depth: u32) {
        let store = self.gauge.store();
        let retry = Outcome::Retry { error: "e".into(), retry_in: Some(Duration::ZERO) };
        let ends = [("a settle", Outcome::Done), ("a failure", retry), ("its end", Outcome::Done)];
        for (end, outcome) in ends {
            let turn = self.call("a claim", store.claim(self.claim())).await.turns.remove(0);
            self.push("a push meanwhile", self.job(depth + 3)).await;
            let held = LaneQuery {
                node: Some(self.node.clone()),
                bare: true,
                ..LaneQuery::new(&*self.queue.name)
            };
            let held = self.call("a listing of what a node holds", store.lanes(held)).await.rows;
            assert_eq!((held[0].lane, held[0].token), (turn.lane, Some(turn.token)));
            let seen = self.call("a look at the turn", store.turn(turn.lane, turn.token)).await;
            assert_eq!(seen.unwrap().jobs.len(), turn.jobs.len());
            let claims = ClaimSelection::Lane(turn.lane);
            let release = Release { now: None, claims, made_by: None, lanes_max: 1 };
            let taken = self.call("a release", store.release(release)).await;
            let request = self.settle(&taken[0], outcome, false);
            self.call(end, store.settle(request)).await;
        }
    }

    /// Its node dies while the lane goes on.
    async fn of_rescue(&mut self) {
        let store = self.gauge.store();
        let turn = store.claim(self.claim()).await.unwrap().turns.remove(0);
        let request = self.settle(&turn, Outcome::Done, true);
        let mut settled = self.call("a settle whose lane goes on", store.settle(request)).await;
        let Settled::Ok { next: Some(turn), .. } = settled.remove(0) else { panic!("it goes on") };
        let later = Some(Timestamp::of_this_machine() + LEASE * 2);
        let node = NodeInfo::new("rescuer".into(), LEASE);
        let beat = Heartbeat { now: later, node: node.clone(), beats: Vec::new() };
        store.heartbeat(beat).await.unwrap();
        let rescue = Rescue { now: later, node: node.id, lease: LEASE, lanes_max: 9, ticket: 0 };
        let taken = self.call("a rescue", store.rescue(rescue)).await;
        assert_eq!(taken.iter().map(|taken| taken.lane).collect::<Vec<_>>(), [turn.lane]);
        let request = self.settle(&taken[0], Outcome::Done, false);
        store.settle(request).await.unwrap();
    }
}

/// What each call on one lane reads, behind which this many jobs wait.
async fn entries_read(gauge: &impl Gauge, queue: Queue, depth: u32) -> Vec<(&'static str, i64)> {
    let store = gauge.store();
    store.declare(Declare { now: None, queues: vec![queue.clone()] }).await.unwrap();
    // It will be dead, so each queue has its own.
    let node = NodeInfo::new(format!("of {}", queue.name).as_str().into(), LEASE);
    let mut calls = Calls { gauge, queue, node: node.id.clone(), read: Vec::new() };
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    // The figures of calls on earlier queues are not this one's.
    store.sweep(Sweep { now: None, rows_max: 9 }).await.unwrap();
    calls.of_waiting(depth).await;
    // A turn of accumulate takes what waits, if that is not more than it can take.
    if calls.queue.mode != Mode::Accumulate {
        calls.of_turns(depth).await;
        calls.of_rescue().await;
    }
    calls.read
}

/// What the turns of a key read, behind which this many jobs wait: more than a turn takes.
#[cfg(feature = "postgres")]
async fn entries_of_turns(gauge: &impl Gauge, depth: u32) -> Vec<(&'static str, i64)> {
    let (store, queue) = (gauge.store(), Queue::accumulate(format!("deep-{depth}")));
    store.declare(Declare { now: None, queues: vec![queue.clone()] }).await.unwrap();
    let node = NodeInfo::new("n".into(), LEASE);
    let mut calls = Calls { gauge, queue, node: node.id.clone(), read: Vec::new() };
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    let jobs = vec![calls.job(1), calls.job(2)];
    let pushed = store.push(Push { now: None, jobs }).await.unwrap();
    gauge.deepen(pushed[1].job_id, depth - 2).await;
    let retry = Outcome::Retry { error: "e".into(), retry_in: Some(Duration::ZERO) };
    for (end, outcome) in [("a failure", retry), ("a settle", Outcome::Done)] {
        let turn = calls.call("a claim", store.claim(calls.claim())).await.turns.remove(0);
        assert_eq!(turn.jobs.len(), TURN_JOBS_MAX);
        let request = calls.settle(&turn, outcome, false);
        calls.call(end, store.settle(request)).await;
    }
    calls.read
}

/// Each turn has as many jobs as it can, so what it reads is compared in proportion.
#[cfg(feature = "postgres")]
pub(super) async fn a_turn_of_a_deep_key_reads_its_own_jobs(gauge: &impl Gauge) {
    let most = TURN_JOBS_MAX as u32;
    let few = entries_of_turns(gauge, most + most / 10).await;
    let many = entries_of_turns(gauge, most * 2).await;
    let mut much = Vec::new();
    for ((call, few), (_, many)) in few.into_iter().zip(many) {
        println!("{call}: {few}, then {many}");
        if many > few + few / 10 + SLACK {
            much.push(format!("{call}: {few}, then {many}"));
        }
    }
    assert!(much.is_empty(), "{}", much.join("\n"));
}

/// `fresh` makes a store for each queue.
pub(super) async fn what_waits_behind_is_not_read<G: Gauge>(fresh: impl AsyncFn() -> G) {
    let queues = |depth: u32| {
        [
            Queue::fifo(format!("fifo-{depth}")),
            Queue::fifo(format!("several-{depth}")).take(3),
            Queue::exclusive(format!("exclusive-{depth}")),
            Queue::accumulate(format!("accumulate-{depth}")),
            Queue::accumulate(format!("earliest-{depth}")).due(DueRule::Earliest),
        ]
    };
    let mut much = Vec::new();
    for (few, many) in queues(DEPTHS[0]).into_iter().zip(queues(DEPTHS[1])) {
        let name = many.name.clone();
        let few = entries_read(&fresh().await, few, DEPTHS[0]).await;
        let many = entries_read(&fresh().await, many, DEPTHS[1]).await;
        for ((call, few), (_, many)) in few.into_iter().zip(many) {
            if many > few + SLACK && !G::EXCEPT.contains(&call) {
                much.push(format!("{call} in {name}: {few}, then {many}"));
            }
        }
    }
    assert!(much.is_empty(), "{}", much.join("\n"));
}

/// `pushed` is called when there are dead jobs.
pub(super) async fn a_sweep_reads_only_what_it_deletes(
    gauge: &impl Gauge,
    pushed: impl AsyncFnOnce(),
) {
    let store = gauge.store();
    let declare = async |queue: Queue| {
        store.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
    };
    let queue = Queue::fifo("q");
    declare(queue.clone()).await;
    let now = Timestamp::of_this_machine();
    let of_nothing = Sweep { now: Some(now), rows_max: 1_000 };
    let (_, least) = gauge.counted(store.sweep(of_nothing)).await;
    // Ten die together, the last ones first. Of ten, those that come later were created earlier.
    let at = |i: usize| now - LEASE * (i / 10) as u32;
    let dead = |i: usize| {
        let created_at = Some(now - LEASE * (1_000 + i as u32));
        let past = Past { created_at, dead_at: Some(at(i)), ..Past::default() };
        Job::new("q", &i).unwrap().key(format!("k{i}")).past(past)
    };
    let jobs = (0..DEAD).map(dead).collect();
    let ids = store.push(Push { now: None, jobs }).await.unwrap();
    pushed().await;
    let mut oldest: Vec<_> = ids.iter().map(|pushed| pushed.job_id).enumerate().collect();
    oldest.sort_by_key(|(i, id)| (at(*i), id.seq()));
    let oldest: Vec<JobId> = oldest.into_iter().map(|(_, id)| id).collect();
    let sweep = async || {
        let sweep = store.sweep(Sweep { now: Some(now), rows_max: 1_000 });
        let (swept, read) = gauge.counted(sweep).await;
        let most = least + SLACK + 10 * swept.dead.len() as i64;
        assert!(read <= most, "{read} rows and entries for {} jobs", swept.dead.len());
        let mut dead = swept.dead;
        dead.sort_by_key(|id| oldest.iter().position(|old| old == id));
        dead
    };
    assert!(sweep().await.is_empty());
    declare(queue.clone().retain_dead_max(DEAD as u64 - 15)).await;
    assert_eq!(sweep().await, oldest[..15], "those above the limit");
    let retained = DEAD as u32 / 10 - 3;
    declare(queue.retain_dead(LEASE * retained)).await;
    assert_eq!(sweep().await, oldest[15..30], "those that are too old");
    assert!(sweep().await.is_empty());
}
