//! The work of an operation on a lane does not grow with the number of jobs that wait in it: counted in commands, which
//! scripts run too.

use super::*;
use crate::contract::{Amend, Cancel, Change, GoOn};
use crate::store::{Due, Fate};
use crate::{Groups, Share};

const SHALLOW: u32 = 10;
const DEEP: u32 = 100_000;
/// A search in a list takes a command for each halving.
const MORE_CALLS: u64 = 40;
/// The jobs of a turn are read a few dozen at a time, and a turn has at most 10,000.
const CALLS_OF_A_LARGE_TURN: u64 = 3_000;
/// What one claim may take to get past entries that mean nothing.
const CALLS_PAST_DELETED: u64 = 10_000;
const DELETED: u32 = 20_000;

/// One lane; in `parallel` one of many.
struct Lane {
    store: Arc<Redis>,
    url: String,
    mode: Mode,
    jobs: Vec<JobId>,
    now: Timestamp,
}

fn new_job(mode: Mode, tag: u32) -> Job {
    let job = Job::new("q", &tag).unwrap();
    if mode.is_keyed() { job.key("k") } else { job }
}

/// How many commands the server has run.
pub(super) async fn calls(url: &str) -> u64 {
    let mut link = linked(url).await;
    let mut cmd = ::redis::cmd("INFO");
    let text: String = cmd.arg("commandstats").query_async(&mut link).await.unwrap();
    let of_line = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok();
    text.lines().filter_map(of_line).sum()
}

impl Lane {
    async fn of(url: &str, queue: Queue, depth: u32) -> Self {
        let (store, mode) = (open_at(url, &new_prefix()).await, queue.mode);
        declare(&store, queue).await;
        let mut jobs = Vec::new();
        for first in (0..depth).step_by(10_000) {
            let batch = (first..depth.min(first + 10_000)).map(|tag| new_job(mode, tag)).collect();
            jobs.extend(push(&store, batch).await.iter().map(|pushed| pushed.job_id));
        }
        let now = store.now().await.unwrap();
        Self { store, url: url.to_owned(), mode, jobs, now }
    }

    async fn counted<T>(&self, operation: impl Future<Output = T>) -> (u64, T) {
        let before = calls(&self.url).await;
        let answer = operation.await;
        (calls(&self.url).await - before, answer)
    }

    async fn claim_at(&self, now: Timestamp) -> Vec<Turn> {
        let request = Claim { now: Some(now), ..claim_request("q", 1) };
        self.store.claim(request).await.unwrap().turns
    }

    /// What each operation costs.
    async fn costs(&mut self) -> Vec<(&'static str, u64)> {
        let mut costs = Vec::new();
        let store = self.store.clone();
        let middle = self.jobs.len() / 2;
        let named = new_job(self.mode, 1_000_000).idempotency_key("once");
        costs.push(("push", self.counted(push(&store, vec![named])).await.0));
        costs.push(("statistics", self.counted(numbers(&store)).await.0));
        if self.mode.is_keyed() {
            let (cost, lanes) = self.counted(store.lanes(LaneQuery::new("q"))).await;
            assert_eq!(lanes.unwrap().rows[0].jobs, self.jobs.len() as u64 + 1);
            costs.push(("listing", cost));
        }
        let (cost, turns) = self.counted(self.claim_at(self.now)).await;
        costs.push(("claim", cost));
        let settle = Settle { now: Some(self.now), ..Settle::now(vec![failed(&turns[0])]) };
        let (cost, settled) = self.counted(store.settle(settle)).await;
        assert!(settled.unwrap()[0].is_ok());
        costs.push(("failure", cost));
        let (cost, turns) = self.counted(self.claim_at(self.now)).await;
        assert!(!turns.is_empty());
        costs.push(("retry", cost));
        // In `accumulate` the jobs in the middle of a short lane run.
        let cancel = Cancel { now: Some(self.now), jobs: vec![self.jobs[middle]] };
        let (cost, answers) = self.counted(store.cancel(cancel)).await;
        assert_ne!(answers.unwrap()[0], Cancelled::Unknown);
        costs.push(("cancel", cost));
        let change = Change::RunAt(self.now);
        let amend = Amend { now: Some(self.now), job: self.jobs[middle + 1], change };
        costs.push(("amend", self.counted(store.amend(amend)).await.0));
        let now = Some(self.now + LEASE + LEASE);
        let node = NodeInfo::new("m".into(), LEASE);
        store.heartbeat(Heartbeat { now, node, beats: Vec::new() }).await.unwrap();
        let rescue = Rescue { now, node: "m".into(), lease: LEASE, lanes_max: 1, ticket: 0 };
        let (cost, turns) = self.counted(store.rescue(rescue)).await;
        costs.push(("rescue", cost));
        let settle = Settle { now, ..settle_done(&turns.unwrap()) };
        let (cost, settled) = self.counted(store.settle(settle)).await;
        assert!(settled.unwrap()[0].is_ok());
        costs.push(("settle", cost));
        if matches!(self.mode, Mode::Fifo | Mode::Exclusive) {
            let claim = Claim { now, ..Claim::new("q", "m", 1, Lease::Node { ttl: LEASE }) };
            let turns = store.claim(claim.clone()).await.unwrap().turns;
            let go_on = vec![GoOn { claim, places: vec![0] }];
            let settle = Settle { now, go_on, ..settle_done(&turns) };
            let (cost, settled) = self.counted(store.settle(settle)).await;
            assert!(matches!(settled.unwrap()[0], Settled::Ok { next: Some(_), .. }));
            costs.push(("settle of a lane that goes on", cost));
        }
        costs
    }
}

