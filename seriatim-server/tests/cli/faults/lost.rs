//! The connection breaks at each request of a push, a claim and a settle in turn, before the server
//! sees it and after it has carried it out: until one goes through that makes fewer requests.

use std::time::Duration;

use seriatim::store::{
    Claim, Claimed, Declare, Heartbeat, JobQuery, JobState, Lease, NodeInfo, Push, PushStatus,
    Rescue, Settle, Settled,
};
use seriatim::{
    Error, Job, Queue, SharedStore,
    store::{NodeId, Settlement, Turn},
};
use seriatim_testkit::{Cut, Proxy};

use super::{Server, on_each_server};
use crate::site::QUEUE;

const TTL: Duration = Duration::from_secs(60);
/// More than any operation makes.
const REQUESTS_MAX: u32 = 100;
const BATCH: usize = 3;

/// A store, the same over a connection that can be cut, and who claims.
struct Rig {
    direct: SharedStore,
    cut: SharedStore,
    proxy: Proxy,
    node: NodeId,
    _server: Server,
}

impl Rig {
    async fn new(server: Server) -> Self {
        let direct = server.store().await;
        let queue = Queue::fifo(QUEUE).retain_completed(Duration::from_secs(3_600));
        direct.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
        let node = NodeId::from("worker");
        direct
            .heartbeat(Heartbeat { now: None, node: info(&node), beats: Vec::new() })
            .await
            .unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        let cut = seriatim::connect(&server.url_over(proxy.port())).await.unwrap();
        Self { direct, cut, proxy, node, _server: server }
    }

    /// Runs `operation` with the connection cut at each request; `check` sees the number of the
    /// request and the answer.
    async fn at_each_request<T>(
        &self,
        cut: Cut,
        operation: impl AsyncFn(u32) -> Result<T, Error>,
        check: impl AsyncFn(u32, Result<T, Error>),
    ) {
        for request in 0.. {
            assert!(request < REQUESTS_MAX, "it makes ever more requests");
            self.proxy.cut(request, cut);
            let answer = operation(request).await;
            let went_through = self.proxy.spare();
            if let Err(error) = &answer {
                assert!(!went_through, "it failed by itself: {error}");
                assert!(error.is_transient(), "who waits may try again: {error}");
            }
            check(request, answer).await;
            if went_through {
                assert!(request > 0, "the operation makes no request");
                return;
            }
        }
    }

    async fn jobs(&self, key: &str, state: JobState) -> usize {
        let query = JobQuery { key: Some(key.into()), ..JobQuery::new(QUEUE, state) };
        self.direct.jobs(query).await.unwrap().rows.len()
    }

    async fn claim(&self, store: &SharedStore) -> Result<Claimed, Error> {
        let claim = Claim::new(QUEUE, self.node.clone(), 10, Lease::Own { ttl: TTL });
        store.claim(claim).await
    }

    /// What is claimed, long after.
    async fn rescue(&self) -> Vec<Turn> {
        let later = self.direct.now().await.unwrap() + TTL * 3;
        let node = NodeId::from("rescuer");
        let beat = Heartbeat { now: Some(later), node: info(&node), beats: Vec::new() };
        self.direct.heartbeat(beat).await.unwrap();
        let rescue = Rescue { now: Some(later), node, lease: TTL, lanes_max: 100, ticket: 0 };
        self.direct.rescue(rescue).await.unwrap()
    }
}

fn info(id: &NodeId) -> NodeInfo {
    NodeInfo { queues: vec![QUEUE.into()], ..NodeInfo::new(id.clone(), TTL * 1_000) }
}

fn jobs(key: &str) -> Vec<Job> {
    let job = |n| {
        Job::new(QUEUE, &n).unwrap().key(key).score(n as f64).idempotency_key(format!("{key}/{n}"))
    };
    (0..BATCH).map(job).collect()
}

async fn a_push_is_there_whole_or_not_at_all(server: Server) {
    let rig = Rig::new(server).await;
    let mut outcomes = Vec::new();
    for cut in [Cut::BeforeRequest, Cut::BeforeReply] {
        let key = |request| format!("{cut:?}-{request}");
        let push =
            async |request| rig.cut.push(Push { now: None, jobs: jobs(&key(request)) }).await;
        let lost = std::cell::Cell::new(0);
        let check = async |request: u32, answer: Result<Vec<_>, Error>| {
            let there = rig.jobs(&key(request), JobState::Queued).await;
            match answer {
                Ok(_) => assert_eq!(there, BATCH, "it was acknowledged"),
                Err(_) => assert!(there == 0 || there == BATCH, "a part of it is there: {there}"),
            }
            // Who does not know pushes again, with the same idempotency keys.
            let again =
                rig.direct.push(Push { now: None, jobs: jobs(&key(request)) }).await.unwrap();
            let expected = if there == 0 { PushStatus::Queued } else { PushStatus::Duplicate };
            assert!(again.iter().all(|pushed| pushed.status == expected), "{again:?}");
            assert_eq!(rig.jobs(&key(request), JobState::Queued).await, BATCH);
            lost.set(lost.get() + usize::from(there > 0 && expected == PushStatus::Duplicate));
        };
        rig.at_each_request(cut, push, check).await;
        outcomes.push(lost.get());
    }
    assert!(outcomes[1] > 0, "no answer was lost after the commit: {outcomes:?}");
}

