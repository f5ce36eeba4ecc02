//! A node looks every few seconds after all queues, most of which have nothing to do: one script looks at many.

use super::*;

/// How many scripts the server has run.
pub(super) async fn scripts(url: &str) -> u64 {
    let mut link = linked(url).await;
    let mut cmd = ::redis::cmd("INFO");
    let text: String = cmd.arg("commandstats").query_async(&mut link).await.unwrap();
    let of_line = |line: &str| {
        let line = line.strip_prefix("cmdstat_eval")?;
        line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(of_line).sum()
}

fn of(queue: u32) -> Job {
    Job::new(format!("q{queue}"), &queue).unwrap().key("k")
}

/// A store with so many queues, in each of which a job waits for tomorrow.
async fn filled(url: &str, queues: u32, shards: u16) -> Arc<Redis> {
    let store = open_at(url, &new_prefix()).await;
    let queue = |i| in_shards(Queue::fifo(format!("q{i}")), shards);
    let declared = (0..queues).map(queue).collect();
    store.declare(Declare { now: None, queues: declared }).await.unwrap();
    let later = (0..queues).map(|i| of(i).run_in(Duration::from_secs(86_400)));
    push(&store, later.collect()).await;
    store
}

pub(super) async fn rescue(store: &Redis, now: Timestamp) -> Vec<Turn> {
    let node = NodeInfo::new("m".into(), LEASE);
    let beat = Heartbeat { now: Some(now), node, beats: Vec::new() };
    store.heartbeat(beat).await.unwrap();
    let rescue =
        Rescue { now: Some(now), node: "m".into(), lease: LEASE, lanes_max: 100, ticket: 0 };
    store.rescue(rescue).await.unwrap()
}

async fn look_after(store: &Redis) {
    let now = store.now().await.unwrap();
    assert_eq!(rescue(store, now).await.len(), 0);
    store.stats(Some(now)).await.unwrap();
    store.due(Vec::new()).await.unwrap();
    store.sweep(Sweep { now: Some(now), rows_max: 1_000 }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_after_60_quiet_queues_takes_as_many_scripts_as_after_3() {
    let server = seriatim_testkit::Redis::start().unwrap();
    let mut counts = Vec::new();
    for queues in [3, 60] {
        let store = filled(&server.url(), queues, 1).await;
        look_after(&store).await;
        let before = scripts(&server.url()).await;
        look_after(&store).await;
        counts.push(scripts(&server.url()).await - before);
    }
    assert_eq!(counts[0], counts[1], "{counts:?} scripts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_in_one_of_many_queues_is_found() {
    let store = filled(&url(), 60, 2).await;
    let start = store.now().await.unwrap();
    let expiring = of(9).key("expires").expires_at(start + LEASE);
    push(&store, vec![of(7).key("a"), of(40).key("b"), expiring]).await;
    let own = Claim { lease: Lease::Own { ttl: LEASE }, ..claim_request("q40", 1) };
    for request in [claim_request("q7", 1), own] {
        assert_eq!(store.claim(request).await.unwrap().turns.len(), 1);
    }
    let stats = store.stats(None).await.unwrap();
    let claimed = stats.iter().filter(|queue| queue.claimed == 1).map(|queue| &*queue.queue);
    assert_eq!(claimed.collect::<Vec<_>>(), ["q40", "q7"]);
    assert_eq!(stats.iter().map(|queue| queue.jobs).sum::<u64>(), 63);
    assert_eq!(rescue(&store, start).await.len(), 0);
    let late = start + 3 * LEASE;
    let rescued = rescue(&store, late).await;
    let mut queues: Vec<_> = rescued.iter().map(|turn| &*turn.queue).collect();
    queues.sort_unstable();
    assert_eq!(queues, ["q40", "q7"]);
    let swept = store.sweep(Sweep { now: Some(late), rows_max: 1_000 }).await.unwrap();
    assert_eq!(swept.expired.len(), 1);
}

/// Else nothing behind it would ever be swept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_fails_keeps_no_sweep_from_the_others() {
    let prefix = new_prefix();
    let store = open(&prefix).await;
    declare(&store, Queue::fifo("a")).await;
    declare(&store, Queue::fifo("b")).await;
    let start = store.now().await.unwrap();
    let expiring = |queue| Job::new(queue, &1).unwrap().key("k").expires_at(start + LEASE);
    push(&store, vec![expiring("a"), expiring("b")]).await;
    send(&url(), &["SET", &format!("{prefix}:{{q1:0}}:done"), "no index"]).await;
    let sweep = Sweep { now: Some(start + 2 * LEASE), rows_max: 100 };
    assert!(store.sweep(sweep).await.is_err());
    let stats = store.stats(None).await.unwrap();
    assert_eq!((&*stats[1].queue, stats[1].jobs), ("b", 0));
}
