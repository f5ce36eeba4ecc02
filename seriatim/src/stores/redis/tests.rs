//! Tests beyond the conformance suite: several processes, data that a server loses, and queues with several shards.

mod apart;
mod by_due;
mod clocks;
mod deletion;
mod depth;
mod emptied;
mod failed;
mod full;
mod holders;
mod listed;
mod listings;
mod masters;
mod outages;
mod reshard;
mod reshard_races;
mod residue;
mod routes;
mod servers;
mod sharing;
mod steps;
mod upkeep;
mod version;
mod waking;
mod walks;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Redis;
use super::reply::Shard;
use crate::contract::*;
use crate::stores::race;
use crate::{
    ErrorKind, Job, JobId, Merge, Mode, Queue, Timestamp,
    store::{Settlement, Token, Turn},
};

const LEASE: Duration = Duration::from_secs(60);

fn url() -> String {
    std::env::var("SERIATIM_TEST_REDIS").expect(
        "SERIATIM_TEST_REDIS names no server: run cargo xtask test, which starts the servers",
    )
}

fn new_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, test) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("unit-{}-{process}-{test}", Timestamp::of_this_machine().as_micros())
}

/// Opens the store as another process would.
async fn open(prefix: &str) -> Arc<Redis> {
    open_at(&url(), prefix).await
}

async fn open_at(url: &str, prefix: &str) -> Arc<Redis> {
    let store = Redis::connect_in(url, prefix).await.expect("the server can be reached");
    store.migrate().await.expect("the store is set up");
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.expect("it registers");
    Arc::new(store)
}

async fn declare(store: &Redis, queue: Queue) {
    store.declare(Declare { now: None, queues: vec![queue] }).await.unwrap();
}

async fn push(store: &Redis, jobs: Vec<Job>) -> Vec<Pushed> {
    store.push(Push { now: None, jobs }).await.unwrap()
}

fn claim_request(queue: &str, lanes_max: usize) -> Claim {
    Claim::new(queue, "n", lanes_max, Lease::Node { ttl: LEASE })
}

async fn claim(store: &Redis, lanes_max: usize) -> Vec<Turn> {
    store.claim(claim_request("q", lanes_max)).await.unwrap().turns
}

fn settle_done(turns: &[Turn]) -> Settle {
    let turns = turns.iter().map(|turn| Settlement::done(turn.lane, turn.token)).collect();
    Settle::now(turns)
}

async fn done(store: &Redis, turns: &[Turn]) -> Vec<Settled> {
    store.settle(settle_done(turns)).await.unwrap()
}

fn in_shards(queue: Queue, shards: u16) -> Queue {
    Queue { shards, ..queue }
}

fn job(key: &str, tag: u32) -> Job {
    Job::new("q", &tag).unwrap().key(key)
}

fn tag(turn: &Turn) -> u32 {
    turn.jobs[0].payload.decode().unwrap()
}

async fn numbers(store: &Redis) -> QueueStats {
    store.stats(None).await.unwrap().remove(0)
}

/// A connection of its own, which waits as long as a loaded machine takes.
async fn linked(url: &str) -> ::redis::aio::MultiplexedConnection {
    let patient = ::redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LEASE))
        .set_response_timeout(Some(LEASE));
    let client = ::redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// Sends a command directly to the server.
async fn send(url: &str, words: &[&str]) {
    let mut link = linked(url).await;
    let mut cmd = ::redis::cmd(words[0]);
    cmd.arg(&words[1..]).exec_async(&mut link).await.unwrap();
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    send(&url(), &["HSET", &format!("{prefix}:{{g}}:meta"), "version", "99"]).await;
    let error = store.migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("version 99") && error.to_string().contains("version 7"));
}

/// Such entries may come from a defect, or from an administrator with a command line.
#[tokio::test]
async fn index_entries_without_a_lane_do_not_stop_a_shard() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::parallel("q")).await;
    let jobs = (0..3).map(|i| Job::new("q", &i).unwrap()).collect();
    push(&store, jobs).await;
    let shard = format!("{prefix}:{{q1:0}}:");
    // Class, priority, time and number in 3, 2, 7 and 7 bytes: sorts before all others.
    let ready = "\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\x01\x01";
    send(&url(), &["ZADD", &format!("{shard}ready"), "0", ready]).await;
    send(&url(), &["ZADD", &format!("{shard}wake"), "1", "\0\0\0\0\0\x01\x02"]).await;
    let turns = claim(&store, 10).await;
    assert_eq!(turns.len(), 3);
    done(&store, &turns).await;
    let claimed = store.claim(claim_request("q", 10)).await.unwrap();
    assert_eq!((claimed.turns.len(), claimed.next_due), (0, None), "they are gone");
}

