//! Other deployments: a cluster, a master with a sentinel, TLS.

use std::pin::pin;

use seriatim_testkit::{
    Authority, Redis as Server, RedisCluster, RedisSentinel, redis_cluster_url,
};

use super::*;

/// Waits for real servers, at most 30 s.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::task::yield_now().await;
    }
}

/// Claims and settles until nothing is left.
pub(super) async fn drain(store: &Redis) -> Vec<u32> {
    let mut tags = Vec::new();
    loop {
        let turns = claim(store, 100).await;
        if turns.is_empty() {
            return tags;
        }
        tags.extend(turns.iter().map(tag));
        assert!(done(store, &turns).await.iter().all(Settled::is_ok));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_between_pushes_and_claims_in_a_cluster() {
    let url = redis_cluster_url().unwrap();
    pushes_and_claims_race_at(&url, in_shards(Queue::fifo("q"), 5), 40, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_s_new_master_goes_on_with_what_was_confirmed() {
    let mut servers = RedisSentinel::start().unwrap();
    let store = open_at(&format!("{}?wait_replicas=1", servers.url()), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..20).map(|i| job(&format!("k{}", i % 4), i)).collect()).await;
    servers.master().kill().unwrap();
    until("a new master", async || store.now().await.is_ok()).await;
    assert_eq!(numbers(&store).await.jobs, 20);
    // No replica is left to confirm. A claim that the next failover may lose must fail.
    let pushed = store.push(Push { now: None, jobs: vec![job("k", 99)] }).await.unwrap_err();
    let claimed = store.claim(claim_request("q", 1)).await.unwrap_err();
    for error in [pushed, claimed] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("wait_replicas"), "{error}");
    }
}

// One thread: a poll of a claim then ends at each round trip, and none is passed by unseen.
#[tokio::test]
async fn a_shard_whose_slot_moves_to_another_node_loses_nothing_and_is_followed() {
    let mut cluster = RedisCluster::start().unwrap();
    commands_wait_while_each_node_has_half_of_a_shard(&cluster).await;
    a_claim_follows_its_shard_to_its_payloads(&mut cluster).await;
}

async fn commands_wait_while_each_node_has_half_of_a_shard(cluster: &RedisCluster) {
    let prefix = new_prefix();
    let store = open_at(&cluster.url(), &prefix).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, (0..50).map(|i| job(&format!("k{i}"), i)).collect()).await;
    let on_its_way = cluster.begin_move(&format!("{prefix}:{{q1:0}}:lanes")).unwrap();
    // Commands that arrive while each side has a part of the shard wait and run on neither.
    let between = Push { now: None, jobs: vec![job("k0", 50)] };
    let pushed = tokio::time::timeout(Duration::from_millis(300), store.push(between)).await;
    assert!(pushed.is_err(), "{pushed:?}");
    cluster.end_move(&on_its_way).unwrap();
    push(&store, vec![job("k0", 51)]).await;
    let mut tags = drain(&store).await;
    tags.sort_unstable();
    assert_eq!(tags, (0..50).chain([51]).collect::<Vec<u32>>());
}

async fn a_claim_follows_its_shard_to_its_payloads(cluster: &mut RedisCluster) {
    let prefix = new_prefix();
    let store = open_at(&cluster.url(), &prefix).await;
    let other = open_at(&cluster.url(), &prefix).await;
    declare(&store, Queue::fifo("q")).await;
    let payload = "-".repeat(5_000);
    push(&store, vec![Job::new("q", &payload).unwrap().key("k")]).await;
    // From now on the server has the script.
    assert!(claim(&store, 0).await.is_empty());
    let mut claiming = pin!(store.claim(claim_request("q", 1)));
    // What it waits for before the script is not the same each time.
    let is_claimed = async || {
        if numbers(&other).await.claimed == 1 {
            return true;
        }
        assert!(futures_util::poll!(claiming.as_mut()).is_pending());
        false
    };
    until("the job is claimed", is_claimed).await;
    cluster.move_slot(&format!("{prefix}:{{q1:0}}:meta")).unwrap();
    let turns = claiming.await.unwrap().turns;
    assert_eq!(turns[0].jobs[0].payload.decode::<String>().unwrap(), payload);
    assert!(done(&store, &turns).await[0].is_ok());
}

#[tokio::test]
async fn a_server_with_tls_is_trusted_by_its_authority_only() {
    let authority = Authority::new().unwrap();
    let ((certificate, key), ca) = (authority.server_files(), authority.roots());
    let port = seriatim_testkit::free_port().unwrap().to_string();
    let words = ["--tls-port", &port, "--tls-auth-clients", "no", "--tls-cert-file", &certificate];
    let words = [&words[..], &["--tls-key-file", &key, "--tls-ca-cert-file", &ca]].concat();
    let _server = Server::start_with(&words).unwrap();
    let url = format!("rediss://127.0.0.1:{port}/?ca={ca}");
    let store = open_at(&url, &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 7)]).await;
    assert_eq!(drain(&store).await, [7]);
    let strange = Redis::connect(&format!("rediss://127.0.0.1:{port}/")).await;
    assert_eq!(strange.err().unwrap().kind(), ErrorKind::Unavailable);
    let missing = Redis::connect("rediss://127.0.0.1:1/?ca=/nowhere/ca.pem").await.err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::Invalid);
    assert!(missing.to_string().contains("/nowhere/ca.pem"), "{missing}");
}

#[tokio::test]
async fn a_cluster_is_not_taken_for_a_server() {
    let url = redis_cluster_url().unwrap();
    let one = url.split(',').next().unwrap().replace("redis-cluster:", "redis:");
    let error = Redis::connect(&one).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}
