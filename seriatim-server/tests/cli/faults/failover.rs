//! A Redis master dies under load, and a replica takes over that may not have heard of the last writes. What is lost is
//! counted and printed; everything else must hold. What a replica has confirmed is never lost, however often masters die.

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
    let (pushing, allowed) = fleet.push();
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

/// One failover for every this many jobs.
const JOBS_PER_FAILOVER: u64 = 1_500;
/// It is the same two servers that change places: there and back.
const SENTINEL_FAILOVERS_MIN: u64 = 2;

/// Servers of which the masters die, one after the other.
enum Servers {
    Cluster(RedisCluster),
    Sentinel(Box<RedisSentinel>),
}

impl Servers {
    fn cluster() -> Self {
        Self::Cluster(RedisCluster::start_with_replicas().unwrap())
    }

    fn sentinel() -> Self {
        Self::Sentinel(Box::new(RedisSentinel::start().unwrap()))
    }

    fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(servers) => servers.url(),
        }
    }

    /// The next master dies and comes back as a replica. A cluster also moves a shard of the first queue.
    fn fail_over(&mut self, round: u64) {
        match self {
            Self::Cluster(cluster) => {
                let masters = cluster.masters();
                cluster.fail_over(masters[round as usize % masters.len()]).unwrap();
                let shard = round % u64::from(SHARDS);
                cluster.move_slot(&format!("seriatim:{{q1:{shard}}}:meta")).unwrap();
            }
            Self::Sentinel(servers) => servers.fail_over().unwrap(),
        }
    }
}

/// What was confirmed is neither lost nor overlapped nor out of order.
async fn nothing_confirmed_is_lost(mut servers: Servers, mode: Mode) {
    let url = format!("{}?wait_replicas=1", servers.url());
    let queue = Queue::new(QUEUE, mode).shards(SHARDS);
    let mut fleet = Fleet::new(open(&url).await, &url, queue).await;
    fleet.start_nodes();
    fleet.is_up().await;
    let (pushing, allowed) = fleet.push();
    let rounds = fleet.jobs.div_ceil(JOBS_PER_FAILOVER);
    let rounds = match servers {
        Servers::Cluster(_) => rounds,
        Servers::Sentinel(_) => rounds.max(SENTINEL_FAILOVERS_MIN),
    };
    let share = fleet.jobs / (rounds + 1);
    for round in 0..rounds {
        allowed.add_permits(share as usize);
        fleet.suffers("master killed");
        tokio::task::block_in_place(|| servers.fail_over(round));
        let answers = async || fleet.store.stats(None).await.is_ok();
        fleet.eventually("the store answers again", answers).await;
    }
    allowed.add_permits((fleet.jobs - rounds * share) as usize);
    pushing.await.unwrap();
    fleet.finish().await;
    fleet.judged();
}

macro_rules! masters_die {
    ($($name:ident: $servers:ident($mode:ident);)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            nothing_confirmed_is_lost(Servers::$servers(), Mode::$mode).await;
        }
    )*};
}

masters_die! {
    cluster_parallel_survives_the_death_of_its_masters: cluster(Parallel);
    cluster_exclusive_survives_the_death_of_its_masters: cluster(Exclusive);
    cluster_accumulate_survives_the_death_of_its_masters: cluster(Accumulate);
    cluster_fifo_survives_the_death_of_its_masters: cluster(Fifo);
    sentinel_accumulate_survives_the_death_of_its_masters: sentinel(Accumulate);
    sentinel_fifo_survives_the_death_of_its_masters: sentinel(Fifo);
}
