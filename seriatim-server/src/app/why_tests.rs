use seriatim::store::{
    Claim, Declare, Heartbeat, LaneAction, LaneQuery, Lease, Memory, NodeId, NodeInfo, Push,
    Settle, Store, Trouble, TroubleKind, Turn, plan,
};
use seriatim::{Exhaustion, Job, Outcome, Queue, Window};

use super::super::entity::Entity;
use super::super::find;
use super::super::lanes::{self, OneLane};
use super::*;

const LEASE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A store in which one queue has a job of key `k`.
struct House {
    store: Arc<dyn Store>,
    queue: Queue,
}

impl House {
    async fn new(queue: Queue, job: impl FnOnce(Job) -> Job) -> Self {
        let house = Self { store: Arc::new(Memory::in_tokio_time()), queue };
        let queues = vec![house.queue.clone()];
        house.store.declare(Declare { now: None, queues }).await.unwrap();
        let jobs = vec![job(Job::new("q", &1).unwrap().key("k"))];
        house.store.push(Push { now: None, jobs }).await.unwrap();
        house
    }

    /// One with a node that works on the queue.
    async fn with_node(queue: Queue, job: impl FnOnce(Job) -> Job) -> Self {
        let house = Self::new(queue, job).await;
        house.beat(0).await;
        house
    }

    async fn beat(&self, busy: u32) {
        self.beat_of("n", busy, Vec::new()).await;
    }

    async fn beat_of(&self, name: &str, busy: u32, troubles: Vec<Trouble>) {
        let mut node = NodeInfo::new(NodeId::from(name), LEASE);
        (node.queues, node.busy, node.troubles) = (vec!["q".to_owned()], busy, troubles);
        self.store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    }

    async fn claim(&self) -> Turn {
        let claim = Claim::new("q", NodeId::from("n"), 1, Lease::Node { ttl: LEASE });
        self.store.claim(claim).await.unwrap().turns.remove(0)
    }

    async fn fail(&self) {
        let retry = Outcome::Retry { error: "no stock".into(), retry_in: None };
        let turns = vec![plan(&self.claim().await, &self.queue, &retry.into(), &|_| LEASE)];
        self.store.settle(Settle { turns, ..Settle::default() }).await.unwrap();
    }

    async fn says(&self, why: &str) {
        let queue = find::queue(&*self.store, "q").await.unwrap();
        let query = LaneQuery { key: Some("k".to_owned()), rows_max: 1, ..LaneQuery::new("q") };
        let lane = self.store.lanes(query).await.unwrap().rows.remove(0);
        let entity = Entity::read(&*self.store, &queue, lane, None).await.unwrap();
        assert_eq!(entity.why.to_string(), why);
    }
}

fn queue() -> Queue {
    Queue::fifo("q")
}

fn plain(job: Job) -> Job {
    job
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_can_run_says_since_when_or_where_it_runs() {
    let house = House::with_node(queue(), plain).await;
    house.says("ready").await;
    tokio::time::advance(SECOND * 5).await;
    house.says("ready for 5.0s").await;
    house.claim().await;
    tokio::time::advance(SECOND * 3).await;
    house.says("runs on n for 3.0s").await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_nobody_can_run_says_whom_it_waits_for() {
    House::new(queue(), plain).await.says("no node works on this queue").await;
    let house = House::with_node(queue(), plain).await;
    house.beat(1).await;
    house.says("waits for a free slot: the only one is busy").await;
    // A remote worker reports no slots.
    let remote = NodeInfo::new(NodeId::from("n"), LEASE);
    let remote = NodeInfo { queues: vec!["q".to_owned()], concurrency: 0, ..remote };
    let beat = Heartbeat { now: None, node: remote, beats: Vec::new() };
    house.store.heartbeat(beat).await.unwrap();
    house.says("ready").await;
    let bound = House::with_node(queue(), |job| job.node("x")).await;
    bound.says("bound to node x, which does not work on this queue now").await;
    let grouped = House::with_node(queue(), |job| job.consumer_group("g")).await;
    grouped.says("for consumer group g, which no node of this queue serves now").await;
    let built = House::with_node(queue(), |job| job.build("7")).await;
    built.says("for build 7, which no node of this queue runs now").await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_whose_worker_cannot_start_anywhere_says_why() {
    let house = House::new(queue(), plain).await;
    let since = house.store.now().await.unwrap();
    let trouble = Trouble {
        kind: TroubleKind::WorkerCannotStart,
        queue: Some("q".to_owned()),
        about: Trouble::about_worker("q", None),
        text: "./nope: there is no such file".to_owned(),
        times: 1,
        since,
        last_at: since,
    };
    house.beat_of("n", 0, vec![trouble]).await;
    tokio::time::advance(SECOND * 5).await;
    house.says("worker of q cannot start: ./nope: there is no such file (for 5.0s)").await;
    house.beat_of("other", 0, Vec::new()).await;
    house.says("ready for 5.0s").await;
}

#[tokio::test(start_paused = true)]
async fn what_people_stopped_is_said_before_all_else() {
    let house = House::new(queue(), plain).await;
    lanes::act(&*house.store, "q", OneLane::Key("k".to_owned()), LaneAction::Pause).await.unwrap();
    house.says("paused").await;
    house.store.pause_queue("q".into(), true).await.unwrap();
    house.says("the queue is paused").await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_is_not_due_says_when_and_why() {
    let later = House::with_node(queue(), |job| job.run_in(SECOND * 90)).await;
    later.says("due in 1m30s").await;
    let house = House::with_node(queue(), plain).await;
    house.fail().await;
    house.says("due in 1m00s (retry 1 of 25)").await;
    let held = House::with_node(queue().max_retries(0).exhausted(Exhaustion::Hold), plain).await;
    held.fail().await;
    held.says("held: its retries are used up").await;
    let own = House::with_node(queue(), |job| job.max_retries(2)).await;
    own.fail().await;
    own.says("due in 1m00s (retry 1 of 2)").await;
    let window = Window::new(SECOND * 5, SECOND * 20);
    let collecting = House::with_node(Queue::accumulate("q").window(window), plain).await;
    collecting
        .says("collects jobs: due in 5.0s if no push comes (quiet for 5.0s), in 20s at the latest")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_reached_is_said_and_a_rate_that_may_be() {
    let limited = House::with_node(queue().running(1), |job| job.key("first")).await;
    let jobs = vec![Job::new("q", &2).unwrap().key("k")];
    limited.store.push(Push { now: None, jobs }).await.unwrap();
    assert_eq!(limited.claim().await.key.as_deref(), Some("first"));
    limited.says("1 turn of the queue runs, and at most 1 may").await;
    let rated = House::with_node(queue().rate("5/m".parse().unwrap()), plain).await;
    tokio::time::advance(SECOND * 2).await;
    rated.says("ready for 2.0s: the queue starts at most 5/m").await;
}