#[tokio::test]
async fn claims_that_only_an_index_has_do_not_stop_a_rescue() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..3).map(|i| job(&format!("k{i}"), i)).collect()).await;
    assert_eq!(claim(&store, 10).await.len(), 3);
    let [holders, leases] = ["holders", "leases"].map(|index| format!("{prefix}:{{q1:0}}:{index}"));
    // Before the claim that is there.
    let holder = format!("0001n{:016}{:016}", 1, 7);
    send(&url(), &["ZADD", &holders, "0", &holder]).await;
    send(&url(), &["ZADD", &leases, "1", "8"]).await;
    let late = store.now().await.unwrap() + LEASE + LEASE;
    let rescued = upkeep::rescue(&store, late).await;
    assert_eq!(rescued.len(), 3);
    assert!(done(&store, &rescued).await.iter().all(Settled::is_ok));
    let mut exists = ::redis::cmd("EXISTS");
    let exists = exists.arg(&holders).arg(&leases);
    let left: u32 = exists.query_async(&mut linked(&url()).await).await.unwrap();
    assert_eq!(left, 0, "they are gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_nodes_may_declare_and_push_at_once() {
    for _ in 0..5 {
        let prefix = new_prefix();
        let one = |prefix: String, i: u32| {
            tokio::spawn(async move {
                let store = open(&prefix).await;
                declare(&store, in_shards(Queue::fifo("q"), 3)).await;
                push(&store, vec![job(&format!("k{i}"), i)]).await;
            })
        };
        let nodes: Vec<_> = (0..4).map(|i| one(prefix.clone(), i)).collect();
        for node in nodes {
            node.await.unwrap();
        }
        let store = open(&prefix).await;
        let queues = store.queues().await.unwrap();
        assert_eq!(queues.len(), 1);
        assert_eq!((queues[0].queue.mode, queues[0].queue.shards), (Mode::Fifo, 3));
        assert_eq!(claim(&store, 10).await.len(), 4);
    }
}

/// With `forgetful` the server loses its scripts repeatedly.
async fn pushes_and_claims_race(queue: Queue, jobs_each: u32, forgetful: bool) {
    pushes_and_claims_race_at(&url(), queue, jobs_each, forgetful).await;
}