fn failed(turn: &Turn) -> Settlement {
    let mut end = Settlement { rest: Fate::Keep, ..Settlement::done(turn.lane, turn.token) };
    end.keep.job = Some(turn.jobs[0].id);
    (end.keep.retry_count, end.keep.counted, end.keep.due) = (0, true, Due::Now);
    end
}

async fn costs_the_same_at_any_depth(queue: Queue, more: u64) {
    let server = seriatim_testkit::Redis::start().unwrap();
    let queue = queue.retain_completed(Duration::ZERO);
    let shallow = Lane::of(&server.url(), queue.clone(), SHALLOW).await.costs().await;
    let deep = Lane::of(&server.url(), queue, DEEP).await.costs().await;
    for ((name, few), (_, many)) in shallow.iter().zip(&deep) {
        assert!(*many <= few + more, "{name}: {few} commands, {many} at a depth of {DEEP}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_among_many_lanes_takes_no_longer() {
    costs_the_same_at_any_depth(Queue::parallel("q"), MORE_CALLS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_a_deep_fifo_lane_takes_no_longer() {
    costs_the_same_at_any_depth(Queue::fifo("q"), MORE_CALLS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_a_deep_exclusive_lane_takes_no_longer() {
    costs_the_same_at_any_depth(Queue::exclusive("q"), MORE_CALLS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_on_a_deep_accumulate_lane_costs_as_much_as_its_turn() {
    let queue = Queue::accumulate("q").merge(Merge::None);
    costs_the_same_at_any_depth(queue, CALLS_OF_A_LARGE_TURN).await;
}

/// Their entries in `arrivals` stay, and a claim removes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_after_many_lanes_were_deleted_is_short() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let queue = Queue::parallel("q");
    let share = Groups::each(Share::default().running(1));
    for queue in [queue.clone(), queue.groups(share)] {
        let lane = Lane::of(&server.url(), queue, DELETED).await;
        let (lanes, action) = (LaneSelection::All, LaneAction::Delete);
        let delete = Act { now: None, queue: "q".into(), lanes, action };
        while lane.store.act(delete.clone()).await.unwrap().more {}
        push(&lane.store, vec![new_job(lane.mode, DELETED)]).await;
        loop {
            let claim = lane.store.claim(claim_request("q", 1));
            let (cost, claimed) = lane.counted(claim).await;
            assert!(cost < CALLS_PAST_DELETED, "{cost} commands");
            let claimed = claimed.unwrap();
            if !claimed.turns.is_empty() {
                break;
            }
            assert!(claimed.next_due.is_some(), "the claim is not to go on");
        }
    }
}
