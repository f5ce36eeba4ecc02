//! A store under test, with its own clock and short names for operations.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use seriatim::store::*;
use seriatim::{
    ErrorKind, Job, JobId, Mode, Outcome, Queue, SharedStore, Timestamp,
    store::{NodeId, Settlement, Turn, Verdict, plan},
};

use super::case::SEQUENCES;

/// The lease of claims in the cases.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// The retry delay in the cases.
pub(super) const WAIT: Duration = Duration::from_secs(10);

/// A store under test.
pub struct Bench {
    pub store: SharedStore,
    pub now: Timestamp,
    pub node: NodeInfo,
    queues: Vec<Queue>,
    /// The random sequences to run.
    pub(super) sequences: Range<u64>,
}

impl Bench {
    /// Migrates the store and registers a node with it.
    pub async fn new(store: SharedStore) -> Self {
        store.migrate().await.expect("the store migrates");
        let node = NodeInfo::new("node-1".into(), LEASE);
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let (queues, sequences) = (Vec::new(), 0..SEQUENCES);
        let mut bench = Self { store, now, node, queues, sequences };
        bench.beat().await;
        bench
    }

    /// Lets time pass.
    pub fn pass(&mut self, length: Duration) {
        self.now = self.now + length;
    }

    pub async fn beat(&mut self) -> Pulse {
        self.beat_as(self.node.clone(), Vec::new()).await
    }

    pub async fn beat_as(&mut self, node: NodeInfo, beats: Vec<Beat>) -> Pulse {
        let request = Heartbeat { now: Some(self.now), node, beats };
        self.store.heartbeat(request).await.expect("a heartbeat is taken")
    }

    /// Registers another node.
    pub async fn other_node(&mut self, id: &str) -> NodeInfo {
        let node = NodeInfo::new(id.into(), LEASE);
        self.beat_as(node.clone(), Vec::new()).await;
        node
    }

    pub async fn declare(&mut self, queue: Queue) {
        self.try_declare(queue).await.expect("the queue is declared");
    }

    pub async fn try_declare(&mut self, queue: Queue) -> seriatim::Result<()> {
        let request = Declare { now: Some(self.now), queues: vec![queue.clone()] };
        self.store.declare(request).await?;
        self.plan_by(queue);
        Ok(())
    }

    /// Plans what becomes of turns by this definition from now on.
    pub(super) fn plan_by(&mut self, queue: Queue) {
        self.queues.retain(|known| known.name != queue.name);
        self.queues.push(queue);
    }

    /// Declares the queue `q` in this mode.
    pub async fn queue(&mut self, mode: Mode) {
        self.declare(Queue::new("q", mode)).await;
    }

    pub async fn push(&mut self, job: Job) -> Pushed {
        self.push_all(vec![job]).await[0]
    }

    pub async fn push_all(&mut self, jobs: Vec<Job>) -> Vec<Pushed> {
        self.try_push(jobs).await.expect("the push is taken")
    }

    pub async fn try_push(&mut self, jobs: Vec<Job>) -> seriatim::Result<Vec<Pushed>> {
        self.store.push(Push { now: Some(self.now), jobs }).await
    }

    pub fn claim_request(&self, queue: &str, lanes_max: usize) -> Claim {
        Claim {
            now: Some(self.now),
            ..Claim::new(queue, self.node.id.clone(), lanes_max, Lease::Node { ttl: LEASE })
        }
    }

    pub async fn claim(&mut self, lanes_max: usize) -> Vec<Turn> {
        self.claimed(self.claim_request("q", lanes_max)).await.turns
    }

    pub async fn claimed(&mut self, request: Claim) -> Claimed {
        self.store.claim(request).await.expect("the claim is answered")
    }

    pub async fn claim_by(&mut self, node: &NodeId, lanes_max: usize) -> Vec<Turn> {
        let request = Claim { node: node.clone(), ..self.claim_request("q", lanes_max) };
        self.claimed(request).await.turns
    }

    /// Claims the only claimable lane.
    pub async fn one(&mut self) -> Turn {
        let mut turns = self.claim(10).await;
        assert_eq!(turns.len(), 1, "one lane can be claimed: {turns:?}");
        turns.remove(0)
    }

    pub async fn nothing(&mut self) -> Option<Timestamp> {
        let claimed = self.claimed(self.claim_request("q", 10)).await;
        assert_eq!(claimed.turns, [], "no lane can be claimed");
        claimed.next_due
    }

    pub fn planned(&self, turn: &Turn, verdict: impl Into<Verdict>) -> Settlement {
        let queue = self.queues.iter().find(|queue| queue.name == *turn.queue);
        let implied = Queue::implied(&turn.queue, turn.key.is_some());
        plan(turn, queue.unwrap_or(&implied), &verdict.into(), &|_| WAIT)
    }

    pub async fn end(&mut self, turn: &Turn, verdict: impl Into<Verdict>) -> Settled {
        let settlement = self.planned(turn, verdict);
        self.settle(vec![settlement]).await.remove(0)
    }

    pub async fn settle(&mut self, turns: Vec<Settlement>) -> Vec<Settled> {
        self.settle_and_go_on(turns, Vec::new()).await
    }

    pub async fn settle_and_go_on(
        &mut self,
        turns: Vec<Settlement>,
        go_on: Vec<GoOn>,
    ) -> Vec<Settled> {
        // As the engine asks: here nobody else locks a lane.
        let request = Settle { now: Some(self.now), turns, go_on, skip_locked: true };
        self.store.settle(request).await.expect("the settle is answered")
    }