async fn pushes_and_claims_race_at(url: &str, queue: Queue, jobs_each: u32, forgetful: bool) {
    let (prefix, mut stores) = (new_prefix(), Vec::new());
    for _ in 0..race::STORES {
        stores.push(open_at(url, &prefix).await as SharedStore);
    }
    let during = async |arrived: u32| {
        if forgetful && arrived.is_multiple_of(8) {
            send(url, &["SCRIPT", "FLUSH"]).await;
        }
    };
    race::pushes_and_claims_race(stores, queue, jobs_each, during).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_accumulate() {
    pushes_and_claims_race(Queue::accumulate("q").merge(Merge::None), 100, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_fifo() {
    pushes_and_claims_race(Queue::fifo("q").take(3), 60, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_several_shards() {
    pushes_and_claims_race(in_shards(Queue::fifo("q"), 3), 60, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_server_forgets_its_scripts() {
    pushes_and_claims_race(Queue::exclusive("q"), 30, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_is_sent_twice_at_once_is_carried_out_once() {
    let prefix = new_prefix();
    let (one, other) = (open(&prefix).await, open(&prefix).await);
    declare(&one, Queue::fifo("q")).await;
    for i in 0..50 {
        push(&one, vec![job("k", i)]).await;
        let turns = claim(&one, 1).await;
        let (first, second) = tokio::join!(done(&one, &turns), done(&other, &turns));
        assert_eq!(u32::from(first[0].is_ok()) + u32::from(second[0].is_ok()), 1);
    }
    assert_eq!(numbers(&one).await.processed, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn new_idempotency_keys_that_several_push_at_once_store_one_job_each() {
    let prefix = new_prefix();
    let mut stores: Vec<SharedStore> = Vec::new();
    for _ in 0..3 {
        stores.push(open(&prefix).await);
    }
    let queues = [Queue::parallel("free"), Queue::fifo("q")].map(|queue| in_shards(queue, 3));
    stores[0].declare(Declare { now: None, queues: queues.into() }).await.unwrap();
    race::new_names_race(stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_a_key_of_the_store_counts_in_all_shards_of_all_queues() {
    let prefix = new_prefix();
    let first = open(&prefix).await;
    for queue in ["q", "r"] {
        declare(&first, in_shards(Queue::parallel(queue), 3)).await;
    }
    for round in 0..10 {
        let pusher = |store: Arc<Redis>, queue: &'static str| {
            let of_store = move |i| {
                let job = Job::new(queue, &1).unwrap().idempotency_key(format!("{round}-{i}"));
                job.idempotency_scope(crate::store::IdempotencyScope::Store)
            };
            let jobs = (0..10).map(of_store).collect();
            tokio::spawn(async move { push(&store, jobs).await })
        };
        let pushers = [pusher(open(&prefix).await, "q"), pusher(open(&prefix).await, "r")];
        let mut ids = HashSet::new();
        for pusher in pushers {
            ids.extend(pusher.await.unwrap().iter().map(|pushed| pushed.job_id));
        }
        assert_eq!(ids.len(), 10);
    }
}

#[tokio::test]
async fn tokens_grow_though_the_last_ones_were_lost() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("l", 2)]).await;
    let before = claim(&store, 1).await.remove(0).token;
    // As on a replica that was promoted too early.
    send(&url(), &["HSET", &format!("{prefix}:{{q1:0}}:meta"), "token", "7"]).await;
    assert!(claim(&store, 1).await.remove(0).token > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_in_another_process_is_noticed_by_the_next_push() {
    for shards in [1, 3] {
        let prefix = new_prefix();
        let (pusher, other) = (open(&prefix).await, open(&prefix).await);
        declare(&pusher, in_shards(Queue::accumulate("q"), shards)).await;
        push(&pusher, vec![job("a", 1)]).await;
        done(&pusher, &claim(&pusher, 1).await).await;
        declare(&other, in_shards(Queue::fifo("q"), shards)).await;
        push(&pusher, ["a", "b", "c", "d"].map(|key| job(key, 1)).to_vec()).await;
        push(&pusher, ["a", "b", "c", "d"].map(|key| job(key, 1)).to_vec()).await;
        let turns = claim(&other, 10).await;
        assert_eq!(turns.iter().map(|turn| turn.jobs.len()).collect::<Vec<_>>(), [1; 4]);
        assert_eq!(numbers(&other).await.jobs, 8, "nothing merges any more");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_and_settles_in_another_process_are_heard() {
    let prefix = new_prefix();
    let (one, other) = (open(&prefix).await, open(&prefix).await);
    let mut wakeups = other.wakeups();
    push(&one, vec![job("k", 0), job("k", 1)]).await;
    // It knows the queue, as a node that claims from it does.
    numbers(&other).await;
    let turns = claim(&one, 1).await;
    let mut pushes = 0..100;
    // There is no signal that the other process is listening yet.
    loop {
        // A claim that finds too little waits for more.
        claim(&other, 100).await;
        wakeups.forget();
        let key = format!("k{}", pushes.next().expect("the other process hears it"));
        push(&one, vec![job(&key, 0)]).await;
        match wakeups.wait(Duration::from_millis(200)).await {
            Some(Wake::Queues(queues)) => break assert_eq!(queues, ["q".into()].into()),
            // It has just subscribed.
            Some(Wake::All) | None => {}
        }
    }
    while wakeups.wait(Duration::from_millis(200)).await.is_some() {}
    claim(&other, 100).await;
    done(&one, &turns).await;
    assert!(
        wakeups.wait(Duration::from_secs(10)).await.is_some(),
        "the next job of the key may run"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_loses_nothing() {
    let mut server = seriatim_testkit::Redis::start().unwrap();
    let prefix = new_prefix();
    let store = open_at(&server.url(), &prefix).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1), job("k", 2)]).await;
    for crash in [false, true] {
        // `appendfsync everysec` could lose the last writes in a crash: the file would be behind the memory.
        send(&server.url(), &["CONFIG", "SET", "appendfsync", "always"]).await;
        if crash {
            server.kill().unwrap();
        } else {
            server.stop().unwrap();
        }
        let error = store.now().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        server.restart().unwrap();
        servers::until("it connects again", async || store.now().await.is_ok()).await;
        send(&server.url(), &["CONFIG", "SET", "appendfsync", "always"]).await;
        let turns = claim(&store, 1).await;
        assert_eq!(tag(&turns[0]), u32::from(crash) + 1);
        assert!(done(&store, &turns).await[0].is_ok());
    }
    assert_eq!(numbers(&store).await.jobs, 0);
    store.close().await.unwrap();
    assert_eq!(store.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_memory_is_full_still_drains() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, Queue::accumulate("q")).await;
    push(&store, (0..20).map(|i| job(&format!("k{}", i % 5), i)).collect()).await;
    let first = claim(&store, 1).await;
    send(&server.url(), &["CONFIG", "SET", "maxmemory", "1000"]).await;

    let refused = store.push(Push { now: None, jobs: vec![job("k", 99)] }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    let numbers_before = numbers(&store).await;
    assert_eq!((numbers_before.jobs, numbers_before.lanes, numbers_before.claimed), (20, 5, 1));

    assert!(done(&store, &first).await[0].is_ok());
    let node = NodeInfo::new("n".into(), LEASE);
    let beat = Heartbeat { now: None, node, beats: Vec::new() };
    assert!(store.heartbeat(beat).await.unwrap().alive, "a full server does not kill nodes");
    let rest = claim(&store, 10).await;
    assert_eq!(rest.iter().map(|turn| turn.jobs.len()).sum::<usize>(), 16);
    let running = vec![rest[0].jobs[0].id];
    let flagged = store.cancel(Cancel { now: None, jobs: running }).await.unwrap();
    assert_eq!(flagged, [Cancelled::Flagged]);
    store.pause_queue("q".into(), true).await.unwrap();
    let resume =
        Act { now: None, queue: "q".into(), lanes: LaneSelection::All, action: LaneAction::Resume };
    assert_eq!(store.act(resume).await.unwrap().count, 4);
    store.sweep(Sweep { now: None, rows_max: 100 }).await.unwrap();
    let node = "n".into();
    let lead = Lead { now: None, role: "maintenance".into(), node, ttl: LEASE };
    assert!(store.lead(lead).await.unwrap());
    let rescue = Rescue { now: None, node: "n".into(), lease: LEASE, lanes_max: 10, ticket: 0 };
    assert!(store.rescue(rescue).await.unwrap().is_empty());
    assert!(done(&store, &rest).await.iter().all(Settled::is_ok));
    let after = numbers(&store).await;
    assert_eq!((after.jobs, after.lanes, after.claimed, after.processed), (0, 0, 0, 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_can_only_be_read_is_read() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let store = open_at(&server.url(), &new_prefix()).await;
    push(&store, vec![job("k", 1)]).await;
    send(&server.url(), &["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(numbers(&store).await.jobs, 1);
    let refused = store.push(Push { now: None, jobs: vec![job("k", 2)] }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
    let refused = store.claim(claim_request("q", 1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
    assert_eq!(numbers(&store).await.claimed, 0);
}

/// Redis 7 gives a new user no channels. Wake-ups are hints: who publishes none must still hear what was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_publish_pushes_and_claims() {
    let server = seriatim_testkit::Redis::start().unwrap();
    server
        .send(&["ACL", "SETUSER", "app", "on", ">secret", "resetchannels", "~*", "+@all"])
        .unwrap();
    let (url, prefix) = (server.url().replace("://", "://app:secret@"), new_prefix());
    let (store, first, second) =
        (open_at(&url, &prefix).await, open_at(&url, &prefix).await, open_at(&url, &prefix).await);
    declare(&store, Queue::fifo("q")).await;
    // These are to be woken, one by the push and one by the claim.
    assert!(claim(&first, 1).await.is_empty());
    assert!(claim(&second, 1).await.is_empty());
    push(&store, vec![job("a", 1), job("b", 2)]).await;
    assert_eq!(claim(&store, 1).await.len(), 1);
    let after = numbers(&store).await;
    assert_eq!((after.jobs, after.claimed), (2, 1));
}

/// By it, answers have other shapes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_works_by_the_newer_protocol() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let store = open_at(&format!("{}?protocol=resp3", server.url()), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1)]).await;
    let turns = claim(&store, 1).await;
    assert!(done(&store, &turns).await[0].is_ok());
    assert_eq!((numbers(&store).await.processed, store.nodes().await.unwrap().len()), (1, 1));
}

/// Lua limits the arguments of a call and the size of a table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_batches_go_through() {
    use crate::model::limits::{CLAIM_LANES_MAX, PUSH_JOBS_MAX};
    let store = open(&new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    let jobs = (0..PUSH_JOBS_MAX as u32).map(|i| job(&format!("k{i}"), i)).collect();
    assert_eq!(push(&store, jobs).await.len(), PUSH_JOBS_MAX);
    let held = claim(&store, CLAIM_LANES_MAX).await;
    assert_eq!(held.len(), CLAIM_LANES_MAX);

    let now = Some(store.now().await.unwrap() + LEASE + LEASE);
    let node = NodeInfo::new("m".into(), LEASE);
    store.heartbeat(Heartbeat { now, node, beats: Vec::new() }).await.unwrap();
    let request =
        Rescue { now, node: "m".into(), lease: LEASE, lanes_max: CLAIM_LANES_MAX, ticket: 0 };
    let mut rescued = Vec::new();
    while rescued.len() < CLAIM_LANES_MAX {
        let turns = store.rescue(request.clone()).await.unwrap();
        assert!(!turns.is_empty());
        rescued.extend(turns);
    }
    assert!(done(&store, &held).await.iter().all(|settled| *settled == Settled::Stale));
    assert!(done(&store, &rescued).await.iter().all(Settled::is_ok));
    let left = numbers(&store).await;
    assert_eq!((left.jobs, left.lanes, left.claimed), (0, 0, 0));
    assert_eq!(left.processed, CLAIM_LANES_MAX as u64);
}

#[tokio::test]
async fn errors_say_what_to_do_and_hold_no_password() {
    let kind = |result: crate::Result<Redis>| {
        let error = result.map(drop).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        error.kind()
    };
    let unreachable = Redis::connect("redis://me:hunter2@127.0.0.1:1/").await;
    assert_eq!(kind(unreachable), ErrorKind::Unavailable);
    let unreadable = Redis::connect("redis://me:hunter2@host:hunter2/").await;
    assert_eq!(kind(unreadable), ErrorKind::Invalid);
    let server = url().replace("redis://", "redis://me:hunter2@");
    assert_eq!(kind(Redis::connect(&server).await), ErrorKind::Invalid);
    let other_slot = Redis::connect_in(&url(), "a{b}").await;
    assert_eq!(kind(other_slot), ErrorKind::Invalid);
}

/// A queue of four shards with 60 keys, two jobs each.
async fn sharded(queue: Queue) -> (Arc<Redis>, Vec<JobId>) {
    let store = open(&new_prefix()).await;
    declare(&store, in_shards(queue, 4)).await;
    let jobs = (0..120).map(|i| job(&format!("key {:02}", i % 60), i)).collect();
    let ids: Vec<JobId> = push(&store, jobs).await.iter().map(|pushed| pushed.job_id).collect();
    let shards: HashSet<Shard> = ids.iter().map(|id| Shard::of_job(*id)).collect();
    assert_eq!(shards.len(), 4, "keys spread over all shards");
    (store, ids)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_shards_of_a_queue_are_listed_page_by_page() {
    let (store, ids) = sharded(Queue::fifo("q")).await;
    for order in [LaneOrder::Age, LaneOrder::Key, LaneOrder::Due] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let query = LaneQuery { order, after, rows_max: 7, ..LaneQuery::new("q") };
            let page = store.lanes(query).await.unwrap();
            seen.extend(page.rows.into_iter().map(|lane| lane.key.unwrap()));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert!(order != LaneOrder::Key || seen.is_sorted());
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 60);
        assert_eq!(seen.len(), 60, "each once");
    }
    for (i, id) in ids.iter().enumerate() {
        let job = store.job(*id).await.unwrap().unwrap();
        assert_eq!((job.id, job.payload.decode::<u32>().unwrap()), (*id, i as u32));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_shards_of_a_queue_are_claimed_counted_acted_on_and_swept() {
    let (store, ids) = sharded(Queue::fifo("q").retain_completed(Duration::ZERO)).await;
    let due = store.due(Vec::new()).await.unwrap();
    assert!(due.len() == 1 && due[0].due.is_some(), "of all shards the earliest: {due:?}");
    let act = |action| Act { now: None, queue: "q".into(), lanes: LaneSelection::All, action };
    assert_eq!(store.act(act(LaneAction::Pause)).await.unwrap().count, 60);
    assert_eq!(claim(&store, 100).await.len(), 0);
    assert_eq!(store.act(act(LaneAction::Resume)).await.unwrap().count, 60);
    store.pause_queue("q".into(), true).await.unwrap();
    assert_eq!(claim(&store, 100).await.len(), 0);
    store.pause_queue("q".into(), false).await.unwrap();

    let few = claim(&store, 7).await;
    assert_eq!(few.len(), 7);
    let next_due = store.claim(claim_request("q", 0)).await.unwrap().next_due;
    assert!(next_due.is_some_and(|due| due <= store_now(&few)), "more is ready");
    let turns = [few, claim(&store, 100).await].concat();
    assert_eq!(turns.len(), 60);
    assert!(turns.iter().all(|turn| tag(turn) < 60), "each key's first job");
    assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    assert!(done(&store, &turns).await.iter().all(|settled| *settled == Settled::Stale));

    let cancel = Cancel { now: None, jobs: ids.clone() };
    let cancelled = store.cancel(cancel).await.unwrap();
    assert!(cancelled[..60].iter().all(|answer| *answer == Cancelled::Unknown));
    assert!(cancelled[60..].iter().all(|answer| *answer == Cancelled::Now));
    let left = numbers(&store).await;
    assert_eq!((left.jobs, left.lanes, left.processed), (0, 0, 60));
}

fn store_now(turns: &[Turn]) -> Timestamp {
    turns[0].claimed_at + LEASE
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_all_shards_are_rescued_flagged_and_buried() {
    let (store, ids) = sharded(Queue::fifo("q").max_retries(0)).await;
    let held = claim(&store, 100).await;
    let cancelled = store.cancel(Cancel { now: None, jobs: ids[..60].to_vec() }).await.unwrap();
    assert!(cancelled.iter().all(|answer| *answer == Cancelled::Flagged));
    let node = NodeInfo::new("n".into(), LEASE);
    let beat = Heartbeat { now: None, node: node.clone(), beats: Vec::new() };
    assert_eq!(store.heartbeat(beat.clone()).await.unwrap().cancel.len(), 60);

    let now = Some(store.now().await.unwrap() + LEASE + LEASE);
    let other = NodeInfo::new("m".into(), LEASE);
    store.heartbeat(Heartbeat { now, node: other, beats: Vec::new() }).await.unwrap();
    let mut rescued = Vec::new();
    for lanes_max in [7, 1_000] {
        let request = Rescue { now, node: "m".into(), lease: LEASE, lanes_max, ticket: 0 };
        rescued.extend(store.rescue(request).await.unwrap());
    }
    assert_eq!(rescued.len(), 60);
    assert!(done(&store, &held).await.iter().all(|settled| *settled == Settled::Stale));
    let settle = |turn: &Turn| Settlement {
        rest: crate::store::Fate::Bury,
        ..Settlement::done(turn.lane, turn.token)
    };
    let at = async |turns| store.settle(Settle { now, turns, ..Settle::default() }).await.unwrap();
    // Flagged jobs end cancelled; the next claim gets the others, one per key, and buries them.
    let turns = rescued.iter().map(settle).collect();
    assert!(at(turns).await.iter().all(Settled::is_ok));
    let request = Claim { now, node: "m".into(), ..claim_request("q", 100) };
    let mut turns = Vec::new();
    loop {
        // First the shards that this node prefers, then the others.
        let got = store.claim(request.clone()).await.unwrap().turns;
        if got.is_empty() {
            break;
        }
        turns.extend(got.iter().map(settle));
    }
    assert!(at(turns).await.iter().all(Settled::is_ok));
    assert!(!store.heartbeat(beat).await.unwrap().alive);

    let selected = |which| Selected { now, queue: "q".into(), which };
    let some = Selection::Jobs(ids[60..70].to_vec());
    assert_eq!(store.requeue(selected(some)).await.unwrap().count, 10);
    let keys = Selection::Keys(vec!["key 20".into(), "key 20".into(), "key 21".into()]);
    assert_eq!(store.delete_dead(selected(keys)).await.unwrap().count, 2);
    assert_eq!(store.requeue(selected(Selection::All)).await.unwrap().count, 48);
    let left = numbers(&store).await;
    assert_eq!((left.jobs, left.lanes, left.dead), (58, 58, 0));
}
