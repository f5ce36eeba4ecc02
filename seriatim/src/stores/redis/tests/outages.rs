//! Servers that are away, fall silent, refuse, or take over.

use std::cell::RefCell;
use std::net::{Ipv4Addr, TcpListener};

use seriatim_testkit::{Cut, Proxy, Redis as Server};
use tokio::sync::{mpsc, oneshot};

use super::super::args::Args;
use super::super::line::{BRIDGE, Line};
use super::super::link::RELEASE;
use super::super::page::Rows;
use super::super::wire::{Safety, Wire};
use super::super::{address, line};
use super::servers::until;
use super::upkeep::scripts;
use super::*;
use crate::contract::release::NOBODY;
use crate::store::NodeId;
use crate::{Batch, Context, Engine};

fn server() -> Server {
    Server::start_with(&["--repl-diskless-sync-delay", "0"]).unwrap()
}

/// A server that copies another one.
fn replica_of(master: &Server) -> Server {
    let replica = server();
    follow(&replica, master);
    replica
}

fn follow(replica: &Server, master: &Server) {
    replica.send(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).unwrap();
}

fn promote(replica: &Server) {
    replica.send(&["REPLICAOF", "NO", "ONE"]).unwrap();
}

/// Waits until the replica has all that the master has, and the master counts it.
async fn has_all(replica: &Server, master: &Server) {
    let offset = |server: &Server| {
        let info = server.send(&["INFO", "replication"]).unwrap();
        let is_linked = info.contains("state=online") || info.contains("master_link_status:up");
        let at = info.find("master_repl_offset:").filter(|_| is_linked)?;
        info[at..].lines().next().map(str::to_owned)
    };
    until("the replica has it all", async || {
        let there = offset(replica);
        there.is_some() && there == offset(master)
    })
    .await;
}

fn over(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}/", proxy.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_leads_to_a_new_master_is_followed() {
    let master = server();
    let replica = replica_of(&master);
    let proxy = Proxy::start(master.port()).unwrap();
    let store = open_at(&over(&proxy), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1)]).await;
    has_all(&replica, &master).await;
    promote(&replica);
    follow(&master, &replica);
    proxy.lead_to(replica.port());
    // The open connection leads to the old master, which refuses to write.
    push(&store, vec![job("k", 2)]).await;
    assert_eq!(numbers(&store).await.jobs, 2);
}

/// A server that becomes a replica refuses to wait for replicas, and need not close its connections.
#[tokio::test]
async fn who_waits_for_replicas_follows_the_new_master_too() {
    let master = server();
    let replica = replica_of(&master);
    has_all(&replica, &master).await;
    let proxy = Proxy::start(master.port()).unwrap();
    let store = open_at(&format!("{}?wait_replicas=1", over(&proxy)), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("k", 1)]).await;
    has_all(&replica, &master).await;
    promote(&replica);
    follow(&master, &replica);
    has_all(&master, &replica).await;
    proxy.lead_to(replica.port());
    // So long that the next call first asks whether the replicas have what was written before.
    pass(Duration::from_secs(60)).await;
    push(&store, vec![job("k", 2)]).await;
    assert_eq!(numbers(&store).await.jobs, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_replica_holds_up_nothing_but_what_it_must_confirm() {
    let server = server();
    let store = open_at(&format!("{}?wait_replicas=1", server.url()), &new_prefix()).await;
    declare(&store, Queue::fifo("q")).await;
    let started = std::time::Instant::now();
    let pushes = (0..20).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            store.push(Push { now: None, jobs: vec![job("k", number)] }).await.unwrap_err()
        })
    });
    let pushes: Vec<_> = pushes.collect();
    let node = NodeInfo::new("n".into(), LEASE);
    store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    assert!(!pushes.iter().any(|push| push.is_finished()), "a heartbeat waits for no replica");
    for push in pushes {
        let error = push.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("wait_replicas"), "{error}");
    }
    assert!(started.elapsed() < Duration::from_secs(15), "they wait together");
    let written = numbers(&store).await.jobs;
    let refused = store.claim(claim_request("q", 1)).await.unwrap_err();
    assert!(refused.to_string().contains("nothing was written"), "{refused}");
    assert_eq!((numbers(&store).await.jobs, numbers(&store).await.claimed), (written, 0));
    // With a replica all goes on.
    let replica = replica_of(&server);
    has_all(&replica, &server).await;
    let claims = async || store.claim(claim_request("q", 1)).await.is_ok();
    until("claims are confirmed", claims).await;
}

