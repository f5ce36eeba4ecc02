//! A Redis master dies under load, and a replica takes over that may not have heard of the last writes.
//! What is lost is counted and printed; everything else must hold.

use seriatim::{Mode, Queue, SharedStore};
use seriatim_testkit::{RedisCluster, RedisSentinel};
use seriatim_verify::checker::{Judgement, Report};

use super::fleet::Fleet;
use crate::site::QUEUE;

/// So that each master has some.
const SHARDS: u16 = 6;

async fn open(url: &str) -> SharedStore {
    let store = seriatim::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Half of the load, a dead master, and the other half; all that is left is done in the end.
async fn under_load(url: &str, what: &str, fail_over: impl FnOnce()) -> Report {
    let mode = Mode::Fifo;
    let queue = Queue::new(QUEUE, mode).shards(SHARDS);
    let mut fleet = Fleet::new(open(url).await, url, queue).await;
    fleet.start_nodes();
    fleet.is_up().await;
    let (pushing, allowed) = fleet.push(mode);
    let half = fleet.jobs as usize / 2;
    allowed.add_permits(half);
    let is_half = async || allowed.available_permits() == 0;
    fleet.eventually("half of the load is pushed", is_half).await;
    allowed.add_permits(fleet.jobs as usize - half);
    tokio::task::block_in_place(fail_over);
    let answers = async || fleet.store.stats(None).await.is_ok();
    fleet.eventually("the store answers again", answers).await;
    pushing.await.unwrap();
    let report = fleet.report().await;
    let lost = report.violations(Judgement::Loss);
    let again: u64 = report.duplicates.values().sum();
    println!(
        "{what}: {lost} of {} acknowledged pushes were lost, {again} jobs ran again",
        report.pushes
    );
    assert_eq!(report.violations(Judgement::Overlap), 0, "{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_goes_on_with_the_replica_of_a_dead_master() {
    let mut cluster = RedisCluster::start_with_replicas().unwrap();
    let url = cluster.url();
    under_load(&url, "cluster", || cluster.nodes()[0].kill().unwrap()).await;
}

/// The old master is one again for a moment when it comes back, with clients that do not know better: what it
/// says then is confirmed by nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_has_confirmed_outlives_its_master() {
    let mut servers = RedisSentinel::start().unwrap();
    let url = format!("{}?wait_replicas=1", servers.url());
    let report = under_load(&url, "sentinel, wait_replicas=1", || {
        servers.master().kill().unwrap();
        servers.wait_for_promotion().unwrap();
        // It comes back as the replica of the other, without which nothing would be confirmed.
        servers.master().restart().unwrap();
    })
    .await;
    assert_eq!(report.violations(Judgement::Loss), 0, "{report}");
    assert_eq!(report.violations(Judgement::Fence), 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_s_failover_loses_no_more_than_its_replica_had_not_heard() {
    let mut servers = RedisSentinel::start().unwrap();
    let url = servers.url();
    under_load(&url, "sentinel", || servers.master().kill().unwrap()).await;
}
