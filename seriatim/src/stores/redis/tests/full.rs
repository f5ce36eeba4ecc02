//! A server whose memory is full, or gets full. What every operation does on one is in the conformance suite
//! (`redis_full`).

use seriatim_testkit::{Redis as Server, RedisCluster};

use super::*;

const JOBS: u32 = 10_000;
/// The arguments of a push of so many, which are memory too, take about 1.1 MB, and what it writes about 2.
const ROOM_OF_PUSH: u64 = 1_600_000;
/// What a claim of so many writes takes about 0.8 MB.
const ROOM_OF_CLAIM: u64 = 100_000;

fn used(server: &Server) -> u64 {
    let info = server.send(&["INFO", "memory"]).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.unwrap().trim().parse().unwrap()
}

/// What the server has now, and some room.
fn limit(server: &Server, room: u64) {
    let bytes = used(server) + room;
    server.send(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]).unwrap();
}

fn is_over(server: &Server) -> bool {
    let answer = server.send(&["CONFIG", "GET", "maxmemory"]).unwrap();
    used(server) > answer.split_whitespace().last().unwrap().parse().unwrap()
}

fn jobs(from: u32) -> Vec<Job> {
    (from..from + JOBS).map(|i| job(&format!("k{i}"), i)).collect()
}

/// Redis decides before a script whether it may take memory: one that begins goes on beyond the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_begins_below_the_limit_ends_beyond_it() {
    let server = Server::start().unwrap();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, jobs(0)).await;
    limit(&server, ROOM_OF_PUSH);
    let pushed = store.push(Push { now: None, jobs: jobs(JOBS) }).await;
    assert_eq!(pushed.map(|pushed| pushed.len()).ok(), Some(JOBS as usize));
    assert!(is_over(&server), "the limit was reached by the push");
    let refused = store.push(Push { now: None, jobs: jobs(2 * JOBS) }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
    assert!(refused.to_string().contains("memory is full"), "{refused}");

    limit(&server, ROOM_OF_CLAIM);
    let all = claim(&store, JOBS as usize).await;
    assert_eq!(all.len(), JOBS as usize);
    assert!(is_over(&server), "the limit was reached by the claim");
    let before = used(&server);
    assert!(done(&store, &all).await.iter().all(Settled::is_ok));
    assert!(used(&server) < before, "settling makes room");
    let now = numbers(&store).await;
    assert_eq!((now.jobs, now.lanes, now.claimed), (u64::from(JOBS), u64::from(JOBS), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_gets_more_shards_on_a_full_server_is_drained() {
    let server = Server::start().unwrap();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..20).map(|i| job(&format!("k{i}"), i)).collect()).await;
    server.send(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    assert_eq!(store.reshard("q".into(), 4).await.unwrap().shards, 4);
    let turns = claim(&store, 20).await;
    assert_eq!(turns.len(), 20);
    assert!(done(&store, &turns).await.iter().all(Settled::is_ok));
    assert_eq!(numbers(&store).await.jobs, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_that_has_lost_its_scripts_takes_settles() {
    let server = Server::start().unwrap();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1)]).await;
    let turns = claim(&store, 1).await;
    server.send(&["SCRIPT", "FLUSH"]).unwrap();
    server.send(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    assert!(done(&store, &turns).await[0].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_for_several_servers_nothing_is_pushed_if_one_is_full() {
    let mut cluster = RedisCluster::start().unwrap();
    let store = open_at(&cluster.url(), &new_prefix()).await;
    declare(&store, in_shards(Queue::fifo("q"), 12)).await;
    let batch = |from: u32| (from..from + 60).map(|i| job(&format!("k{i}"), i)).collect();
    push(&store, batch(0)).await;
    for full in 0..3 {
        cluster.nodes()[full].send(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let refused = store.push(Push { now: None, jobs: batch(100) }).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
        assert_eq!(numbers(&store).await.jobs, 60, "without the part of a full server");
        cluster.nodes()[full].send(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    }
    push(&store, batch(100)).await;
    assert_eq!(numbers(&store).await.jobs, 120);
}