    pub async fn done(&mut self, turn: &Turn) {
        assert!(self.end(turn, Outcome::Done).await.is_ok(), "the turn is settled");
    }

    pub async fn fail(&mut self, turn: &Turn) {
        assert!(self.end(turn, failure()).await.is_ok(), "the failure is settled");
    }

    pub async fn rescue(&mut self, node: &NodeInfo) -> Vec<Turn> {
        self.rescue_some(node, 1_000).await
    }

    pub async fn rescue_some(&mut self, node: &NodeInfo, lanes_max: usize) -> Vec<Turn> {
        let request = Rescue {
            now: Some(self.now),
            node: node.id.clone(),
            lease: LEASE,
            lanes_max,
            ticket: 0,
        };
        self.store.rescue(request).await.expect("rescue is answered")
    }

    /// Releases claims.
    pub async fn release(&mut self, claims: ClaimSelection) -> Vec<Turn> {
        let request = Release { now: Some(self.now), claims, made_by: None, lanes_max: 1_000 };
        self.store.release(request).await.expect("release is answered")
    }

    /// Deletes queue `q`, at most `rows_max` rows per step. Returns the numbers of jobs and steps.
    pub async fn delete_queue(&mut self, rows_max: usize) -> (u64, usize) {
        let (mut count, mut steps) = (0, 0);
        loop {
            let acted = self.delete_step(rows_max).await.expect("a step is answered");
            (count, steps) = (count + acted.count, steps + 1);
            if !acted.more {
                return (count, steps);
            }
        }
    }

    pub async fn delete_step(&mut self, rows_max: usize) -> seriatim::Result<Acted> {
        self.store.delete_queue(DeleteQueue { queue: "q".into(), rows_max }).await
    }

    /// Declares a node dead if its last heartbeat was at `heartbeat_at`.
    pub async fn declare_dead(&mut self, node: &NodeInfo, heartbeat_at: Timestamp) -> bool {
        let request = DeclareDead { now: Some(self.now), node: node.id.clone(), heartbeat_at };
        self.store.declare_dead(request).await.expect("it is answered")
    }

    /// Rescues claims and settles them as crashes, as the engine does. Returns their number.
    pub async fn crash_all(&mut self, node: &NodeInfo) -> usize {
        let turns = self.rescue(node).await;
        for turn in &turns {
            let crash = Outcome::Crash { error: "its node died".into() };
            assert!(self.end(turn, crash).await.is_ok());
        }
        turns.len()
    }

    pub async fn job(&mut self, id: JobId) -> JobView {
        self.find(id).await.expect("the job is known")
    }

    pub async fn find(&mut self, id: JobId) -> Option<JobView> {
        self.store.job(id).await.expect("the store answers")
    }

    pub async fn state(&mut self, id: JobId) -> Option<JobState> {
        self.find(id).await.map(|job| job.state)
    }

    pub async fn cancel(&mut self, id: JobId) -> Cancelled {
        let request = Cancel { now: Some(self.now), jobs: vec![id] };
        self.store.cancel(request).await.expect("the store answers")[0]
    }

    /// Removes a waiting or dead job.
    pub async fn forget(&mut self, id: JobId) {
        self.cancel(id).await;
        let which = Selection::Jobs(vec![id]);
        let request = Selected { now: Some(self.now), queue: "q".into(), which };
        self.store.delete_dead(request).await.expect("the store answers");
    }

    pub async fn requeue_all(&mut self) -> u64 {
        let request = Selected { now: Some(self.now), queue: "q".into(), which: Selection::All };
        self.store.requeue(request).await.expect("the store answers").count
    }

    pub async fn act(&mut self, lanes: LaneSelection, action: LaneAction) -> u64 {
        let request = Act { now: Some(self.now), queue: "q".into(), lanes, action };
        self.store.act(request).await.expect("the store answers").count
    }

    pub async fn stats(&mut self) -> QueueStats {
        let all = self.store.stats(Some(self.now)).await.expect("the store answers");
        all.into_iter().find(|stats| &*stats.queue == "q").expect("the queue has numbers")
    }

    pub async fn dead(&mut self) -> Vec<JobView> {
        let query = JobQuery::new("q", JobState::Dead);
        self.store.jobs(query).await.expect("the store answers").rows
    }
}

/// A job for queue `q`, key `k`, with this tag.
pub(super) fn job(tag: &str) -> Job {
    loose(tag).key("k")
}

/// A job for queue `q` without a key.
pub(super) fn loose(tag: &str) -> Job {
    Job::new("q", &json!({ "tag": tag })).expect("it is JSON")
}

pub(super) fn failure() -> Outcome {
    Outcome::Retry { error: "it failed".into(), retry_in: None }
}

/// The tags of a turn's jobs, in order.
pub(super) fn tags(turn: &Turn) -> Vec<String> {
    turn.jobs.iter().map(|job| tag(&job.payload)).collect()
}

pub(super) fn tag(payload: &seriatim::Payload) -> String {
    payload.to_value()["tag"].as_str().unwrap_or("").to_owned()
}

pub(super) fn keys(turns: &[Turn]) -> Vec<&str> {
    turns.iter().map(|turn| turn.key.as_deref().unwrap_or("")).collect()
}

pub(super) fn refused<T: std::fmt::Debug>(
    result: seriatim::Result<T>,
    kind: ErrorKind,
    field: &str,
) {
    let error = result.expect_err("it is refused");
    assert_eq!((error.kind(), error.field()), (kind, Some(field)), "{error}");
}

pub(super) fn arc(text: &str) -> Arc<str> {
    text.into()
}