/// What it then says is an error, also to the call that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_unknown_what_becomes_of_a_push_whose_master_becomes_a_replica() {
    let (master, new) = (server(), server());
    let replica = replica_of(&master);
    let store = open_at(&format!("{}?wait_replicas=1", master.url()), &new_prefix()).await;
    let other = open_at(&master.url(), &store.prefix).await;
    declare(&store, Queue::fifo("q")).await;
    has_all(&replica, &master).await;
    push(&store, vec![job("k", 1)]).await;
    replica.hang().unwrap();
    let pushing = tokio::spawn(async move {
        store.push(Push { now: None, jobs: vec![job("k", 2)] }).await.unwrap_err()
    });
    until("it is written", async || numbers(&other).await.jobs == 2).await;
    follow(&master, &new);
    let error = pushing.await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    replica.go_on().unwrap();
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left_for_a_new_connection() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = open_at(&over(&proxy), &new_prefix()).await;
    let mut wakeups = store.wakeups();
    let listens = async || server.send(&["PUBSUB", "CHANNELS"]).unwrap().contains("wake");
    until("it listens", listens).await;
    proxy.mute();
    // From now on each wait ends at once, if nothing else happens.
    tokio::time::pause();
    let silent = store.now().await.unwrap_err();
    assert_eq!(silent.kind(), ErrorKind::Unavailable, "{silent}");
    let rung = wakeups.wait(Duration::from_secs(60)).await;
    assert_eq!(rung, Some(Wake::All), "it listens anew, and may have missed some");
    tokio::time::resume();
    until("it answers", async || store.now().await.is_ok()).await;
}

/// The connection of a store without the store, which would connect for wake-ups too.
async fn wire_to(server: &Server) -> (Arc<Proxy>, Wire) {
    let proxy = Arc::new(Proxy::start(server.port()).unwrap());
    let (target, options) = address::read(&over(&proxy)).unwrap();
    (proxy, Wire::open(target, &options, line::ANSWER_WITHIN).await.unwrap())
}

fn line_of(wire: &Wire) -> &Arc<Line> {
    let Wire::One(node) = wire else { panic!("it is a cluster") };
    &node.line
}

/// Loses the connection. So many attempts to connect find nobody, and later ones the server.
async fn lose(wire: &Wire, proxy: &Arc<Proxy>, server: &Server, attempts: usize) {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    proxy.lead_to(nobody.local_addr().unwrap().port());
    proxy.disconnect();
    let (proxy, port) = (proxy.clone(), server.port());
    std::thread::spawn(move || {
        for (before, link) in nobody.incoming().take(attempts).enumerate() {
            if before + 1 == attempts {
                proxy.lead_to(port);
            }
            drop(link);
        }
    });
    let lost = line_of(wire).send(&::redis::cmd("PING")).await;
    assert!(matches!(lost, Err(line::Failure::Sent(_))), "{lost:?}");
}

fn write() -> ::redis::Cmd {
    ::redis::cmd("SET").arg("k").arg(1).to_owned()
}