async fn a_lost_claim_is_taken_over_once(server: Server) {
    let rig = Rig::new(server).await;
    for cut in [Cut::BeforeRequest, Cut::BeforeReply] {
        let claim = async |request| {
            let jobs = jobs(&format!("{cut:?}-{request}"));
            rig.direct.push(Push { now: None, jobs }).await.unwrap();
            rig.claim(&rig.cut).await
        };
        let check = async |_, answer: Result<Claimed, Error>| {
            let mut turns = answer.map_or_else(|_| Vec::new(), |claimed| claimed.turns);
            // The server may need a moment to see that the client is gone, and holds the lane meanwhile.
            let mut looks = tokio::time::interval(Duration::from_millis(10));
            while turns.is_empty() {
                looks.tick().await;
                turns.extend(rig.rescue().await);
                turns.extend(rig.claim(&rig.direct).await.unwrap().turns);
            }
            turns.extend(rig.claim(&rig.direct).await.unwrap().turns);
            assert_eq!(turns.len(), 1, "one has it, and only one: {turns:?}");
            finish(&rig, turns).await;
        };
        rig.at_each_request(cut, claim, check).await;
    }
}

/// Settles these, and what of their lanes follows.
async fn finish(rig: &Rig, mut turns: Vec<Turn>) {
    while !turns.is_empty() {
        let settlements =
            turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
        let settled = rig.direct.settle(Settle::now(settlements)).await.unwrap();
        assert!(settled.iter().all(Settled::is_ok), "{settled:?}");
        turns = rig.claim(&rig.direct).await.unwrap().turns;
    }
}

async fn a_settle_counts_once_whoever_repeats_it(server: Server) {
    let rig = Rig::new(server).await;
    for cut in [Cut::BeforeRequest, Cut::BeforeReply] {
        let key = |request| format!("{cut:?}-{request}");
        let current = std::cell::RefCell::new(None);
        let settle = async |request| {
            let jobs = jobs(&key(request)).split_off(BATCH - 1);
            rig.direct.push(Push { now: None, jobs }).await.unwrap();
            let turn = rig.claim(&rig.direct).await.unwrap().turns.remove(0);
            let settlement = Settlement::done(turn.lane, turn.token);
            let request = Settle::now(vec![settlement]);
            current.replace(Some(request.clone()));
            rig.cut.settle(request).await
        };
        let check = async |request: u32, answer: Result<Vec<Settled>, Error>| {
            let done = rig.jobs(&key(request), JobState::Succeeded).await;
            let again = current.take().unwrap();
            let again = rig.direct.settle(again).await.unwrap().remove(0);
            match answer {
                Ok(settled) => assert!(settled[0].is_ok() && done == 1, "{settled:?} {done}"),
                Err(_) => assert!(done <= 1),
            }
            assert_eq!(again.is_ok(), done == 0, "the second time is refused, or was the first");
            assert_eq!(rig.jobs(&key(request), JobState::Succeeded).await, 1);
            assert_eq!(rig.jobs(&key(request), JobState::Running).await, 0);
        };
        rig.at_each_request(cut, settle, check).await;
    }
    let stats = rig.direct.stats(None).await.unwrap();
    let ended = rig.direct.jobs(ended()).await.unwrap().rows.len() as u64;
    assert_eq!((stats[0].processed, stats[0].jobs), (ended, 0), "no turn was counted twice");
}

fn ended() -> JobQuery {
    JobQuery::new(QUEUE, JobState::Succeeded)
}

on_each_server! {
    postgres_a_push_whose_connection_breaks_is_there_whole_or_not_at_all: a_push_is_there_whole_or_not_at_all(postgres);
    mysql_a_push_whose_connection_breaks_is_there_whole_or_not_at_all: a_push_is_there_whole_or_not_at_all(mysql);
    redis_a_push_whose_connection_breaks_is_there_whole_or_not_at_all: a_push_is_there_whole_or_not_at_all(redis);
    postgres_a_claim_whose_answer_is_lost_is_taken_over_once: a_lost_claim_is_taken_over_once(postgres);
    mysql_a_claim_whose_answer_is_lost_is_taken_over_once: a_lost_claim_is_taken_over_once(mysql);
    redis_a_claim_whose_answer_is_lost_is_taken_over_once: a_lost_claim_is_taken_over_once(redis);
    postgres_a_settle_whose_answer_is_lost_counts_once: a_settle_counts_once_whoever_repeats_it(postgres);
    mysql_a_settle_whose_answer_is_lost_counts_once: a_settle_counts_once_whoever_repeats_it(mysql);
    redis_a_settle_whose_answer_is_lost_counts_once: a_settle_counts_once_whoever_repeats_it(redis);
}