/// Nothing happens for so long.
pub(super) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_refusal_of_long_ago_ends_no_call_of_an_outage() {
    let server = server();
    let (proxy, wire) = wire_to(&server).await;
    server.send(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let refused = line_of(&wire).send(&write()).await;
    assert!(matches!(refused, Err(line::Failure::Unsent(_))), "{refused:?}");
    promote(&server);
    pass(Duration::from_secs(3_600)).await;
    lose(&wire, &proxy, &server, 4).await;
    let waited = wire.send(b"k", &write(), Safety::Written).await;
    assert!(waited.is_ok(), "{waited:?}");
}

#[tokio::test]
async fn the_first_call_after_an_outage_finds_the_server_that_is_back() {
    let server = server();
    let (proxy, wire) = wire_to(&server).await;
    lose(&wire, &proxy, &server, 2).await;
    until("nobody asks, so nobody connects", async || Arc::weak_count(line_of(&wire)) == 0).await;
    pass(2 * BRIDGE).await;
    assert!(line_of(&wire).is_out());
    let first = wire.send(b"k", &write(), Safety::Written).await;
    assert!(first.is_ok(), "{first:?}");
}

/// What a server loses, both ways: a settle that it does not know of any more leaves its lane held; a claim that it does not
/// know of any more leaves its handler running. It keeps what was written before `keep` returns.
async fn nothing_stays_held_or_runs_without_its_claim(
    url: &str,
    keep: impl AsyncFnOnce(),
    lose: impl AsyncFnOnce(),
) {
    let store = open_at(url, &new_prefix()).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let go_on = Arc::new(tokio::sync::Semaphore::new(0));
    let handler = {
        let (tell, go_on) = (tell.clone(), go_on.clone());
        move |batch: Batch<u32>, context: Context| {
            let (tell, go_on) = (tell.clone(), go_on.clone());
            async move {
                let number = batch.payloads().next().copied().unwrap();
                tell.send(format!("{number} begins")).unwrap();
                tokio::select! {
                    permit = go_on.acquire() => permit.unwrap().forget(),
                    () = context.must_end() => tell.send(format!("{number} is stopped")).unwrap(),
                }
            }
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let engine = Engine::builder(store.clone())
        .queue(Queue::fifo("q"))
        .lease(Duration::from_secs(30))
        .heartbeat(Duration::from_millis(300))
        .worker("q", handler)
        .run_until(stopped);
    let engine = tokio::spawn(engine);
    // Sooner than the lease ends.
    let mut next =
        async || tokio::time::timeout(Duration::from_secs(15), told.recv()).await.unwrap().unwrap();

    push(&store, vec![job("settled", 1)]).await;
    assert_eq!(next().await, "1 begins");
    keep().await;
    push(&store, vec![job("claimed", 2)]).await;
    assert_eq!(next().await, "2 begins");
    go_on.add_permits(1);
    until("the first is settled", async || numbers(&store).await.processed == 1).await;
    lose().await;
    let mut seen = [next().await, next().await];
    seen.sort();
    assert_eq!(seen, ["1 begins", "2 is stopped"]);
    go_on.add_permits(1);
    let is_empty = async || {
        let left = store.stats(None).await.unwrap_or_default();
        left.first().is_some_and(|left| (left.jobs, left.claimed) == (0, 0))
    };
    until("nothing stays held", is_empty).await;
    let told = async || {
        let nodes = store.nodes().await.unwrap_or_default();
        let troubles = nodes.into_iter().flat_map(|node| node.info.troubles);
        let lost = troubles.filter(|trouble| trouble.kind.as_str() == "writes_lost");
        lost.map(|trouble| trouble.text).next_back().unwrap_or_default()
    };
    let counts = ["without their claims: 1;", "had ended or never got: 1"];
    let is_told = async || {
        let told = told().await;
        counts.iter().all(|count| told.contains(count))
    };
    until("people are told what was lost", is_told).await;
    stop.send(()).unwrap();
    engine.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_lossy_failover_no_lane_stays_held_and_no_handler_runs_without_its_claim() {
    let master = server();
    let replica = replica_of(&master);
    let proxy = Proxy::start(master.port()).unwrap();
    let keep = async || {
        has_all(&replica, &master).await;
        promote(&replica);
    };
    let lose = async || {
        proxy.lead_to(replica.port());
        proxy.disconnect();
    };
    nothing_stays_held_or_runs_without_its_claim(&over(&proxy), keep, lose).await;
}

/// As a server with `appendfsync everysec` does when its machine crashes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_that_lost_the_last_writes_no_lane_stays_held_and_no_handler_runs_without_its_claim()
 {
    let server = Server::start_with(&["--appendonly", "no"]).unwrap();
    let (url, server) = (server.url(), RefCell::new(server));
    let keep = async || drop(server.borrow().send(&["SAVE"]).unwrap());
    let lose = async || {
        server.borrow_mut().kill().unwrap();
        server.borrow_mut().restart().unwrap();
    };
    nothing_stays_held_or_runs_without_its_claim(&url, keep, lose).await;
}

/// What a step of a listing finds is added; answers where the next one begins.
async fn list(
    store: &Redis,
    what: &'static str,
    from: &str,
    found: &mut HashSet<String>,
) -> String {
    let (next, rows) =
        store.rows_of_step(Shard { queue: 1, shard: 0 }, &Rows::all(what), from).await.unwrap();
    found.extend(rows.rest().map(|row| format!("{row:?}")));
    next
}

/// Releases what the node holds of the second queue; answers where the next step begins, and how many lanes that was.
async fn release(store: &Redis, from: &str) -> (String, usize) {
    let mut args = Args::at(None);
    args.text(NOBODY).int(1_000).time(Timestamp::MAX).text("node").text("n").text(from);
    let key = store.key(Shard { queue: 2, shard: 0 }, "");
    let mut answer = store.link.call(&RELEASE, &key, &args).await.unwrap();
    let taken = answer.list().unwrap().rest().count();
    (answer.text().unwrap().to_string(), taken)
}

/// Servers with the same rows have other cursors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_misses_nothing_on_a_server_that_took_over_between_two_steps() {
    const LANES: u32 = 3_000;
    const HELD: usize = 1_500;
    let (master, prefix) = (server(), new_prefix());
    let replica = replica_of(&master);
    let proxy = Proxy::start(master.port()).unwrap();
    let store = open_at(&over(&proxy), &prefix).await;
    for queue in ["q", "r"] {
        declare(&store, Queue::fifo(queue)).await;
        let job = |i: u32| Job::new(queue, &i).unwrap().key(format!("k{i}"));
        push(&store, (0..LANES).map(job).collect()).await;
        let lease = Lease::Own { ttl: LEASE };
        let request = Claim { lease, ..claim_request(queue, HELD) };
        assert_eq!(store.claim(request).await.unwrap().turns.len(), HELD);
    }
    let (mut lanes, mut held, mut released) = (HashSet::new(), HashSet::new(), 0);
    let mut next_lanes = list(&store, "names", "", &mut lanes).await;
    let mut next_held = list(&store, "held", "", &mut held).await;
    let mut next = String::new();
    while released < HELD / 2 {
        let step = release(&store, &next).await;
        (next, released) = (step.0, released + step.1);
    }
    assert!(![&next_lanes, &next_held, &next].iter().any(|next| next.is_empty()));

    has_all(&replica, &master).await;
    promote(&replica);
    proxy.lead_to(replica.port());
    proxy.disconnect();
    until("the new master answers", async || store.now().await.is_ok()).await;
    while !next_lanes.is_empty() {
        next_lanes = list(&store, "names", &next_lanes, &mut lanes).await;
    }
    while !next_held.is_empty() {
        next_held = list(&store, "held", &next_held, &mut held).await;
    }
    while !next.is_empty() {
        let step = release(&store, &next).await;
        (next, released) = (step.0, released + step.1);
    }
    assert_eq!((lanes.len(), held.len(), released), (LANES as usize, HELD, HELD));
}

/// A claim is answered before the long payloads of its jobs are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_between_a_claim_and_its_payloads_loses_neither_the_job_nor_its_payload() {
    for is_copied in [false, true] {
        let (master, prefix) = (server(), new_prefix());
        let replica = replica_of(&master);
        let proxy = Proxy::start(master.port()).unwrap();
        let store = open_at(&over(&proxy), &prefix).await;
        declare(&store, Queue::fifo("q").retain_completed(Duration::ZERO)).await;
        let payload = "-".repeat(5_000);
        push(&store, vec![Job::new("q", &payload).unwrap().key("k")]).await;
        // From now on the server has the script.
        assert!(claim(&store, 0).await.is_empty());
        has_all(&replica, &master).await;
        if !is_copied {
            promote(&replica);
        }
        // The open connection still leads to the master, and the next one to its replica.
        proxy.lead_to(replica.port());
        proxy.cut(1, Cut::BeforeRequest);
        let lost = store.claim(claim_request("q", 1)).await.unwrap_err();
        assert_eq!((lost.kind(), proxy.cuts()), (ErrorKind::Unavailable, 1), "{lost}");
        if is_copied {
            has_all(&replica, &master).await;
            promote(&replica);
        }
        proxy.disconnect();
        until("the new master answers", async || store.now().await.is_ok()).await;

        // What a node finds that compares its claims with the store's.
        let node = Some("n".into());
        let held = store.lanes(LaneQuery { node, ..LaneQuery::new("q") }).await.unwrap().rows;
        assert_eq!(held.len(), usize::from(is_copied));
        let turn = match held.first() {
            Some(row) => store.turn(row.lane, row.token.unwrap()).await.unwrap().unwrap(),
            None => claim(&store, 1).await.remove(0),
        };
        assert_eq!(turn.jobs[0].payload.decode::<String>().unwrap(), payload);
        assert!(done(&store, &[turn]).await[0].is_ok());
        let left = replica.send(&["HLEN", &format!("{prefix}:{{q1:0}}:bodies")]).unwrap();
        assert!(left.starts_with(":0"), "{left}");
    }
}

#[tokio::test]
async fn what_a_rescue_did_not_reach_is_told_to_its_own_node() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, in_shards(Queue::fifo("q"), 2)).await;
    push(&store, (0..20).map(|i| job(&format!("k{i}"), i)).collect()).await;
    let held = claim(&store, 100).await;
    let in_shard = |shard| held.iter().filter(|turn| turn.lane.shard == shard).count();
    assert!(held.len() == 20 && (1..20).contains(&in_shard(0)), "{}", in_shard(0));

    let now = Some(store.now().await.unwrap() + LEASE + LEASE);
    let rescue =
        |node: &str| Rescue { now, node: node.into(), lease: LEASE, lanes_max: 100, ticket: 0 };
    for node in ["m", "o"] {
        let node = NodeInfo::new(node.into(), LEASE);
        store.heartbeat(Heartbeat { now, node, beats: Vec::new() }).await.unwrap();
    }
    // Such a shard fails, and the one behind it must not wait for it.
    let leases = format!("{prefix}:{{q1:0}}:leases");
    send(&url(), &["SET", &leases, "no index"]).await;
    assert_eq!(store.rescue(rescue("m")).await.unwrap().len(), in_shard(1));
    send(&url(), &["DEL", &leases]).await;
    assert_eq!(store.rescue(rescue("o")).await.unwrap().len(), in_shard(0));
    assert!(store.rescue(rescue("m")).await.is_err(), "one shard did not answer it");
    assert!(store.rescue(rescue("m")).await.unwrap().is_empty(), "that is reported once");
}

/// A replica that took over lacks the last token, and its clock may be behind that of the old master.
#[tokio::test]
async fn a_token_that_a_heartbeat_names_is_never_drawn_again() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("q")).await;
    push(&store, vec![job("a", 1), job("b", 2)]).await;
    let turn = claim(&store, 1).await.remove(0);
    let ahead = Token(turn.token.0 + 3_600_000_000);
    let beats = vec![Beat { lane: turn.lane, token: ahead, progress: None, extend: None }];
    let node = NodeInfo::new("n".into(), LEASE);
    let pulse = store.heartbeat(Heartbeat { now: None, node, beats }).await.unwrap();
    assert_eq!(pulse.lost, [turn.lane]);
    assert!(claim(&store, 1).await[0].token > ahead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_nodes_looks_for_expired_claims_and_another_one_when_it_is_dead() {
    let prefix = new_prefix();
    let url = url();
    let stores = futures_util::future::join_all((0..3).map(|_| open_at(&url, &prefix))).await;
    declare(&stores[0], in_shards(Queue::fifo("q"), 4)).await;
    let id = |i: usize| NodeId::from(format!("node {i}").as_str());
    for (i, store) in stores.iter().enumerate() {
        let node = NodeInfo::new(id(i), LEASE);
        store.heartbeat(Heartbeat { now: None, node, beats: Vec::new() }).await.unwrap();
    }
    let leads = async |i: usize| {
        let rescue = Rescue { now: None, node: id(i), lease: LEASE, lanes_max: 10, ticket: 0 };
        stores[i].declare_dying(&rescue).await.unwrap().is_some()
    };
    for i in 0..3 {
        assert!(leads(i).await, "each looks once when it starts");
    }
    let leaders: Vec<bool> = [leads(0).await, leads(1).await, leads(2).await].into();
    assert_eq!(leaders.iter().filter(|leads| **leads).count(), 1);
    let (leader, other) = (
        leaders.iter().position(|leads| *leads).unwrap(),
        leaders.iter().position(|leads| !leads).unwrap(),
    );
    send(&url, &["ZADD", &format!("{prefix}:{{g}}:alive"), "1", &id(leader).0]).await;
    assert!(leads(other).await, "who finds a dead node takes over what it held");
}

/// However many processes wait, a push wakes two of them, and the others stay asleep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_processes_that_wait_a_push_wakes_two() {
    let server = server();
    let (url, prefix) = (server.url(), new_prefix());
    let pusher = open_at(&url, &prefix).await;
    declare(&pusher, Queue::fifo("q")).await;
    let stores = futures_util::future::join_all((0..10).map(|_| open_at(&url, &prefix))).await;
    let listens = async || {
        let answer = server.send(&["PUBSUB", "CHANNELS"]).unwrap();
        answer.matches(":wake:").count() == 11
    };
    until("all listen", listens).await;
    let mut waiting: Vec<_> = stores.iter().map(|store| store.wakeups()).collect();
    for store in &stores {
        assert!(claim(store, 1).await.is_empty());
    }
    for wakeups in &mut waiting {
        wakeups.forget();
    }
    push(&pusher, vec![job("k", 1)]).await;
    let ears = waiting.iter_mut().map(|wakeups| wakeups.wait(Duration::from_secs(1)));
    let woken = futures_util::future::join_all(ears).await;
    assert_eq!(woken.iter().flatten().count(), 2, "{woken:?}");
    // A pause concerns all.
    pusher.pause_queue("q".into(), true).await.unwrap();
    let ears = waiting.iter_mut().map(|wakeups| wakeups.wait(Duration::from_secs(10)));
    let woken = futures_util::future::join_all(ears).await;
    assert_eq!(woken.iter().flatten().count(), 10, "{woken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_few_slots_asks_many_shards_side_by_side() {
    let server = server();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, in_shards(Queue::fifo("q"), 64)).await;
    push(&store, vec![job("k", 1)]).await;
    let proxy = Proxy::start(server.port()).unwrap();
    let far = open_at(&over(&proxy), &store.prefix).await;
    far.queues().await.unwrap();
    claim(&far, 0).await;
    let before = proxy.request_bytes();
    claim(&far, 0).await;
    let for_all = proxy.request_bytes() - before;
    // While the server answers no script, all requests are sent, and not only the first.
    server.send(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap();
    let before = proxy.request_bytes();
    let (far, claiming) = (far.clone(), far);
    let claiming = tokio::spawn(async move { claim(&claiming, 2).await });
    until("all are asked", async || proxy.request_bytes() - before >= for_all).await;
    server.send(&["CLIENT", "UNPAUSE"]).unwrap();
    assert_eq!(claiming.await.unwrap().len(), 1);
    far.close().await.unwrap();
}

/// It gets what it needs of the first two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_asks_no_more_shards_when_it_has_enough() {
    const SHARDS: u16 = 64;
    let server = server();
    let store = open_at(&server.url(), &new_prefix()).await;
    declare(&store, in_shards(Queue::parallel("q"), SHARDS)).await;
    for i in 0..SHARDS {
        push(&store, vec![Job::new("q", &i).unwrap()]).await;
    }
    // From now on the server has the script.
    assert!(claim(&store, 0).await.is_empty());
    let before = scripts(&server.url()).await;
    let claimed = store.claim(claim_request("q", 2)).await.unwrap();
    let asked = scripts(&server.url()).await - before;
    assert_eq!(claimed.turns.len(), 2);
    assert!(claimed.next_due.is_some_and(|due| due <= store_now(&claimed.turns)), "more is ready");
    assert!(asked <= u64::from(SHARDS) + 2, "{asked} scripts");
    // A process with enough to do is not woken for what waits already; the first of the two shards has nothing more.
    let sleeps = server.send(&["KEYS", "*:sleepers"]).unwrap();
    assert!(sleeps.matches("sleepers").count() <= 1, "{sleeps}");
}
